//! The types that options, draws and loaders consist of.

pub use crate::auto_augment::Policy;
pub use crate::color_jitter::Jitter;
pub use crate::draws::Cutout;
pub use crate::erased::{Erased, ErasedWith};
pub use crate::flow::Flow;
pub use crate::loader_options::Rows;
pub use crate::mix::Mix;
pub use crate::preprocess::{Preprocess, PreprocessingFunction};
pub use crate::random_erasing::Filling;
pub use crate::resized_crop::ResizedCrop;
pub use crate::samples::Subset;
pub use crate::whitening::Whitening;
