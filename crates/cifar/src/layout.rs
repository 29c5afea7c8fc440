//! The layouts in which the data sets are handed out.

use std::path::Path;

use dataset::{Dataset, Split};

use crate::classes::{self, Kind};
use crate::error::{Error, Result};
use crate::records::Records;
use crate::sizes::IMAGE_BYTES;
use crate::{binary, idx, npz, python};

/// Keras' file of MNIST.
const NPZ: &str = "mnist.npz";

/// How the files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Records of fixed length.
    Binary,
    /// Pickled Python dictionaries.
    Python,
    /// Four `idx` files.
    Idx,
    /// One archive of NumPy arrays, Keras' `mnist.npz`.
    Npz,
}

/// A data set in one of its formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub kind: Kind,
    pub format: Format,
}

impl Layout {
    /// The layouts of a data set, the quicker one to read first.
    pub fn all(kind: Kind) -> impl Iterator<Item = Layout> + Clone {
        let formats: &[Format] = match kind {
            Kind::Cifar10 | Kind::Cifar100 => &[Format::Binary, Format::Python],
            Kind::Mnist => &[Format::Idx, Format::Npz],
            Kind::FashionMnist => &[Format::Idx],
        };
        formats.iter().map(move |&format| Layout { kind, format })
    }

    /// Where its files may lie, in a folder that holds theirs. The first is where they are put.
    pub fn folders(self) -> Vec<String> {
        match self.format {
            // Keras 3 unpacks into another folder.
            Format::Binary | Format::Python => {
                let name = self.folder();
                vec![name.to_owned(), format!("{name}-target/{name}")]
            }
            // As torchvision and Keras name them.
            Format::Idx => [self.folder(), "raw", self.kind.name()].map(str::to_owned).into(),
            Format::Npz => Vec::new(),
        }
    }

    /// The name of the folder, in the archive and on disk.
    pub fn folder(self) -> &'static str {
        match (self.kind, self.format) {
            (Kind::Cifar10, Format::Binary) => "cifar-10-batches-bin",
            (Kind::Cifar100, Format::Binary) => "cifar-100-binary",
            (Kind::Mnist, _) => "MNIST/raw",
            (Kind::FashionMnist, _) => "FashionMNIST/raw",
            (Kind::Cifar100, _) => "cifar-100-python",
            (Kind::Cifar10, _) => "cifar-10-batches-py",
        }
    }

    /// The official archive of all files: its name, its MD5 as its page tells it, and the size that the official host has served
    /// since 2009.
    pub fn archive(self) -> Option<(&'static str, &'static str, u64)> {
        Some(match (self.kind, self.format) {
            (Kind::Cifar10, Format::Binary) => {
                ("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170_052_171)
            }
            (Kind::Cifar10, Format::Python) => {
                ("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071)
            }
            (Kind::Cifar100, Format::Binary) => {
                ("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", 168_513_733)
            }
            (Kind::Cifar100, Format::Python) => {
                ("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437)
            }
            _ => return None,
        })
    }

    /// The files of MNIST or Fashion-MNIST that are downloaded one by one, each with its MD5 and its size. The MD5s are those of
    /// torchvision's `datasets/mnist.py`, the sizes those of TensorFlow Datasets' `checksums.tsv`.
    pub fn files(self) -> &'static [(&'static str, &'static str, u64)] {
        match self.kind {
            Kind::Mnist => &[
                ("train-images-idx3-ubyte", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
                ("train-labels-idx1-ubyte", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
                ("t10k-images-idx3-ubyte", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
                ("t10k-labels-idx1-ubyte", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
            ],
            Kind::FashionMnist => &[
                ("train-images-idx3-ubyte", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
                ("train-labels-idx1-ubyte", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
                ("t10k-images-idx3-ubyte", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
                ("t10k-labels-idx1-ubyte", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
            ],
            Kind::Cifar10 | Kind::Cifar100 => &[],
        }
    }

    /// CIFAR's batch files, each with the number of its images. The last one is the test split.
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
            _ => &[],
        }
    }

    /// Files that we don't read but keep, for the other programs that do.
    pub fn extras(self) -> &'static [&'static str] {
        match (self.kind, self.format) {
            (Kind::Cifar10, Format::Binary) => &["batches.meta.txt"],
            (Kind::Cifar10, Format::Python) => &["batches.meta"],
            (Kind::Cifar100, Format::Binary) => &["fine_label_names.txt", "coarse_label_names.txt"],
            (Kind::Cifar100, Format::Python) => &["meta"],
            _ => &[],
        }
    }

    /// The most bytes that a batch file of `images` images may have. Binary files have exactly that many.
    pub fn file_bytes(self, images: usize) -> u64 {
        let record = match self.format {
            Format::Binary => binary::record_bytes(self.kind),
            // Labels, file names and the pickle's own bytes take about 40 bytes an image.
            _ => IMAGE_BYTES + 512,
        };
        (images * record) as u64
    }

    /// Whether a file of this layout lies in `dir`. Its content is not checked.
    pub fn is_in(self, dir: &Path) -> bool {
        match self.format {
            Format::Idx => return idx::is_in(dir),
            Format::Npz => return dir.join(NPZ).is_file(),
            Format::Binary | Format::Python => {}
        }
        self.batches().iter().any(|(name, _)| dir.join(name).is_file())
    }

    /// Reads and checks every file in `dir`.
    pub fn read(self, dir: &Path) -> Result<Dataset> {
        let [train, test] = match self.format {
            Format::Idx => idx::read(self.kind, dir)?,
            Format::Npz => npz::read(self.kind, &dir.join(NPZ))?,
            Format::Binary | Format::Python => self.read_batches(dir)?,
        };
        let mut data =
            Dataset::new(self.kind.name(), train, test, classes::class_names(self.kind).iter().copied())?;
        data.coarse_classes =
            classes::coarse_class_names(self.kind).iter().map(|&name| name.into()).collect();
        for (split, samples) in [("train", &data.train), ("test", &data.test)] {
            let counts = samples.class_counts(data.classes.len());
            if let Some(class) = counts.iter().position(|&count| count == 0) {
                let class = data.classes[class].clone();
                return Err(Error::MissingClass { dir: dir.into(), split, class });
            }
        }
        self.refuse_the_other(dir, &data.train)?;
        Ok(data)
    }

    /// MNIST and Fashion-MNIST have the same file names, sizes and numbers of labels. The first labels tell them apart.
    fn refuse_the_other(self, dir: &Path, train: &Split) -> Result<()> {
        for other in [Kind::Mnist, Kind::FashionMnist].into_iter().filter(|&other| other != self.kind) {
            let first = match other {
                Kind::Mnist => [5, 0, 4, 1, 9, 2, 1, 3, 1, 4],
                _ => [9, 0, 0, 3, 0, 2, 7, 2, 5, 5],
            };
            if train.shape() == other.shape() && train.labels.iter().take(first.len()).eq(&first) {
                let reason = format!("the files in this folder are those of {other}, not of {}", self.kind);
                return Err(Error::Array { path: dir.to_owned(), reason });
            }
        }
        Ok(())
    }

    fn read_batches(self, dir: &Path) -> Result<[Split; 2]> {
        let (test, train) = self.batches().split_last().expect("every layout of batches lists its files");
        Ok([self.read_split(dir, train)?, self.read_split(dir, std::slice::from_ref(test))?])
    }

    fn read_split(self, dir: &Path, files: &[(&str, usize)]) -> Result<Split> {
        let total = files.iter().map(|&(_, images)| images).sum::<usize>();
        let mut records = Records::with_capacity(self.kind, total);
        for &(name, images) in files {
            let path = dir.join(name);
            match self.format {
                Format::Binary => binary::read(&path, images, &mut records)?,
                _ => python::read(&path, images, self.file_bytes(images), &mut records)?,
            }
        }
        records.into_split()
    }
}
