//! What a caller may have done to every image.

use crate::Mean;
use ndarray::ArrayViewMut3;
use std::fmt;
use std::sync::Arc;

/// What happens to every image before it is augmented, in training and in evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Preprocess {
    /// Pixels go into the augmentation as they are, 0 to 255.
    #[default]
    None,
    /// A mean (in units of 0..=255) is subtracted first. What a shift then repeats at the edge is a pixel less
    /// *its own* mean, and `cval` 0 is the mean image: the data flow of scripts that run `x -= mean` on
    /// the whole set before they give it to a generator.
    SubtractMean(Mean),
}

/// A caller's own step: Keras' `preprocessing_function`. It changes an image (height, width, channels) in place, and should
/// depend on that image alone, or batches would no longer repeat.
///
/// Two are equal if they are clones of one.
#[derive(Clone)]
pub struct PreprocessingFunction(Arc<Function>);

type Function = dyn Fn(ArrayViewMut3<'_, f32>) + Send + Sync;

impl PreprocessingFunction {
    /// Takes a function.
    pub fn new(function: impl Fn(ArrayViewMut3<'_, f32>) + Send + Sync + 'static) -> Self {
        PreprocessingFunction(Arc::new(function))
    }

    pub(crate) fn call(&self, image: ArrayViewMut3<'_, f32>) {
        (self.0)(image);
    }
}

impl PartialEq for PreprocessingFunction {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for PreprocessingFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PreprocessingFunction(..)")
    }
}
