//! The layouts in which the data sets are handed out.

use std::path::Path;

use towers_dataset::{Dataset, Split};

use crate::error::{Error, Result};
use crate::kinds::{Kind, class_names, coarse_class_names};
use crate::official::{Download, Files, Format};
use crate::records::Records;
use crate::sizes::IMAGE_BYTES;
use crate::{binary, idx, npz, python};

/// Keras' file of MNIST.
const NPZ: &str = "mnist.npz";

/// A data set in one of its formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub kind: Kind,
    pub files: &'static Files,
}

impl Layout {
    /// The layouts of a data set, the quicker one to read first.
    pub fn all(kind: Kind) -> impl Iterator<Item = Layout> + Clone {
        kind.official().layouts.iter().map(move |files| Layout { kind, files })
    }

    /// The layout whose files are downloaded one by one, if there is one.
    pub fn in_pieces(kind: Kind) -> Option<Layout> {
        Layout::all(kind).find(|layout| !layout.files.single.is_empty())
    }

    /// Where its files may lie, in a folder that holds theirs. The first is where they are put.
    pub fn folders(self) -> Vec<String> {
        match self.files.format {
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
        self.files.folder
    }

    /// The official archive of all files.
    pub fn archive(self) -> Option<Download> {
        self.files.archive
    }

    /// The most bytes that a batch file of `images` images may have. Binary files have exactly that many.
    pub fn file_bytes(self, images: usize) -> u64 {
        let record = match self.files.format {
            Format::Binary => binary::record_bytes(self.kind),
            // Labels, file names and the pickle's own bytes take about 40 bytes an image.
            _ => IMAGE_BYTES + 512,
        };
        (images * record) as u64
    }

    /// Whether a file of this layout lies in `dir`. Its content is not checked.
    pub fn is_in(self, dir: &Path) -> bool {
        match self.files.format {
            Format::Idx => return idx::is_in(dir),
            Format::Npz => return dir.join(NPZ).is_file(),
            Format::Binary | Format::Python => {}
        }
        self.files.batches.iter().any(|(name, _)| dir.join(name).is_file())
    }

    /// Reads and checks every file in `dir`.
    pub fn read(self, dir: &Path) -> Result<Dataset> {
        let [train, test] = match self.files.format {
            Format::Idx => idx::read(self.kind, dir)?,
            Format::Npz => npz::read(self.kind, &dir.join(NPZ))?,
            Format::Binary | Format::Python => self.read_batches(dir)?,
        };
        let mut data = Dataset::new(self.kind.name(), train, test, class_names(self.kind).iter().copied())?;
        data.coarse_classes = coarse_class_names(self.kind).iter().map(|&name| name.into()).collect();
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
        for other in Kind::ALL.into_iter().filter(|&other| other != self.kind) {
            let begins = other.official().begins;
            if !begins.is_empty()
                && train.shape() == other.shape()
                && train.labels.iter().take(begins.len()).eq(begins)
            {
                let reason = format!("the files in this folder are those of {other}, not of {}", self.kind);
                return Err(Error::Array { path: dir.to_owned(), reason });
            }
        }
        Ok(())
    }

    fn read_batches(self, dir: &Path) -> Result<[Split; 2]> {
        let (test, train) = self.files.batches.split_last().expect("every layout of batches lists its files");
        Ok([self.read_split(dir, train)?, self.read_split(dir, std::slice::from_ref(test))?])
    }

    fn read_split(self, dir: &Path, files: &[(&str, usize)]) -> Result<Split> {
        let total = files.iter().map(|&(_, images)| images).sum::<usize>();
        let mut records = Records::with_capacity(self.kind, total);
        for &(name, images) in files {
            let path = dir.join(name);
            match self.files.format {
                Format::Binary => binary::read(&path, images, &mut records)?,
                _ => python::read(&path, images, self.file_bytes(images), &mut records)?,
            }
        }
        records.into_split()
    }
}
