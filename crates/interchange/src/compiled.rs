/// The optimizer that a file of another program says the network is to be trained with.
#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    /// In the compact form of the crate `optim`, as in `sgd:momentum=0.9`.
    pub optimizer: String,
    /// The learning rate.
    pub lr: f64,
    /// The schedule of the rate in the same form. `None` if `optim` has no such schedule.
    pub schedule: Option<String>,
    /// Options of the other program's optimizer that are left out.
    pub left_out: Vec<String>,
}
