//! A data set: its splits and the names of its classes.

use std::fmt;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::split::Split;

/// A data set: a training split, a test split, maybe one to validate on, and the names of the classes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dataset {
    /// `cifar10`, `cifar100`, `mnist`, `fashion-mnist`, `synthetic`, or the name of a folder.
    pub name: String,
    /// The data for training.
    pub train: Split,
    /// The data that choose epochs, if not `test`. Only pictures of class folders or of a table can be for both.
    pub validation: Option<Split>,
    /// The data for testing.
    pub test: Split,
    /// The name of each class, in the order of the labels.
    pub classes: Vec<String>,
    /// The name of each coarse class; empty but for CIFAR-100.
    pub coarse_classes: Vec<String>,
    /// Where the validation pictures of class folders or of a table come from.
    pub validation_from: Option<ValidationFrom>,
    /// The files that were left out since they can't be
    /// decoded, and why.
    pub unreadable: Vec<(PathBuf, String)>,
}

/// Where the pictures of class folders or of a table come from that training validates on.
///
/// ```
/// use towers_dataset::ValidationFrom;
///
/// assert_eq!(ValidationFrom::Test("test_set/".into()).to_string(), "from test_set/");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValidationFrom {
    /// A folder to validate on has them, as `val/`, or rows of a table, as ``the column `split` ``.
    Validation(String),
    /// A folder to test on has them, or rows of a table.
    Test(String),
    /// Some of each class, which are held back from training.
    HeldBack,
    /// All pictures: the folder is for measuring alone.
    Whole,
}

impl fmt::Display for ValidationFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValidationFrom::Validation(name) | ValidationFrom::Test(name) => write!(f, "from {name}"),
            ValidationFrom::HeldBack => f.write_str("held back from training"),
            ValidationFrom::Whole => f.write_str("all of them"),
        }
    }
}

impl Dataset {
    /// Two splits of `classes`, whose names have the order of the labels.
    ///
    /// # Errors
    /// [`Error::Class`] for a label that names no class, [`Error::Shapes`] for splits with images of unlike shape,
    /// [`Error::Classes`] for [multi-hot](Split::multi_hot) rows of another number of classes, or in one of the splits alone.
    pub fn new(
        name: impl Into<String>,
        train: Split,
        test: Split,
        classes: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Dataset> {
        let classes: Vec<String> = classes.into_iter().map(Into::into).collect();
        let mut labels = train.labels.iter().chain(&test.labels);
        if let Some(&label) = labels.find(|&&label| usize::from(label) >= classes.len()) {
            return Err(Error::Class { label, classes: classes.len() });
        }
        let rows = [&train, &test].map(|split| split.multi_hot.as_ref().map(|rows| rows.ncols()));
        if rows[0] != rows[1] || rows[0].is_some_and(|columns| columns != classes.len()) {
            return Err(Error::Classes { train: rows[0], test: rows[1], classes: classes.len() });
        }
        if train.shape() != test.shape() {
            return Err(Error::Shapes { train: train.shape(), test: test.shape() });
        }
        Ok(Dataset {
            name: name.into(),
            train,
            validation: None,
            test,
            classes,
            coarse_classes: Vec::new(),
            validation_from: None,
            unreadable: Vec::new(),
        })
    }

    /// Whether an image has any number of classes: the splits are [multi-hot](Split::multi_hot).
    pub fn is_multi_label(&self) -> bool {
        self.train.multi_hot.is_some()
    }

    /// All images with another height, width and channels, as [`Split::reshaped`] makes them.
    ///
    /// # Errors
    /// As [`Split::reshaped`].
    pub fn reshaped(self, shape: [usize; 3]) -> Result<Dataset> {
        Ok(Dataset {
            train: self.train.reshaped(shape)?,
            validation: self.validation.map(|split| split.reshaped(shape)).transpose()?,
            test: self.test.reshaped(shape)?,
            ..self
        })
    }

    /// Whether the test split is the validation split too, as in a folder of class folders without a folder
    /// `test`.
    ///
    /// ```
    /// # use towers_dataset::{Dataset, Split};
    /// # use ndarray::Array4;
    /// let split = Split::new(Array4::zeros((2, 28, 28, 1)), vec![0, 1])?;
    /// assert!(!Dataset::new("scans", split.clone(), split, ["a", "b"])?.tests_on_validation());
    /// # Ok::<(), towers_dataset::Error>(())
    /// ```
    pub fn tests_on_validation(&self) -> bool {
        let from = self.validation_from.as_ref();
        let own = matches!(from, Some(ValidationFrom::Validation(_) | ValidationFrom::HeldBack));
        self.validation.is_none() && own
    }
}
