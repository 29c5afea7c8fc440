//! The data in memory: images, labels and class names.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ndarray::{Array1, Array4, ArrayView1, ArrayView3, Axis};

use crate::decode;
use crate::error::{Error, Result};
use crate::on_demand::Files;
use crate::pixels;
use crate::sizes::{CHANNELS, SIDE};

/// The most bytes of pixels that are decoded together, and the most images: a progress bar moves after each part.
const TOGETHER: (usize, usize) = (64 << 20, 1024);

/// Labelled images, for training or for testing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// `[n, height, width, channels]`: image, row, column, channel (red, green and blue, or grey alone), 0..=255, in standard (C)
    /// order. `[0, height, width, channels]` where `files` has the images. CIFAR has 32 x 32 x 3, MNIST 28 x 28 x 1.
    pub images: Array4<u8>,
    /// The images, if they are decoded on demand. Only [class folders](crate::folder::ClassFolders::on_demand_above) can have them.
    pub files: Option<Files>,
    /// `[n]`: for each image an index into [`Dataset::classes`].
    pub labels: Array1<u16>,
    /// `[n]`: for each image an index into [`Dataset::coarse_classes`]. CIFAR-100 only.
    pub coarse: Option<Array1<u16>>,
    /// The file of each image in `images`, of class folders.
    pub paths: Option<Arc<[PathBuf]>>,
}

impl Split {
    /// Your own images, `[n, height, width, channels]`, with a label for each.
    ///
    /// ```
    /// use cifar::Split;
    /// use ndarray::Array4;
    ///
    /// let split = Split::new(Array4::zeros((2, 28, 28, 1)), vec![7, 3])?;
    /// assert_eq!((split.len(), split.shape()), (2, [28, 28, 1]));
    /// assert!(Split::new(Array4::zeros((2, 28, 28, 1)), vec![7]).is_err());
    /// # Ok::<(), cifar::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Labels`] if there is another number of labels.
    pub fn new(images: Array4<u8>, labels: impl Into<Array1<u16>>) -> Result<Split> {
        let (labels, (count, ..)) = (labels.into(), images.dim());
        if labels.len() != count {
            return Err(Error::Labels { images: count, labels: labels.len() });
        }
        let images =
            if images.is_standard_layout() { images } else { images.as_standard_layout().into_owned() };
        Ok(Split { images, files: None, labels, coarse: None, paths: None })
    }

    /// Images `[height, width, channels]` with their labels, one by one.
    ///
    /// ```
    /// let test = cifar::synthetic(1, 0, 50).test;
    /// let rings = test.iter().filter(|&(_, label)| label == 2);
    /// assert!(rings.map(|(image, _)| image.dim()).all(|shape| shape == (32, 32, 3)));
    /// ```
    ///
    /// # Panics
    /// If pictures are decoded on demand: [`batches`](Self::batches) decodes them.
    pub fn iter(&self) -> impl Iterator<Item = (ArrayView3<'_, u8>, u16)> {
        assert!(self.files.is_none(), "pictures that are decoded on demand come in batches");
        self.images.outer_iter().zip(self.labels.iter().copied())
    }

    /// Batches of `size` images in order with their labels; the last may have fewer. Pictures on demand are decoded on all cores.
    ///
    /// ```
    /// let test = cifar::synthetic(1, 0, 50).test;
    /// for batch in test.batches(32) {
    ///     let (images, labels) = batch?; // [32, 32, 32, 3] and [32], at last [18, 32, 32, 3] and [18]
    ///     assert_eq!(images.dim().0, labels.len());
    /// }
    /// # Ok::<(), cifar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Each batch has those of [`pixels`](Self::pixels).
    ///
    /// # Panics
    /// If `size` is 0.
    pub fn batches(&self, size: usize) -> impl Iterator<Item = Result<(Array4<u8>, ArrayView1<'_, u16>)>> {
        let [height, width, channels] = self.shape();
        (0..self.len()).step_by(size).map(move |start| {
            let (samples, mut pixels) = (start..self.len().min(start + size), Vec::new());
            let images = match self.files {
                None => self.images.slice_axis(Axis(0), samples.clone().into()).into_owned(),
                Some(_) => {
                    self.pixels(samples.clone(), &mut pixels)?;
                    Array4::from_shape_vec((samples.len(), height, width, channels), pixels)
                        .expect("as many pixels as were asked for")
                }
            };
            Ok((images, self.labels.slice_axis(Axis(0), samples.into())))
        })
    }

    /// The number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is no image.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The file of an image, of class folders.
    ///
    /// # Panics
    /// If there is no such image.
    pub fn path(&self, sample: usize) -> Option<&Path> {
        match (&self.files, &self.paths) {
            (Some(files), _) => Some(files.path(sample)),
            (None, paths) => paths.as_ref().map(|paths| paths[sample].as_path()),
        }
    }

    /// Height, width and channels of the images.
    pub fn shape(&self) -> [usize; 3] {
        let (_, height, width, channels) = self.images.dim();
        [height, width, channels]
    }

    /// The first `n` samples; all of them if there are fewer.
    ///
    /// ```
    /// let test = cifar::synthetic(1, 0, 50).test.take(20);
    /// assert_eq!(test.images.dim(), (20, 32, 32, 3));
    /// ```
    pub fn take(&self, n: usize) -> Split {
        self.select(&(0..n.min(self.len())).collect::<Vec<_>>())
    }

    /// Some samples, in this order.
    ///
    /// ```
    /// let test = cifar::synthetic(1, 0, 50).test;
    /// assert_eq!(test.select(&[7, 3]).labels[1], test.labels[3]);
    /// ```
    ///
    /// # Panics
    /// If a sample is not below [`len`](Self::len).
    pub fn select(&self, samples: &[usize]) -> Split {
        let images = match &self.files {
            Some(_) => self.images.clone(),
            None => self.images.select(Axis(0), samples),
        };
        Split {
            images,
            files: self.files.as_ref().map(|files| files.select(samples)),
            labels: self.labels.select(Axis(0), samples),
            coarse: self.coarse.as_ref().map(|coarse| coarse.select(Axis(0), samples)),
            paths: self.paths.as_ref().map(|paths| samples.iter().map(|&k| paths[k].clone()).collect()),
        }
    }

    /// The pixels of some images, one after the other: those in memory, or decoded into `buffer` on all cores.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) or [`Error::Image`](crate::Error::Image) of a picture that can't be decoded;
    /// [`Error::Pictures`](crate::Error::Pictures) of several.
    ///
    /// # Panics
    /// If a sample is not below [`len`](Self::len).
    pub fn pixels<'a>(&'a self, samples: Range<usize>, buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let len: usize = self.shape().iter().product();
        match &self.files {
            Some(files) => {
                buffer.resize(samples.len() * len, 0);
                files.read_all(samples, buffer)?;
                Ok(buffer)
            }
            None => match self.images.as_slice() {
                Some(all) => Ok(&all[samples.start * len..samples.end * len]),
                None => {
                    buffer.clear();
                    buffer.extend(self.images.slice_axis(Axis(0), samples.into()));
                    Ok(buffer)
                }
            },
        }
    }

    /// Shows the pixels of all images in order, some at a time, so that they need not be in memory together.
    ///
    /// # Errors
    /// As [`pixels`](Self::pixels), and those of `see`.
    pub fn each<E: From<Error>>(&self, mut see: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let len: usize = self.shape().iter().product();
        let many = (TOGETHER.0 / len.max(1)).clamp(1, TOGETHER.1);
        let mut buffer = Vec::new();
        for start in (0..self.len()).step_by(many) {
            see(self.pixels(start..(start + many).min(self.len()), &mut buffer)?)?;
        }
        Ok(())
    }

    /// How many images each of the `classes` has.
    pub fn class_counts(&self, classes: usize) -> Vec<usize> {
        let mut counts = vec![0; classes];
        for &label in &self.labels {
            if let Some(count) = counts.get_mut(usize::from(label)) {
                *count += 1;
            }
        }
        counts
    }

    /// The images with another height, width and channels: grey of colours as of [pictures](crate::folder::ClassFolders::channels),
    /// three equal channels of grey, and scaled as pictures are.
    ///
    /// ```
    /// let digits = cifar::synthetic(1, 20, 10).train.reshaped([28, 28, 1])?;
    /// assert_eq!(digits.images.dim(), (20, 28, 28, 1));
    /// # Ok::<(), cifar::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Size`] and [`Error::Channels`] for a shape that no picture can have.
    pub fn reshaped(self, shape: [usize; 3]) -> Result<Split> {
        decode::check_shape(shape)?;
        let old = self.shape();
        if shape == old {
            return Ok(self);
        }
        let Split { images, files, labels, coarse, paths } = self;
        let images = match images.is_standard_layout() {
            true => images.into_raw_vec_and_offset().0,
            false => images.iter().copied().collect(),
        };
        let files = files.map(|files| files.reshaped(shape));
        let images = pixels::reshaped(images, old, shape);
        let len = if files.is_some() { 0 } else { labels.len() };
        let images = Array4::from_shape_vec((len, shape[0], shape[1], shape[2]), images)
            .expect("as many images as before");
        Ok(Split { images, files, labels, coarse, paths })
    }

    /// `images` holds `labels.len()` images in NHWC order; the readers of this crate guarantee it.
    pub(crate) fn from_parts(images: Vec<u8>, labels: Vec<u16>, coarse: Option<Vec<u16>>) -> Split {
        Split::of_shape([SIDE, SIDE, CHANNELS], images, labels, coarse)
    }

    /// The same for images of another height, width and channels.
    pub(crate) fn of_shape(
        [height, width, channels]: [usize; 3],
        images: Vec<u8>,
        labels: Vec<u16>,
        coarse: Option<Vec<u16>>,
    ) -> Split {
        let images = Array4::from_shape_vec((labels.len(), height, width, channels), images)
            .expect("a reader collects the bytes of an image for every label");
        let coarse = coarse.map(Array1::from);
        Split { images, files: None, labels: labels.into(), coarse, paths: None }
    }

    /// Pictures that are decoded on demand.
    pub(crate) fn on_demand(files: Files, labels: Vec<u16>) -> Split {
        let none = Split::of_shape(files.shape(), Vec::new(), Vec::new(), None);
        Split { files: Some(files), labels: labels.into(), ..none }
    }
}

/// A data set: a training split, a test split, maybe one to validate on, and the names of the classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// `cifar10`, `cifar100`, `mnist`, `fashion-mnist`, `synthetic`, or the name of a folder.
    pub name: String,
    /// The data for training.
    pub train: Split,
    /// The data that choose epochs, if not `test`. Only a folder of class folders can have pictures for both.
    pub validation: Option<Split>,
    /// The data for testing.
    pub test: Split,
    /// The name of each class, in the order of the labels.
    pub classes: Vec<String>,
    /// The name of each coarse class; empty but for CIFAR-100.
    pub coarse_classes: Vec<String>,
    /// Of a folder of class folders, where pictures to validate on come from.
    pub validation_from: Option<ValidationFrom>,
    /// The files that were [left out](crate::folder::ClassFolders::skip_unreadable) since they can't be
    /// decoded, and why.
    pub unreadable: Vec<(PathBuf, String)>,
}

/// Where the pictures of a folder of class folders come from that training validates on.
///
/// ```
/// use cifar::ValidationFrom;
///
/// assert_eq!(ValidationFrom::Test("test_set".into()).to_string(), "from test_set/");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValidationFrom {
    /// A folder to validate on has them; its name.
    Validation(String),
    /// A folder to test on has them; its name.
    Test(String),
    /// Some of each class, which are held back from training.
    HeldBack,
    /// All pictures, as [`ClassFolders::whole`](crate::folder::ClassFolders::whole) asks for.
    Whole,
}

impl fmt::Display for ValidationFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValidationFrom::Validation(name) | ValidationFrom::Test(name) => write!(f, "from {name}/"),
            ValidationFrom::HeldBack => f.write_str("held back from training"),
            ValidationFrom::Whole => f.write_str("all of them"),
        }
    }
}

impl Dataset {
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
    /// assert!(!cifar::synthetic(1, 20, 10).tests_on_validation());
    /// ```
    pub fn tests_on_validation(&self) -> bool {
        let from = self.validation_from.as_ref();
        let own = matches!(from, Some(ValidationFrom::Validation(_) | ValidationFrom::HeldBack));
        self.validation.is_none() && own
    }
}

/// Appends one image from CIFAR's order, a plane each of red, green and blue, in NHWC order.
pub(crate) fn push_planes(images: &mut Vec<u8>, planes: &[u8]) {
    let (red, rest) = planes.split_at(SIDE * SIDE);
    let (green, blue) = rest.split_at(SIDE * SIDE);
    images.extend(red.iter().zip(green).zip(blue).flat_map(|((&r, &g), &b)| [r, g, b]));
}
