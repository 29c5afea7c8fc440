//! What a network is for: the images that it takes and the classes that it tells apart.

use crate::{Error, Result};
use core::fmt;
use towers_dataset::Split;
use towers_models::Model;

/// The images that a network takes, and the number of classes.
///
/// ```
/// use towers_trained::Task;
///
/// let task = Task::of(&towers_models::small_cnn(10)?);
/// assert_eq!(task, Task { image: [32, 32, 3], classes: 10 });
/// assert_eq!(task.to_string(), "32x32x3 images into 10 classes");
/// # Ok::<(), towers_layers::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Height, width and channels of an image.
    pub image: [usize; 3],
    /// The number of classes.
    pub classes: usize,
}

impl Task {
    /// The task of a network.
    pub fn of(model: &Model) -> Self {
        Task { image: model.image(), classes: model.classes() }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [height, width, channels] = self.image;
        write!(f, "{height}x{width}x{channels} images into {} classes", self.classes)
    }
}

/// Refuses a split that does not have one label for each image.
///
/// ```
/// let mut data = towers_cifar::synthetic(1, 4, 2);
/// assert!(towers_trained::check_labels(&data.test).is_ok());
/// data.test.labels = data.train.labels;
/// assert!(towers_trained::check_labels(&data.test).is_err());
/// ```
///
/// # Errors
/// [`Error::Option`] with both numbers.
pub fn check_labels(split: &Split) -> Result<()> {
    let images = split.files.as_ref().map_or(split.images.dim().0, towers_dataset::Files::len);
    let labels = split.labels.len();
    if labels == images {
        return Ok(());
    }
    Err(Error::about("the number of labels", labels, format!("{images}: one for each image")))
}
