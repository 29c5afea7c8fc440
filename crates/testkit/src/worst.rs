use core::fmt;

/// An element and its two derivatives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Worst {
    /// `input`, or the parameter's name.
    pub name: String,
    /// The element.
    pub index: usize,
    /// The backward pass's gradient.
    pub gradient: f64,
    /// The derivative by differences.
    pub difference: f64,
    /// Their distance for the tensor's largest derivative.
    pub error: f64,
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Worst { name, index, gradient, difference, error } = self;
        write!(f, "{name}[{index}] is {gradient:e}, but differences give {difference:e} (error {error:.1e})")
    }
}
