/// The optimizer that a file of another program says the network is to be trained with.
#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    /// In the compact form of the crate `optim`, as in `sgd:momentum=0.9`.
    pub optimizer: String,
    /// The learning rate.
    pub lr: f64,
    /// The schedule of the rate in the same form, unless it is one that is not there.
    pub schedule: Option<String>,
    /// What the optimizer does beside that in the other program, and not here: names of options.
    pub left_out: Vec<String>,
}
