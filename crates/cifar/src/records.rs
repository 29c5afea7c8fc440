use std::path::Path;

use crate::classes::{self, Kind};
use crate::dataset::Split;
use crate::error::{Error, Result};
use crate::sizes::IMAGE_BYTES;

/// What the readers collect.
pub(crate) struct Records {
    pub kind: Kind,
    /// NHWC.
    pub images: Vec<u8>,
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
        let label = checked(path, record, label, classes::coarse_class_names(self.kind).len())?;
        self.coarse.push(label);
        Ok(())
    }

    pub fn into_split(self) -> Split {
        let coarse = (self.kind == Kind::Cifar100).then_some(self.coarse);
        Split::from_parts(self.images, self.labels, coarse)
    }
}

fn checked(path: &Path, record: usize, label: i64, classes: usize) -> Result<u16> {
    match u16::try_from(label) {
        Ok(value) if usize::from(value) < classes => Ok(value),
        _ => Err(Error::Label { path: path.into(), record, label, classes }),
    }
}
