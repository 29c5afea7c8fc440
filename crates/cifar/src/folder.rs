//! A folder of class folders with pictures as a data set.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use image::imageops::FilterType;
use image::{ImageReader, Limits};

use crate::dataset::{Dataset, IMAGE_BYTES, SIDE, Split};
use crate::error::{Error, Result};
use crate::progress::{Listener, Progress};

/// The widest and highest picture that is decoded.
const MAX_PIXELS_ASIDE: u32 = 16_384;
/// The most memory that decoding one picture may take.
const MAX_DECODED: u64 = 256 << 20;

/// Reads a folder of class folders: PNG and JPEG files of any size, scaled to 32x32.
///
/// ```text
/// DIR/train/cat/001.png  DIR/test/cat/001.png       or, without a test set,       DIR/cat/001.png
/// DIR/train/dog/001.jpg  DIR/test/dog/001.jpg                                     DIR/dog/001.jpg
/// ```
///
/// A folder `val` (or `valid`, `validation`) is the test split as well as `test` is; beside `test` it is
/// [`Dataset::validation`]. Without either, every sixth picture of
/// a class in the order of the file names goes to the test split (a class of two to five pictures gives its
/// last one). Classes are the folders' names, sorted; pictures keep the order of class and file name.
///
/// Pictures are stretched to the square with a triangle filter (bilinear, an average over what is made smaller), colours converted to RGB, transparency dropped. Files with another
/// extension than `.png`, `.jpg` and `.jpeg` and names that begin with a dot are passed over;
/// [`ClassFolders::progress`] hears of the former.
///
/// # Errors
/// [`Error::ClassFolders`] if the folder looks different, [`Error::Image`] with the name of the first picture
/// that can't be decoded (or that would take absurdly much memory), [`Error::Io`].
///
/// ```no_run
/// let pets = cifar::folder::read("pets")?;
/// println!("{:?}: {} + {} pictures", pets.classes, pets.train.len(), pets.test.len());
/// # Ok::<(), cifar::Error>(())
/// ```
pub fn read(dir: impl AsRef<Path>) -> Result<Dataset> {
    ClassFolders::new(dir.as_ref()).read()
}

/// As [`read`], with options.
///
/// ```no_run
/// let some = cifar::folder::ClassFolders::new("pets").limit_train(1000).limit_test(100).read()?;
/// # Ok::<(), cifar::Error>(())
/// ```
pub struct ClassFolders<'a> {
    dir: PathBuf,
    limit_train: usize,
    limit_test: usize,
    listener: Box<Listener<'a>>,
}

impl<'a> ClassFolders<'a> {
    /// All pictures of the folder `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let listener = Box::new(|_: Progress<'_>| {});
        ClassFolders { dir: dir.into(), limit_train: usize::MAX, limit_test: usize::MAX, listener }
    }

    /// At most so many pictures of the training split, [as many of each class](evenly) as can be. The others are not decoded.
    pub fn limit_train(self, limit: usize) -> Self {
        ClassFolders { limit_train: limit, ..self }
    }

    /// At most so many of the test split, likewise, and of the validation split where there is one.
    pub fn limit_test(self, limit: usize) -> Self {
        ClassFolders { limit_test: limit, ..self }
    }

    /// A function that hears of files that are [passed over](Progress::PassedOver).
    pub fn progress(self, listener: impl FnMut(Progress<'_>) + 'a) -> Self {
        ClassFolders { listener: Box::new(listener), ..self }
    }

    /// Reads them.
    ///
    /// # Errors
    /// As [`read`].
    pub fn read(mut self) -> Result<Dataset> {
        let mut others = Vec::new();
        let listed = Listed::of(&self.dir, &mut others)?;
        if let Some(first) = others.first() {
            let first = first.strip_prefix(&self.dir).unwrap_or(first);
            (self.listener)(Progress::PassedOver { files: others.len(), first });
        }
        let some = |pictures: &Vec<Picture>, limit| decode(&limited(pictures, limit));
        let validation = listed.validation.as_ref().map(|pictures| some(pictures, self.limit_test));
        Ok(Dataset {
            name: self.dir.file_name().unwrap_or(self.dir.as_os_str()).to_string_lossy().into_owned(),
            train: some(&listed.train, self.limit_train)?,
            validation: validation.transpose()?,
            test: some(&listed.test, self.limit_test)?,
            classes: listed.classes,
            coarse_classes: Vec::new(),
            validation_from: Some(listed.validation_from),
        })
    }
}

/// The places of `n` samples, from the classes in turn: the first of each, then the second of each, and so on. They are in the
/// order of the set.
///
/// ```
/// use cifar::folder::evenly;
///
/// assert_eq!(evenly(&[0, 0, 0, 0, 1, 1, 2], 5), [0, 1, 4, 5, 6]);
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

fn limited(pictures: &[Picture], limit: usize) -> Vec<Picture> {
    let labels: Vec<u16> = pictures.iter().map(|&(_, label)| label).collect();
    evenly(&labels, limit).into_iter().map(|place| pictures[place].clone()).collect()
}

/// The files of a folder, before any of them is opened.
struct Listed {
    classes: Vec<String>,
    train: Vec<Picture>,
    /// If they are not those of the test split.
    validation: Option<Vec<Picture>>,
    test: Vec<Picture>,
    /// See [`Dataset::validation_from`].
    validation_from: String,
}

impl Listed {
    /// The files that are no pictures are added to `others`.
    fn of(dir: &Path, others: &mut Vec<PathBuf>) -> Result<Listed> {
        let train_dir = split_dir(dir, &["train"]);
        let (classes, train) = pictures(train_dir.as_deref().unwrap_or(dir), others)?;
        let validation_dir = train_dir.as_ref().and_then(|_| split_dir(dir, &["val", "valid", "validation"]));
        let test_dir = train_dir.and_then(|_| split_dir(dir, &["test"]));
        let from = |dir: &Path| format!("from {}/", dir.file_name().unwrap_or_default().display());
        let listed = match (validation_dir, test_dir) {
            (None, None) => {
                let (train, test) = divide(train);
                let validation_from = "held back from training".to_owned();
                Listed { classes, train, validation: None, test, validation_from }
            }
            (Some(both), None) | (None, Some(both)) => {
                let test = pictures_of(&both, &classes, others)?;
                Listed { classes, train, validation: None, test, validation_from: from(&both) }
            }
            (Some(validation_dir), Some(test_dir)) => {
                let validation = Some(pictures_of(&validation_dir, &classes, others)?);
                let test = pictures_of(&test_dir, &classes, others)?;
                Listed { classes, train, validation, test, validation_from: from(&validation_dir) }
            }
        };
        let validation = listed.validation.as_ref().unwrap_or(&listed.test);
        for (split, pictures) in
            [("training", &listed.train), ("test", &listed.test), ("validation", validation)]
        {
            if pictures.is_empty() {
                return Err(shape(dir, format!("it has no picture for the {split} split")));
            }
        }
        Ok(listed)
    }
}

/// The first folder of these names that holds folders. One that doesn't may be a class: trains are pictured too.
fn split_dir(dir: &Path, names: &[&str]) -> Option<PathBuf> {
    let folders = names.iter().map(|name| dir.join(name));
    let holds_folders =
        |path: &PathBuf| entries(path).is_ok_and(|inside| inside.iter().any(|path| path.is_dir()));
    folders.into_iter().find(holds_folders)
}

/// A file and its class.
type Picture = (PathBuf, u16);

fn shape(path: &Path, reason: impl Into<String>) -> Error {
    Error::ClassFolders { path: path.into(), reason: reason.into() }
}

/// The classes in `dir` and their pictures.
fn pictures(dir: &Path, others: &mut Vec<PathBuf>) -> Result<(Vec<String>, Vec<Picture>)> {
    let mut classes = Vec::new();
    for path in entries(dir)?.into_iter().filter(|path| path.is_dir()) {
        match path.file_name().and_then(|name| name.to_str()) {
            Some(name) => classes.push(name.to_owned()),
            None => return Err(shape(&path, "its name is not UTF-8")),
        }
    }
    if classes.len() < 2 {
        return Err(shape(dir, format!("it has {} class folders, at least 2 are needed", classes.len())));
    }
    if classes.len() > usize::from(u16::MAX) {
        return Err(shape(dir, format!("it has {} class folders, more than {}", classes.len(), u16::MAX)));
    }
    let pictures = pictures_of(dir, &classes, others)?;
    let mut counts = vec![0_usize; classes.len()];
    pictures.iter().for_each(|&(_, label)| counts[usize::from(label)] += 1);
    match counts.iter().position(|&count| count == 0) {
        Some(empty) => Err(shape(&dir.join(&classes[empty]), "it has no .png or .jpg file")),
        None => Ok((classes, pictures)),
    }
}

/// The pictures in `dir`, whose class folders must be among `classes`. Other files are added to `others`.
fn pictures_of(dir: &Path, classes: &[String], others: &mut Vec<PathBuf>) -> Result<Vec<Picture>> {
    let mut pictures = Vec::new();
    for folder in entries(dir)?.into_iter().filter(|path| path.is_dir()) {
        let known =
            folder.file_name().and_then(|name| classes.iter().position(|class| name == class.as_str()));
        let Some(label) = known else {
            return Err(shape(&folder, "the training split has no class of this name"));
        };
        let (files, rest): (Vec<_>, Vec<_>) =
            entries(&folder)?.into_iter().partition(|path| is_picture(path));
        pictures.extend(files.into_iter().map(|path| (path, label as u16)));
        others.extend(rest.into_iter().filter(|path| path.is_file()));
    }
    Ok(pictures)
}

/// What is in a folder, sorted by name, but for hidden entries.
fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let listed: std::io::Result<Vec<PathBuf>> =
        fs::read_dir(dir).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths = listed.map_err(Error::io("list", dir))?;
    paths.retain(|path| !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")));
    paths.sort();
    Ok(paths)
}

fn is_picture(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    ["png", "jpg", "jpeg"].iter().any(|known| known.eq_ignore_ascii_case(extension)) && path.is_file()
}

/// The rule of [`read`] for a folder without a test set. `all` is sorted by class.
fn divide(all: Vec<Picture>) -> (Vec<Picture>, Vec<Picture>) {
    let (mut train, mut test) = (Vec::new(), Vec::new());
    for class in all.chunk_by(|a, b| a.1 == b.1) {
        let last_of_few = (2..=5).contains(&class.len()).then(|| class.len() - 1);
        for (k, picture) in class.iter().enumerate() {
            let to = if k % 6 == 5 || Some(k) == last_of_few { &mut test } else { &mut train };
            to.push(picture.clone());
        }
    }
    (train, test)
}

/// Decodes on all cores; the result doesn't depend on their number.
fn decode(pictures: &[Picture]) -> Result<Split> {
    let mut images = vec![0; pictures.len() * IMAGE_BYTES];
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = pictures.len().div_ceil(threads).max(1);
    // The first failure in the order of the pictures, not in time; what comes after it needs no decoding.
    let first_bad = AtomicUsize::new(usize::MAX);
    let failures = thread::scope(|scope| {
        let shares = pictures.chunks(share).zip(images.chunks_mut(share * IMAGE_BYTES)).enumerate();
        let workers = shares.map(|(worker, (pictures, images))| {
            let first_bad = &first_bad;
            scope.spawn(move || {
                for (k, ((path, _), image)) in pictures.iter().zip(images.chunks_mut(IMAGE_BYTES)).enumerate()
                {
                    let index = worker * share + k;
                    if index > first_bad.load(Ordering::Relaxed) {
                        break;
                    }
                    if let Err(error) = decode_one(path, image) {
                        first_bad.fetch_min(index, Ordering::Relaxed);
                        return Err(error);
                    }
                }
                Ok(())
            })
        });
        let workers: Vec<_> = workers.collect();
        workers.into_iter().map(|worker| worker.join()).collect::<Vec<_>>()
    });
    for (failure, share) in failures.into_iter().zip(pictures.chunks(share)) {
        // A decoder that panics has met a file it should have refused.
        failure
            .unwrap_or_else(|_| Err(shape(&share[0].0, "a picture at or after this one can't be decoded")))?;
    }
    Ok(Split::from_parts(images, pictures.iter().map(|&(_, label)| label).collect(), None))
}

/// Reads one picture, PNG or JPEG of any size: 32 rows of 32 RGB pixels, as the pictures of a folder are read.
///
/// # Errors
/// [`Error::Io`] or [`Error::Image`] if it can't be read or decoded, or is too large.
pub fn picture(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    let mut pixels = vec![0; IMAGE_BYTES];
    decode_one(path.as_ref(), &mut pixels)?;
    Ok(pixels)
}

/// Decodes one picture into `to`, IMAGE_BYTES bytes.
fn decode_one(path: &Path, to: &mut [u8]) -> Result<()> {
    let file = fs::File::open(path).map_err(Error::io("open", path))?;
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_PIXELS_ASIDE);
    limits.max_image_height = Some(MAX_PIXELS_ASIDE);
    limits.max_alloc = Some(MAX_DECODED);
    let reader = ImageReader::new(BufReader::new(file)).with_guessed_format();
    let mut reader = reader.map_err(Error::io("read", path))?;
    reader.limits(limits);
    let picture = reader.decode().map_err(|source| Error::Image { path: path.into(), source })?.into_rgb8();
    let side = SIDE as u32;
    let scaled = if picture.dimensions() == (side, side) {
        picture
    } else {
        image::imageops::resize(&picture, side, side, FilterType::Triangle)
    };
    to.copy_from_slice(scaled.as_raw());
    Ok(())
}
