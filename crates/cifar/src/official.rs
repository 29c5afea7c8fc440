//! The description of an official data set.

/// The height, width and channels of its images, its classes and its files.
#[derive(Debug)]
pub(crate) struct Official {
    /// In file names and on command lines.
    pub name: &'static str,
    /// As its authors write it.
    pub title: &'static str,
    pub shape: [usize; 3],
    /// The images to train and to test on.
    pub images: [usize; 2],
    /// In the order of the labels.
    pub classes: &'static [&'static str],
    /// In the order of the coarse labels; none if it has none.
    pub coarse: &'static [&'static str],
    /// The first labels to train on, of sets whose files look like those of another set.
    pub begins: &'static [u16],
    /// The quicker one to read first.
    pub layouts: &'static [Files],
    /// The folders of hosts that have the official files byte for byte, in the order they are tried.
    #[cfg_attr(not(feature = "download"), expect(dead_code))]
    pub hosts: &'static [&'static str],
    /// The files to get by hand, in words.
    pub wanted: &'static str,
    /// What an address to download from leads to, in words.
    pub at_address: &'static str,
}

/// How files are written.
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

/// A file to download: its name, its MD5 in hexadecimal, and its size in bytes.
pub(crate) type Download = (&'static str, &'static str, u64);

/// The files of a data set in one of its formats.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Files {
    pub format: Format,
    /// The name of the folder, in the archive and on disk.
    pub folder: &'static str,
    /// The official archive of all files.
    pub archive: Option<Download>,
    /// Files that are downloaded one by one.
    pub single: &'static [Download],
    /// Batch files, each with the number of its images. The last one is the test split.
    pub batches: &'static [(&'static str, usize)],
    /// Files that we don't read but keep, for the other programs that do.
    pub extras: &'static [&'static str],
}

impl Files {
    /// Without any file.
    pub const fn new(format: Format, folder: &'static str) -> Files {
        Files { format, folder, archive: None, single: &[], batches: &[], extras: &[] }
    }
}
