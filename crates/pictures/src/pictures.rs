//! Pictures of class folders as a data set.

use std::path::{Path, PathBuf};

use towers_dataset::{CHANNELS, Dataset, Limit, Resize, check_shape, evenly};

use crate::decode::{self, Decoder, Free};
use crate::error::{Error, Result};
use crate::listing::{Others, Picture};
use crate::progress::{Listener, Progress};
use crate::source::Source;
use crate::split_decoder::SplitDecoder;
use crate::table::Table;

/// The height and width that pictures are scaled to unless told otherwise: those of CIFAR.
const SIDE: usize = 32;

/// Reads a folder of class folders: PNG, JPEG, WebP, BMP and GIF files of any size, scaled to 32x32, or to [another size](Pictures::image_size).
///
/// ```text
/// DIR/train/cat/001.png  DIR/test/cat/001.png       or, without a test set,       DIR/cat/001.png
/// DIR/train/dog/001.jpg  DIR/test/dog/001.jpg                                     DIR/dog/001.jpg
/// ```
///
/// A folder `val` is the test split as well as `test` is; beside `test` it is [`Dataset::validation`].
/// Without either, every sixth picture of a class, by file name, goes to the test split. A class of two to
/// five pictures gives its last one. Classes are the folders' names, sorted. Pictures have the order of class
/// and file name.
///
/// The splits may have other usual names, in capitals or not: `training`, `training_set`, `train_set`,
/// `seg_train`, `trainset`; `valid`, `validation`, `dev`, `eval`; `testing`, `test_set`, `seg_test`. A folder
/// that holds one other folder is replaced by that folder, as in `pets/archive/cat` and
/// `seg_train/seg_train/cat`. Folders that look like splits but are none are an error, since their names
/// would become classes.
///
/// Pictures are turned by their EXIF orientation and stretched to that size with a triangle filter: bilinear,
/// or an average where a picture becomes smaller. Colours are converted to RGB, and transparency is dropped. Of
/// 16 bits the upper 8 count, and of an animation the first frame. Pictures in folders inside of a class
/// folder belong to it. [`Found`](crate::Found) tells which files are pictures, and [`Pictures::progress`] how many others
/// are skipped.
///
/// # Errors
/// [`Error::ClassFolders`] if the folder has another structure. [`Error::Splits`] for folders that look like
/// splits. [`Error::Image`] for a picture that can't be decoded, or that would take absurdly much memory;
/// [`Error::Pictures`] for several. [`Error::Data`] for a size that no picture can be scaled to.
/// [`Error::Memory`] if the pictures need more than [is free](Pictures::free_memory). [`Error::File`].
///
/// ```no_run
/// let pets = towers_pictures::read("pets")?;
/// println!("{:?}: {} + {} pictures", pets.classes, pets.train.len(), pets.test.len());
/// # Ok::<(), towers_pictures::Error>(())
/// ```
pub fn read(dir: impl AsRef<Path>) -> Result<Dataset> {
    Pictures::class_folders(dir.as_ref()).read()
}

/// As [`read`], with options.
///
/// ```no_run
/// let some = towers_pictures::Pictures::class_folders("pets").image_size(64, 48).limit_train(1000).read()?;
/// assert_eq!(some.train.images.dim(), (1000, 64, 48, 3));
/// # Ok::<(), towers_pictures::Error>(())
/// ```
pub struct Pictures<'a> {
    source: Source,
    shape: [usize; 3],
    resize: Resize,
    limit_train: Limit,
    limit_test: Limit,
    in_memory: u64,
    whole: bool,
    skip_unreadable: bool,
    free: Free,
    listener: Box<Listener<'a>>,
}

impl<'a> Pictures<'a> {
    /// All pictures of the folder `dir`, which holds a folder for each class.
    pub fn class_folders(dir: impl Into<PathBuf>) -> Self {
        Self::of(Source::ClassFolders(dir.into()))
    }

    /// All pictures of folders in any places, each with class folders: one to train on, and those to validate and to test on. The
    /// classes are those of the first one. Without the others, pictures are held back from training.
    ///
    /// ```no_run
    /// use towers_pictures::Pictures;
    ///
    /// let pets = Pictures::split_folders("pets/train", Some("more/val"), None::<&str>).image_size(64, 64).read()?;
    /// # Ok::<(), towers_pictures::Error>(())
    /// ```
    pub fn split_folders(
        train: impl Into<PathBuf>,
        validation: Option<impl Into<PathBuf>>,
        test: Option<impl Into<PathBuf>>,
    ) -> Self {
        let (validation, test) = (validation.map(Into::into), test.map(Into::into));
        Self::of(Source::SplitFolders { train: train.into(), validation, test })
    }

    /// All pictures that a table lists.
    pub fn table(table: Table) -> Self {
        Self::of(Source::Table(table))
    }

    fn of(source: Source) -> Self {
        let listener = Box::new(|_: Progress<'_>| {});
        let limit = Limit::ALL;
        Pictures {
            source,
            shape: [SIDE, SIDE, CHANNELS],
            resize: Resize::Stretch,
            limit_train: limit,
            limit_test: limit,
            in_memory: u64::MAX,
            whole: false,
            skip_unreadable: false,
            free: || None,
            listener,
        }
    }

    /// How pictures get their rows and columns; by default they are stretched.
    pub fn resize(self, resize: Resize) -> Self {
        Pictures { resize, ..self }
    }

    /// The rows and columns that every picture gets, as Keras' `image_dataset_from_directory(image_size=(height, width))`.
    pub fn image_size(self, height: usize, width: usize) -> Self {
        let [_, _, channels] = self.shape;
        Pictures { shape: [height, width, channels], ..self }
    }

    /// The channels of every picture: 3 for red, green and blue, as by default, or 1 for grey. Grey is as in Pillow's `convert("L")`,
    /// and so as in Keras' `color_mode="grayscale"`.
    pub fn channels(self, channels: usize) -> Self {
        let [height, width, _] = self.shape;
        Pictures { shape: [height, width, channels], ..self }
    }

    /// At most so many pictures of the training split, [as many of each class](towers_dataset::evenly) as can be. The others are not decoded.
    pub fn limit_train(self, limit: impl Into<Limit>) -> Self {
        Pictures { limit_train: limit.into(), ..self }
    }

    /// At most so many pictures of the test split, and of the validation split where there is one.
    pub fn limit_test(self, limit: impl Into<Limit>) -> Self {
        Pictures { limit_test: limit.into(), ..self }
    }

    /// Decodes pictures on demand if the pixels of all would take more than so many bytes: the splits have
    /// [files](crate::Split::files) then, and not images. By default all are decoded now.
    pub fn on_demand_above(self, bytes: u64) -> Self {
        Pictures { in_memory: bytes, ..self }
    }

    /// Whether the folder is for measuring alone: without a folder to test or validate on, all pictures are
    /// in the test split. One class is enough, and one picture of it.
    pub fn whole(self, whole: bool) -> Self {
        Pictures { whole, ..self }
    }

    /// Whether pictures that can't be decoded are left out, and listed in [`Dataset::unreadable`], instead of
    /// being an error. Pictures that are decoded on demand are decoded once to find them.
    pub fn skip_unreadable(self, skip: bool) -> Self {
        Pictures { skip_unreadable: skip, ..self }
    }

    /// A function that tells how many bytes of memory are free, or `None`. Pictures that would take more are refused, and large
    /// ones are decoded as [`Decoder::free_memory`] says. By default nothing is known.
    pub fn free_memory(self, free: fn() -> Option<u64>) -> Self {
        Pictures { free, ..self }
    }

    /// A function that is called for [files that are left out](Progress::PassedOver) and for the progress of
    /// [decoding](Progress::Decoding).
    pub fn progress(self, listener: impl FnMut(Progress<'_>) + 'a) -> Self {
        Pictures { listener: Box::new(listener), ..self }
    }

    /// Reads them.
    ///
    /// # Errors
    /// As [`read`].
    pub fn read(mut self) -> Result<Dataset> {
        let listing = self.source.list(self.whole)?;
        self.tell(&listing.others);
        let train = limited(&listing.train, self.limit_train);
        let validation = listing.validation.as_ref().map(|pictures| limited(pictures, self.limit_test));
        let test = limited(&listing.test, self.limit_test);
        let total = train.len() + validation.as_ref().map_or(0, Vec::len) + test.len();
        let bytes = self.bytes(total)?;
        let on_demand = bytes > self.in_memory;
        if on_demand {
            (self.listener)(Progress::OnDemand { pictures: total, bytes });
        } else {
            self.check_memory(total, (self.free)())?;
        }
        let (skip, listener) = (self.skip_unreadable, &mut *self.listener);
        let decoder = Decoder::new(self.shape)?.resize(self.resize).free_memory(self.free);
        let multi_hot = listing.multi_label.then_some(listing.classes.len());
        let mut decoder =
            SplitDecoder { decoder, skip, multi_hot, done: 0, total, bad: Vec::new(), listener };
        let mut split = |pictures: Vec<Picture>| decoder.split(pictures, on_demand);
        let (train, validation, test) =
            (split(train)?, validation.map(&mut split).transpose()?, split(test)?);
        let bad = decoder.bad;
        let unreadable: Vec<_> = bad.iter().filter(|_| skip).map(Error::of_picture).collect();
        if let Some((path, reason)) = unreadable.first() {
            let first = path.strip_prefix(self.source.dir()).unwrap_or(path);
            (self.listener)(Progress::Unreadable { pictures: unreadable.len(), first, reason });
        } else {
            decode::refuse(bad)?;
        }
        if let Some(class) = train.class_counts(listing.classes.len()).iter().position(|&count| count == 0)
            && skip
            && !listing.multi_label
            && self.limit_train == Limit::ALL
        {
            return Err(self.source.refused(&listing.classes[class], "none of its pictures can be decoded"));
        }
        let mut data = Dataset::new(self.source.name(), train, test, listing.classes)?;
        (data.validation, data.validation_from) = (validation, Some(listing.validation_from));
        data.unreadable = unreadable;
        Ok(data)
    }

    /// Reports the files that belong to no class.
    fn tell(&mut self, others: &Others) {
        let within = |path: &PathBuf| path.strip_prefix(self.source.dir()).unwrap_or(path).to_owned();
        let Others { table, told, lists, unlisted, files, unlabelled } = others;
        for note in told {
            let file = table.as_deref().unwrap_or(Path::new(""));
            (self.listener)(Progress::Table { file, note });
        }
        if let Some((label, separator)) = lists {
            (self.listener)(Progress::Lists { label, separator: *separator });
        }
        if let Some(first) = unlisted.first().map(within) {
            (self.listener)(Progress::Unlisted { pictures: unlisted.len(), first: &first });
        }
        if let Some(first) = files.first().map(within) {
            (self.listener)(Progress::PassedOver { files: files.len(), first: &first });
        }
        if let Some(first) = unlabelled.first().map(within) {
            (self.listener)(Progress::Unlabelled { pictures: unlabelled.len(), first: &first });
        }
    }

    /// The bytes of the pixels of so many pictures.
    fn bytes(&self, pictures: usize) -> Result<u64> {
        check_shape(self.shape)?;
        let bytes = self.shape.into_iter().try_fold(pictures, usize::checked_mul);
        Ok(bytes.map_or(u64::MAX, |bytes| bytes as u64))
    }

    /// Refuses so many pictures if they would take more than the `free` bytes, before any of them is decoded.
    fn check_memory(&self, pictures: usize, free: Option<u64>) -> Result<()> {
        let ([height, width, _], needed) = (self.shape, self.bytes(pictures)?);
        match free.filter(|&free| free < needed) {
            Some(free) => Err(Error::Memory {
                path: self.source.dir().to_owned(),
                pictures,
                size: format!("{height}x{width}"),
                needed,
                free,
            }),
            None => Ok(()),
        }
    }
}

fn limited(pictures: &[Picture], limit: Limit) -> Vec<Picture> {
    let labels: Vec<u16> = pictures.iter().map(|picture| picture.label).collect();
    evenly(&labels, limit.of(labels.len())).into_iter().map(|place| pictures[place].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_pictures_than_memory_are_refused() {
        let folders = Pictures::class_folders("pets").image_size(1024, 512);
        let bytes = 1024 * 512 * 3;
        assert!(folders.check_memory(1000, Some(1000 * bytes)).is_ok());
        assert!(folders.check_memory(usize::MAX, None).is_ok());
        let error = folders.check_memory(1000, Some(1000 * bytes - 1)).unwrap_err().to_string();
        let says = "pets: 1000 pictures of 1024x512 take 1.6 GB, but 1.6 GB of memory are free; choose a smaller image size";
        assert!(error.starts_with(says), "{error}");
        let error = folders.check_memory(usize::MAX, Some(1 << 40)).unwrap_err().to_string();
        assert!(error.contains("but 1099.5 GB of memory are free"), "{error}");
    }

    #[test]
    fn a_picture_has_pixels() {
        for [height, width] in [[0, 8], [8, 0], [8, u32::MAX as usize], [usize::MAX, 8]] {
            let error =
                Pictures::class_folders("pets").image_size(height, width).check_memory(1, None).unwrap_err();
            assert!(error.to_string().contains("can't be scaled to"), "{error}");
            let error = crate::picture("cat.png", [height, width, 3]).unwrap_err();
            assert!(error.to_string().contains("can't be scaled to"));
        }
        for channels in [0, 2, 4] {
            let error = Pictures::class_folders("pets").channels(channels).check_memory(1, None).unwrap_err();
            assert!(error.to_string().ends_with("1 for grey, or 3 for red, green and blue"), "{error}");
        }
    }
}
