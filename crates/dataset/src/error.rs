/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a [decoder](crate::Decode).
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The reasons for refusing images and labels.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another number of labels than of images.
    #[error("there are {images} images, but {labels} labels")]
    Labels {
        /// The number of images.
        images: usize,
        /// The number of labels.
        labels: usize,
    },

    /// A label that names no class.
    #[error("a label is {label}, but there are {classes} classes")]
    Class {
        /// The label.
        label: u16,
        /// The number of classes.
        classes: usize,
    },

    /// A number in multi-hot rows that is neither 0 nor 1.
    #[error("image {image} has {value} for class {class}, not 0 or 1")]
    MultiHot {
        /// The row.
        image: usize,
        /// The column.
        class: usize,
        /// The number.
        value: u8,
    },

    /// Splits whose multi-hot rows do not have a column for each class.
    #[error(
        "the labels to train on are {}, those to test on {}; there are {classes} classes",
        columns(*train),
        columns(*test)
    )]
    Classes {
        /// The columns of the training split, if its images have several labels.
        train: Option<usize>,
        /// The columns of the test split.
        test: Option<usize>,
        /// The number of classes.
        classes: usize,
    },

    /// Splits with images of unlike height, width or channels.
    #[error(
        "the images to train on are of {train:?} (height, width, channels), those to test on of {test:?}"
    )]
    Shapes {
        /// The shape of the training images.
        train: [usize; 3],
        /// The shape of the test images.
        test: [usize; 3],
    },

    /// A number of channels that no picture can have.
    #[error("pictures can't have {channels} channels, only 1 for grey, or 3 for red, green and blue")]
    Channels {
        /// The number.
        channels: usize,
    },

    /// A height and width that no picture can be scaled to.
    #[error(
        "pictures can't be scaled to {height}x{width} (height x width), only to sides of 1 to {most} pixels"
    )]
    Size {
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
        /// The most of either.
        most: u32,
    },

    /// Images in [files](crate::Files) that can't be decoded: the error of their decoder.
    #[error(transparent)]
    Decode(BoxError),
}

/// The labels of a split in words.
fn columns(multi_hot: Option<usize>) -> String {
    multi_hot
        .map_or("one for each image".to_owned(), |columns| format!("multi-hot rows of {columns} columns"))
}
