//! The layouts in which CIFAR is handed out: folders of batch files.

use std::path::Path;

use crate::classes::{self, Kind};
use crate::dataset::{Dataset, Split};
use crate::error::{Error, Result};
use crate::records::Records;
use crate::sizes::IMAGE_BYTES;
use crate::{binary, python};

/// How the batch files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Records of fixed length.
    Binary,
    /// Pickled Python dictionaries.
    Python,
}

/// One of the four folders: CIFAR-10 or CIFAR-100, binary or python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub kind: Kind,
    pub format: Format,
}

impl Layout {
    /// Both layouts of a data set, the quicker one to read first.
    pub fn both(kind: Kind) -> [Layout; 2] {
        [Format::Binary, Format::Python].map(|format| Layout { kind, format })
    }

    /// The name of the folder, in the archive and on disk.
    pub fn folder(self) -> &'static str {
        match (self.kind, self.format) {
            (Kind::Cifar10, Format::Binary) => "cifar-10-batches-bin",
            (Kind::Cifar10, Format::Python) => "cifar-10-batches-py",
            (Kind::Cifar100, Format::Binary) => "cifar-100-binary",
            (Kind::Cifar100, Format::Python) => "cifar-100-python",
        }
    }

    /// The name of the official archive.
    pub fn archive(self) -> &'static str {
        match (self.kind, self.format) {
            (Kind::Cifar10, Format::Binary) => "cifar-10-binary.tar.gz",
            (Kind::Cifar10, Format::Python) => "cifar-10-python.tar.gz",
            (Kind::Cifar100, Format::Binary) => "cifar-100-binary.tar.gz",
            (Kind::Cifar100, Format::Python) => "cifar-100-python.tar.gz",
        }
    }

    /// The MD5 of the official archive, as its page tells it.
    pub fn md5(self) -> &'static str {
        match (self.kind, self.format) {
            (Kind::Cifar10, Format::Binary) => "c32a1d4ab5d03f1284b67883e8d87530",
            (Kind::Cifar10, Format::Python) => "c58f30108f718f92721af3b95e74349a",
            (Kind::Cifar100, Format::Binary) => "03b5dce01913d631647c71ecec9e9cb8",
            (Kind::Cifar100, Format::Python) => "eb9058c3a382ffc7106e4002c42a8d85",
        }
    }

    /// The batch files, each with the number of its images. The last one is the test split.
    pub fn batches(self) -> &'static [(&'static str, usize)] {
        match (self.kind, self.format) {
            (Kind::Cifar10, Format::Binary) => &[
                ("data_batch_1.bin", 10_000),
                ("data_batch_2.bin", 10_000),
                ("data_batch_3.bin", 10_000),
                ("data_batch_4.bin", 10_000),
                ("data_batch_5.bin", 10_000),
                ("test_batch.bin", 10_000),
            ],
            (Kind::Cifar10, Format::Python) => &[
                ("data_batch_1", 10_000),
                ("data_batch_2", 10_000),
                ("data_batch_3", 10_000),
                ("data_batch_4", 10_000),
                ("data_batch_5", 10_000),
                ("test_batch", 10_000),
            ],
            (Kind::Cifar100, Format::Binary) => &[("train.bin", 50_000), ("test.bin", 10_000)],
            (Kind::Cifar100, Format::Python) => &[("train", 50_000), ("test", 10_000)],
        }
    }

    /// Files that we don't read but keep, for the other programs that do.
    pub fn extras(self) -> &'static [&'static str] {
        match (self.kind, self.format) {
            (Kind::Cifar10, Format::Binary) => &["batches.meta.txt"],
            (Kind::Cifar10, Format::Python) => &["batches.meta"],
            (Kind::Cifar100, Format::Binary) => &["fine_label_names.txt", "coarse_label_names.txt"],
            (Kind::Cifar100, Format::Python) => &["meta"],
        }
    }

    /// The most bytes that a batch file of `images` images may have. Binary files have exactly that many.
    pub fn file_bytes(self, images: usize) -> u64 {
        let record = match self.format {
            Format::Binary => binary::record_bytes(self.kind),
            // Labels, file names and the pickle's own bytes take about 40 bytes an image.
            Format::Python => IMAGE_BYTES + 512,
        };
        (images * record) as u64
    }

    /// Whether a batch file of this layout lies in `dir`. Its content is not checked.
    pub fn is_in(self, dir: &Path) -> bool {
        self.batches().iter().any(|(name, _)| dir.join(name).is_file())
    }

    /// Reads and checks every batch file in `dir`.
    pub fn read(self, dir: &Path) -> Result<Dataset> {
        let (test, train) = self.batches().split_last().expect("every layout lists its files");
        let data = Dataset {
            name: self.kind.name().into(),
            train: self.read_split(dir, train)?,
            test: self.read_split(dir, std::slice::from_ref(test))?,
            classes: classes::owned(classes::class_names(self.kind)),
            coarse_classes: classes::owned(classes::coarse_class_names(self.kind)),
            validation: None,
            validation_from: None,
            unreadable: Vec::new(),
        };
        for (split, samples) in [("train", &data.train), ("test", &data.test)] {
            let counts = samples.class_counts(data.classes.len());
            if let Some(class) = counts.iter().position(|&count| count == 0) {
                let class = data.classes[class].clone();
                return Err(Error::MissingClass { dir: dir.into(), split, class });
            }
        }
        Ok(data)
    }

    fn read_split(self, dir: &Path, files: &[(&str, usize)]) -> Result<Split> {
        let total = files.iter().map(|&(_, images)| images).sum::<usize>();
        let mut records = Records::with_capacity(self.kind, total);
        for &(name, images) in files {
            let path = dir.join(name);
            match self.format {
                Format::Binary => binary::read(&path, images, &mut records)?,
                Format::Python => python::read(&path, images, self.file_bytes(images), &mut records)?,
            }
        }
        Ok(records.into_split())
    }
}
