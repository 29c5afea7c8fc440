//! The types that options, draws and loaders consist of.

pub use crate::draws::Cutout;
pub use crate::flow::Flow;
pub use crate::loader_options::Rows;
pub use crate::mix::Mix;
pub use crate::preprocess::{Preprocess, PreprocessingFunction};
pub use crate::resized_crop::ResizedCrop;
pub use crate::samples::Subset;
pub use crate::whitening::Whitening;
