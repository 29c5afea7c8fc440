//! Images with their labels.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ndarray::{Array1, Array2, Array4, ArrayView1, ArrayView3, Axis};

use crate::error::{Error, Result};
use crate::files::Files;
use crate::pixels;
use crate::shape::check_shape;

/// The most bytes of pixels that are decoded together, and the most images: a progress bar moves after each part.
const TOGETHER: (usize, usize) = (64 << 20, 1024);

/// Labelled images, for training or for testing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Split {
    /// `[n, height, width, channels]`: image, row, column, channel (red, green and blue, or grey alone), 0..=255, in standard (C)
    /// order. `[0, height, width, channels]` where `files` has the images. CIFAR has 32 x 32 x 3, MNIST 28 x 28 x 1.
    pub images: Array4<u8>,
    /// The images, if they are decoded on demand.
    pub files: Option<Files>,
    /// `[n]`: for each image an index into [`Dataset::classes`](crate::Dataset::classes).
    pub labels: Array1<u16>,
    /// `[n]`: for each image an index into [`Dataset::coarse_classes`](crate::Dataset::coarse_classes). CIFAR-100 only.
    pub coarse: Option<Array1<u16>>,
    /// `[n, classes]`, multi-hot: 1 for each class of an image, 0 for the others, where an image has any number of classes.
    /// `labels` then has the first class of each, or 0 if it has none.
    pub multi_hot: Option<Array2<u8>>,
    /// The file of each image in `images`, of class folders and tables.
    pub paths: Option<Arc<[PathBuf]>>,
}

impl Split {
    /// Your own images, `[n, height, width, channels]`, with a label for each.
    ///
    /// ```
    /// use towers_dataset::Split;
    /// use ndarray::Array4;
    ///
    /// let split = Split::new(Array4::zeros((2, 28, 28, 1)), vec![7, 3])?;
    /// assert_eq!((split.len(), split.shape()), (2, [28, 28, 1]));
    /// assert!(Split::new(Array4::zeros((2, 28, 28, 1)), vec![7]).is_err());
    /// # Ok::<(), towers_dataset::Error>(())
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
        Ok(Split { images, files: None, labels, coarse: None, multi_hot: None, paths: None })
    }

    /// Images of this height, width and channels from their pixels, one image after the other, row by row.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_pixels(
        [height, width, channels]: [usize; 3],
        pixels: Vec<u8>,
        labels: impl Into<Array1<u16>>,
    ) -> Result<Split> {
        let labels = labels.into();
        // Without pixels there may be any number of images.
        let images = pixels.len().checked_div(height * width * channels).unwrap_or(labels.len());
        let array = Array4::from_shape_vec((images, height, width, channels), pixels);
        array
            .map_err(|_| Error::Labels { images, labels: labels.len() })
            .and_then(|all| Split::new(all, labels))
    }

    /// Images that are decoded on demand, with a label for each.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_files(files: Files, labels: impl Into<Array1<u16>>) -> Result<Split> {
        let (labels, [height, width, channels]) = (labels.into(), files.shape());
        if labels.len() != files.len() {
            return Err(Error::Labels { images: files.len(), labels: labels.len() });
        }
        let images = Array4::zeros((0, height, width, channels));
        Ok(Split { images, files: Some(files), labels, coarse: None, multi_hot: None, paths: None })
    }

    /// The same images, each with any number of classes: a row of `multi_hot` `[n, classes]` has 1 for each of its classes.
    ///
    /// ```
    /// use towers_dataset::Split;
    /// use ndarray::{Array4, array};
    ///
    /// let split = Split::new(Array4::zeros((3, 28, 28, 1)), vec![0; 3])?;
    /// let split = split.multi_label(array![[0, 1, 1], [0, 0, 0], [1, 0, 0]])?;
    /// assert_eq!(split.labels.to_vec(), [1, 0, 0]);
    /// assert_eq!(split.class_counts(3), [1, 1, 1]);
    /// # Ok::<(), towers_dataset::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Labels`] if there is another number of rows, [`Error::MultiHot`] for a number other than 0 and 1.
    pub fn multi_label(self, multi_hot: Array2<u8>) -> Result<Split> {
        if multi_hot.nrows() != self.len() {
            return Err(Error::Labels { images: self.len(), labels: multi_hot.nrows() });
        }
        if let Some(((image, class), &value)) = multi_hot.indexed_iter().find(|&(_, &value)| value > 1) {
            return Err(Error::MultiHot { image, class, value });
        }
        let first = |row: ArrayView1<u8>| row.iter().position(|&has| has == 1).unwrap_or(0) as u16;
        let labels = multi_hot.rows().into_iter().map(first).collect();
        Ok(Split { labels, multi_hot: Some(multi_hot), ..self })
    }

    /// Images `[height, width, channels]` with their labels, one by one.
    ///
    /// ```
    /// # use towers_dataset::Split;
    /// # use ndarray::Array4;
    /// let split = Split::new(Array4::zeros((3, 28, 28, 1)), vec![2, 0, 2])?;
    /// let twos = split.iter().filter(|&(_, label)| label == 2);
    /// assert_eq!(twos.map(|(image, _)| image.dim()).collect::<Vec<_>>(), [(28, 28, 1); 2]);
    /// # Ok::<(), towers_dataset::Error>(())
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
    /// # use towers_dataset::Split;
    /// # use ndarray::Array4;
    /// let split = Split::new(Array4::zeros((50, 28, 28, 1)), vec![0; 50])?;
    /// for batch in split.batches(32) {
    ///     let (images, labels) = batch?; // [32, 28, 28, 1] and [32], at last [18, 28, 28, 1] and [18]
    ///     assert_eq!(images.dim().0, labels.len());
    /// }
    /// # Ok::<(), towers_dataset::Error>(())
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

    /// The file of an image, of class folders and tables.
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
    /// # use towers_dataset::Split;
    /// # use ndarray::Array4;
    /// let split = Split::new(Array4::zeros((50, 28, 28, 1)), vec![0; 50])?;
    /// assert_eq!(split.take(20).images.dim(), (20, 28, 28, 1));
    /// # Ok::<(), towers_dataset::Error>(())
    /// ```
    pub fn take(&self, n: usize) -> Split {
        self.select(&(0..n.min(self.len())).collect::<Vec<_>>())
    }

    /// Some samples, in this order.
    ///
    /// ```
    /// # use towers_dataset::Split;
    /// # use ndarray::Array4;
    /// let split = Split::new(Array4::zeros((4, 28, 28, 1)), vec![5, 6, 7, 8])?;
    /// assert_eq!(split.select(&[3, 1]).labels.to_vec(), [8, 6]);
    /// # Ok::<(), towers_dataset::Error>(())
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
            multi_hot: self.multi_hot.as_ref().map(|rows| rows.select(Axis(0), samples)),
            paths: self.paths.as_ref().map(|paths| samples.iter().map(|&k| paths[k].clone()).collect()),
        }
    }

    /// The pixels of some images, one after the other: those in memory, or decoded into `buffer` on all cores.
    ///
    /// # Errors
    /// [`Error::Decode`] if images in files can't be decoded.
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
        if let Some(rows) = &self.multi_hot {
            let sums =
                rows.columns().into_iter().map(|class| class.iter().map(|&has| usize::from(has)).sum());
            counts.iter_mut().zip(sums).for_each(|(count, sum)| *count = sum);
            return counts;
        }
        for &label in &self.labels {
            if let Some(count) = counts.get_mut(usize::from(label)) {
                *count += 1;
            }
        }
        counts
    }

    /// The images with another height, width and channels: [grey](crate::grey) of colours, three equal channels of grey, and
    /// stretched as by [`Resize::Stretch`](crate::Resize::Stretch).
    ///
    /// ```
    /// # use towers_dataset::Split;
    /// # use ndarray::Array4;
    /// let split = Split::new(Array4::zeros((20, 32, 32, 3)), vec![0; 20])?;
    /// assert_eq!(split.reshaped([28, 28, 1])?.images.dim(), (20, 28, 28, 1));
    /// # Ok::<(), towers_dataset::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Size`] and [`Error::Channels`] for a shape that no picture can have.
    pub fn reshaped(self, shape: [usize; 3]) -> Result<Split> {
        check_shape(shape)?;
        let old = self.shape();
        if shape == old {
            return Ok(self);
        }
        let Split { images, files, labels, coarse, multi_hot, paths } = self;
        let images = match images.is_standard_layout() {
            true => images.into_raw_vec_and_offset().0,
            false => images.iter().copied().collect(),
        };
        let files = files.map(|files| files.reshaped(shape));
        let images = pixels::reshaped(images, old, shape);
        let len = if files.is_some() { 0 } else { labels.len() };
        let images = Array4::from_shape_vec((len, shape[0], shape[1], shape[2]), images)
            .expect("as many images as before");
        Ok(Split { images, files, labels, coarse, multi_hot, paths })
    }
}

/// The places of `n` samples: the first of each class, then the second of each, and so on. They are in the
/// order of the set.
///
/// ```
/// assert_eq!(towers_dataset::evenly(&[0, 0, 0, 0, 1, 1, 2], 5), [0, 1, 4, 5, 6]);
/// ```
pub fn evenly(labels: &[u16], n: usize) -> Vec<usize> {
    let mut seen = BTreeMap::new();
    let turn = |(place, &label)| {
        let turn = seen.entry(label).or_insert(0_usize);
        *turn += 1;
        (*turn, label, place)
    };
    let mut turns: Vec<_> = labels.iter().enumerate().map(turn).collect();
    turns.sort_unstable();
    let mut places: Vec<usize> = turns.into_iter().take(n).map(|(_, _, place)| place).collect();
    places.sort_unstable();
    places
}
