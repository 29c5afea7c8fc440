use super::formats::{self, Request};
use super::progress::Progress;
use crate::{ColorMode, DataFiles, DataLimit, DataSet, Error, ImageSize, Result, When, memory};
use std::path::{Path, PathBuf};
use towers_augment::Samples;
use towers_dataset::{Dataset, Resize, Split};
use towers_options::{Message, hint, message};
use towers_trained::ClassNames;

impl DataSet {
    /// Height, width and channels of the images: those that were asked for, or else the data's own. A folder of class folders has
    /// none; by default they are 32, 32 and 3.
    ///
    /// ```
    /// use towers_config::{ColorMode, DataSet};
    ///
    /// let data = |dataset: &str| DataSet { dataset: dataset.into(), ..DataSet::default() };
    /// assert_eq!((data("mnist").image(), data("pets").image()), ([28, 28, 1], [32, 32, 3]));
    /// let colors = DataSet { color_mode: Some(ColorMode::Rgb), ..data("mnist") };
    /// assert_eq!(colors.image(), [28, 28, 3]);
    /// ```
    pub fn image(&self) -> [usize; 3] {
        let own = self.format().shape();
        let size = self.image_size.unwrap_or(ImageSize::of(own));
        size.shape(self.color_mode.map_or(own[2], ColorMode::channels))
    }

    /// Whether its images are scaled to any size: pictures of folders, and the images of MNIST and Fashion-MNIST.
    pub fn is_scaled(&self) -> bool {
        self.format().is_scaled()
    }

    /// Refuses a size other than 32x32 for CIFAR and synthetic images, and sizes out of range.
    fn check_image_size(&self) -> Result<()> {
        let size = ImageSize::of(self.image());
        size.check()?;
        if size == ImageSize::default() || self.is_scaled() {
            return Ok(());
        }
        let name = &self.dataset;
        let accepted = message!(
            "left out with the data set `{name}`, whose images are 32x32; it is for class folders (",
            ["data.dataset"],
            ") and MNIST"
        );
        Err(Error::option("data.image_size", size, accepted))
    }

    /// Refuses a way of resizing for data that have their size, and a side that is shorter than the images.
    fn check_resize(&self) -> Result<()> {
        let name = &self.dataset;
        let refuse = |accepted: Message| Err(Error::option("data.resize", self.resize.0, accepted));
        let [height, width, _] = self.image();
        match self.resize.0 {
            Resize::Stretch => Ok(()),
            Resize::ShorterSide(_) if !self.format().streams() => refuse(message!(
                "left out with the data set `{name}`; it is for class folders (",
                ["data.dataset"],
                ")"
            )),
            Resize::ShorterSide(Some(side)) if side < height.max(width) => {
                let size = ImageSize { height, width };
                let least = height.max(width);
                refuse(message!("shorter-side:N with at least {least} pixels, for images of {size}"))
            }
            Resize::ShorterSide(_) => Ok(()),
        }
    }
}

/// The folder of the data for programs that are given none: `data/` in the workspace of towers, the user's cache elsewhere.
pub fn default_data_dir() -> PathBuf {
    let workspace = |dir: &Path| dir.join("data").is_dir() && dir.join("crates/cifar").is_dir();
    if let Some(dir) = std::env::current_dir()
        .ok()
        .and_then(|cwd| cwd.ancestors().find(|dir| workspace(dir)).map(Path::to_owned))
    {
        return dir.join("data");
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE")).map(PathBuf::from);
    let cache = cache.or_else(|| Some(home()?.join(".cache")));
    cache.map_or_else(|| PathBuf::from("data"), |cache| cache.join("towers"))
}

/// The data set, cut to its limits: found on this machine, downloaded, or generated.
///
/// `listener` is called for downloads, and for files in class folders that are skipped.
///
/// # Errors
/// [`Error::Data`] with the remedies if it is not available; [`Error::Option`] for what is neither a data set nor a folder or file of a known format.
pub fn load_data(set: &DataSet, files: &DataFiles, listener: impl FnMut(Progress<'_>)) -> Result<Dataset> {
    let data = load(set, files, false, listener)?;
    if data.train.is_empty() {
        return Err(Error::about("the number of training samples", 0, "at least 1"));
    }
    Ok(data)
}

/// As [`load_data`] without training samples: of class folders, only the others are decoded. With `whole`,
/// class folders without a folder to test or validate on are test samples, all of them.
///
/// Also returns the number of test samples of the data set, if it is known: with a limit, not all pictures of a folder are
/// decoded.
///
/// # Errors
/// As [`load_data`].
pub fn load_test_data(
    set: &DataSet,
    files: &DataFiles,
    whole: bool,
    listener: impl FnMut(Progress<'_>),
) -> Result<(Dataset, Option<usize>)> {
    let (set, mut files) = (DataSet { limit_train: Some(DataLimit::NONE), ..set.clone() }, files.clone());
    let limit = if set.is_of_files() { None } else { files.limit_test.take() };
    let mut data = load(&set, &files, whole, listener)?;
    let all = data.test.len();
    if let Some(limit) = limit {
        data.test = data.test.take(limit.of(all));
    }
    Ok((data, files.limit_test.is_none().then_some(all)))
}

/// The first `count` training images of a data set, without its test images; of class folders, as many of each class as can be.
///
/// # Errors
/// As [`load_data`].
pub fn load_training_images(set: &DataSet, files: &DataFiles, count: usize) -> Result<Split> {
    let set = DataSet { limit_train: Some(DataLimit(towers_dataset::Limit::Count(count))), ..set.clone() };
    let files = DataFiles { limit_test: Some(DataLimit::NONE), ..files.clone() };
    Ok(load(&set, &files, false, |_| {})?.train)
}

fn load(
    set: &DataSet,
    files: &DataFiles,
    whole: bool,
    mut listener: impl FnMut(Progress<'_>),
) -> Result<Dataset> {
    set.check_source()?;
    set.check_image_size()?;
    set.check_resize()?;
    if files.stream == When::Always && !set.format().streams() {
        let accepted = format!("auto or never with the data set `{}`, which fits in memory", set.dataset);
        return Err(Error::option("data.stream", "always", accepted));
    }
    let Some(format) = set.found() else {
        let name = set.dataset.as_str();
        if Path::new(name).extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv")) {
            let accepted =
                message!("the folder of the pictures; give a table of labels by ", ["data.labels"]);
            return Err(Error::option("data.dataset", format!("`{name}`"), accepted));
        }
        let found = if Path::new(name).exists() { "has no known format" } else { "does not exist" };
        let (names, hint) = (formats::names().collect::<Vec<_>>().join(", "), hint(name, formats::names()));
        let paths: String = formats::paths().map(|path| format!(", or {path}")).collect();
        let accepted = format!("{names}{paths}{hint}");
        return Err(Error::option("data.dataset", format!("`{name}`, which {found}"), accepted));
    };
    set.check_files()?;
    let mut data = format.read(Request { set, files, whole, listener: &mut listener })?;
    if let Some(file) = &set.class_names {
        ClassNames::read(file)?.apply_to(&mut data)?;
    }
    for (split, limit) in [(&mut data.train, set.limit_train), (&mut data.test, files.limit_test)] {
        // Class folders have applied theirs to all their pictures.
        if let Some(limit) = limit.filter(|_| !format.limits()) {
            *split = split.take(limit.of(split.len()));
        }
    }
    // Images of `idx` files and of named data sets have their own shape, unless another one was asked for.
    let own = data.train.shape();
    let size = set.image_size.unwrap_or(ImageSize::of(own));
    let shape = size.shape(set.color_mode.map_or(own[2], ColorMode::channels));
    let pictures = data.train.len() + data.test.len();
    let needed = shape.iter().product::<usize>().saturating_mul(pictures) as u64;
    match memory::available().filter(|&free| shape != own && free < needed) {
        Some(free) => {
            let (path, size) = (PathBuf::from(set.source().1), size.to_string());
            Err(towers_pictures::Error::Memory { path, pictures, size, needed, free }.into())
        }
        None => Ok(data.reshaped(shape)?),
    }
}

/// The file of a run with the pictures that were left out, since they can't be decoded.
pub const UNREADABLE: &str = "unreadable.txt";

/// Writes [`UNREADABLE`] into a run's folder, with a line for each picture. Without such pictures, only an
/// earlier file is emptied.
///
/// # Errors
/// [`Error::File`] if it can't be written.
pub fn save_unreadable(data: &Dataset, run: &Path) -> Result<()> {
    let file = run.join(UNREADABLE);
    let line = |(path, reason): &(PathBuf, String)| format!("{}: {reason}\n", path.display());
    let lines: String = data.unreadable.iter().map(line).collect();
    if lines.is_empty() && !file.exists() {
        return Ok(());
    }
    Ok(towers_files::write(&file, lines.as_bytes())?)
}

/// The images and labels for a loader.
pub fn samples(split: Split) -> Result<Samples> {
    let labels = split.labels.to_vec();
    let Some(files) = split.files else { return Ok(Samples::new(split.images, labels)?) };
    let (_, height, width, channels) = split.images.dim();
    let read = move |sample, pixels: &mut [u8]| {
        let unread = |error: towers_dataset::Error| towers_augment::Error::Read { reason: error.to_string() };
        files.read(sample, pixels).map_err(unread)
    };
    Ok(Samples::on_demand([height, width, channels], labels, read)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the data's images overrides the options. Sizes that a model file can't hold are refused
    /// before the training.
    #[test]
    fn a_run_is_checked_for_its_images() {
        let mut config = crate::recipe("quick").unwrap();
        config.training.augmentation.cutout = 40;
        let refused = |side| config.checked([side, side, 3], 10).unwrap_err().to_string();
        assert!(config.checked([48, 48, 3], 10).is_ok());
        assert!(refused(32).contains("cutout"), "{}", refused(32));
        for side in [4, 2000] {
            assert!(refused(side).contains("8 to 1024 pixels"), "{}", refused(side));
        }
        assert!(config.check_options([48, 48, 1]).is_ok());
        let refused = config.check_options([48, 48, 4]).unwrap_err().to_string();
        assert!(
            refused.ends_with("channels of the images is 4, but must be 3: red, green and blue, or 1: grey"),
            "{refused}"
        );
    }

    #[test]
    fn pictures_to_train_on_are_not_decoded_for_a_test() {
        let dir = tempfile::tempdir().unwrap();
        for class in ["a", "b"] {
            for split in ["train", "test"] {
                let folder = dir.path().join(split).join(class);
                std::fs::create_dir_all(&folder).unwrap();
                image::RgbImage::new(4, 4).save(folder.join("0.png")).unwrap();
            }
        }
        std::fs::write(dir.path().join("train/b/1.png"), "no picture").unwrap();
        let dataset = dir.path().to_string_lossy().into_owned();
        let set = DataSet { dataset, ..DataSet::default() };
        let files = DataFiles { limit_test: Some(DataLimit(3.into())), ..DataFiles::default() };
        let error = load_data(&set, &files, |_| ()).unwrap_err().to_string();
        assert!(error.contains("1.png"), "{error}");
        let data = load_test_data(&set, &files, false, |_| ()).unwrap().0;
        assert_eq!((data.train.len(), data.test.len(), data.classes.len()), (0, 2, 2));
        let drawn = DataSet { dataset: "synthetic".into(), ..DataSet::default() };
        assert_eq!(load_test_data(&drawn, &files, false, |_| ()).unwrap().0.test.len(), 3);
    }
}
