//! Image augmentation with the semantics of Keras' ImageDataGenerator, reproducible draw by draw.

mod draws;
mod error;
mod fill;
mod generator;
mod mean;
mod pipeline;
mod resample;
mod shift;
mod warp;

pub use draws::{Cutout, Draws};
pub use error::Error;
pub use fill::FillMode;
pub use generator::{ImageDataGenerator, Preprocess};
pub use mean::Mean;
pub use pipeline::{Pipeline, Scratch};
pub use shift::ShiftRange;
pub use warp::{Affine, warp};
