use std::path::Path;

use towers_dataset::Split;

use crate::error::{Error, Result};
use crate::kinds::{Kind, coarse_class_names};
use crate::sizes::{CHANNELS, IMAGE_BYTES, SIDE};

/// What the readers collect.
pub(crate) struct Records {
    pub kind: Kind,
    /// NHWC.
    images: Vec<u8>,
    labels: Vec<u16>,
    coarse: Vec<u16>,
}

impl Records {
    pub fn with_capacity(kind: Kind, n: usize) -> Records {
        Records {
            kind,
            images: Vec::with_capacity(n * IMAGE_BYTES),
            labels: Vec::with_capacity(n),
            coarse: Vec::new(),
        }
    }

    /// Checks and keeps the label of the `record`-th record of the file at `path`.
    pub fn push_label(&mut self, path: &Path, record: usize, label: i64) -> Result<()> {
        let label = checked(path, record, label, self.kind.classes())?;
        self.labels.push(label);
        Ok(())
    }

    /// The same for a coarse label.
    pub fn push_coarse(&mut self, path: &Path, record: usize, label: i64) -> Result<()> {
        let label = checked(path, record, label, coarse_class_names(self.kind).len())?;
        self.coarse.push(label);
        Ok(())
    }

    /// Appends the pixels of an image, a plane each of red, green and blue.
    pub fn push_planes(&mut self, planes: &[u8]) {
        let (red, rest) = planes.split_at(SIDE * SIDE);
        let (green, blue) = rest.split_at(SIDE * SIDE);
        self.images.extend(red.iter().zip(green).zip(blue).flat_map(|((&r, &g), &b)| [r, g, b]));
    }

    pub fn into_split(self) -> Result<Split> {
        let mut split = Split::of_pixels([SIDE, SIDE, CHANNELS], self.images, self.labels)?;
        split.coarse = (!self.kind.official().coarse.is_empty()).then(|| self.coarse.into());
        Ok(split)
    }
}

fn checked(path: &Path, record: usize, label: i64, classes: usize) -> Result<u16> {
    match u16::try_from(label) {
        Ok(value) if usize::from(value) < classes => Ok(value),
        _ => Err(Error::Label { path: path.into(), record, label, classes }),
    }
}
