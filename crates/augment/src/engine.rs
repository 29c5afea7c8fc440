//! Types that the other crates of this workspace need, such as `towers-train`: no promises for other
//! programs.

pub use crate::fill::Tap;
pub use crate::fit::ShowImages;
pub use crate::mean::PixelSums;
pub use crate::patches::Patches;
pub use crate::place::Place;
