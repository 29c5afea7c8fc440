use core::fmt::{self, Display, Formatter};

/// A number in its shortest form that reads back the same: `0.9`, `1e-6`.
#[derive(PartialEq)]
pub(crate) struct Number<T>(pub(crate) T);

impl<T: Copy + Into<f64> + Display + fmt::LowerExp> Display for Number<T> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let size = self.0.into().abs();
        if size == 0.0 || (1e-3..1e6).contains(&size) {
            write!(f, "{}", self.0)
        } else {
            write!(f, "{:e}", self.0)
        }
    }
}
