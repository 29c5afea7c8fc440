use crate::calibration::Calibration;
use crate::ranking::Ranking;
use crate::{Error, Result, augmented, pictures, settings};
use image::{RgbImage, RgbaImage};
use std::path::Path;
use towers_callbacks::EpochRecord;
use towers_callbacks::read_history;
use towers_config::Training;
use towers_dataset::{Dataset, Split};
use towers_plot::short;
use towers_trained::{Classifier, Evaluation, Mistake, evaluate, measured_on, split_name, thousands};

/// More mistakes than these tell little more.
const MISTAKES: usize = 24;

/// The epochs whose augmented images are shown.
const EPOCHS: usize = 2;

/// What a report shows of one run.
pub struct RunReport {
    pub(crate) name: String,
    pub(crate) history: Vec<EpochRecord>,
    /// `config.json`, key by key.
    pub(crate) config: Vec<(String, String)>,
    /// `environment.json`, key by key.
    pub(crate) environment: Vec<(String, String)>,
    /// When and how the run was started, and the size of its network.
    pub(crate) about: Vec<(String, String)>,
    pub(crate) test: std::result::Result<Tested, String>,
    /// Training images before and after the augmentation.
    pub(crate) augmented: Option<RgbaImage>,
}

/// How a run's network did on test images.
pub(crate) struct Tested {
    /// The images, see [`measured_on`].
    pub(crate) images: String,
    /// Whether they are `test` images or those for `validation`.
    pub(crate) split: &'static str,
    pub(crate) classes: Vec<String>,
    pub(crate) evaluation: Evaluation,
    /// The mistakes with the highest probability.
    pub(crate) mistakes: Vec<Shown>,
    /// The filters of its first layer.
    pub(crate) filters: Vec<RgbImage>,
    pub(crate) calibration: Calibration,
    /// For two classes: the images by their score of the second one.
    pub(crate) ranking: Option<Ranking>,
}

/// The picture of a mistake.
pub(crate) struct Shown {
    pub(crate) picture: RgbImage,
    /// The name of its file.
    pub(crate) file: Option<String>,
    /// Where it looks like the class that it was taken for.
    pub(crate) heat: Option<RgbaImage>,
}

impl RunReport {
    /// The number of training images that [`show_augmentation`](Self::show_augmentation) shows.
    pub const AUGMENTED: usize = 8;

    /// Reads the files of the run directory `run`. The page shows it under `name`.
    ///
    /// # Errors
    /// [`towers_config::Error::Run`] if it is no run directory, [`towers_config::Error::File`] if one of its files can't be read.
    pub fn read(run: &Path, name: impl Into<String>) -> Result<Self> {
        let config = settings::read(&run.join("config.json"))?;
        let Some(config) = config else {
            let reason = "there is no run here; name a run's folder, as in runs/a".to_owned();
            return Err(Error::run(run, reason));
        };
        let mut environment = settings::read(&run.join("environment.json"))?.unwrap_or_default();
        let about = about(&mut environment);
        let test = Err("The network was not tested.".to_owned());
        let (name, history) = (name.into(), read_history(run)?);
        Ok(RunReport { name, history, config, environment, about, test, augmented: None })
    }

    /// Tests the run's network on the test pictures of `data`, the first of `all` that the data set has, as in [`measured_on`].
    ///
    /// # Errors
    /// As [`evaluate`].
    pub fn test(&mut self, classifier: &mut Classifier, data: &Dataset, all: Option<usize>) -> Result<()> {
        let mut predictions = Vec::new();
        let evaluation = evaluate(classifier, data, |_, prediction| {
            let score = match prediction.log_probabilities[..] {
                [first, second] => second - first,
                _ => f64::NAN,
            };
            let (taken_for, confidence) = prediction.ranked()[0];
            predictions.push(Ranked { taken_for, confidence, score });
        })?;
        let (calibration, ranking) = ranked(&predictions, &evaluation);
        let mistakes = shown(classifier, &data.test, &evaluation.mistakes);
        let filters = pictures::filters(classifier)?;
        let (images, split, classes) = (measured_on(data, all), split_name(data), classifier.classes.clone());
        self.test =
            Ok(Tested { images, split, classes, evaluation, mistakes, filters, calibration, ranking });
        Ok(())
    }

    /// Shows the first images of `train` before and after the augmentation of the run's `training` options, if that changes them.
    ///
    /// # Errors
    /// As [`augmented`](towers_config::augmented).
    pub fn show_augmentation(&mut self, training: &Training, train: Split) -> Result<()> {
        let Training { augmentation, seed, .. } = training;
        let columns = towers_config::augmented(augmentation, train, Self::AUGMENTED, EPOCHS, *seed)?;
        let changes = columns.iter().any(|column| column.iter().any(|image| *image != column[0]));
        self.augmented = changes.then(|| augmented::strip(&columns));
        Ok(())
    }

    /// Whether an option, or the table that it is in, differs from the run's recipe.
    pub(crate) fn is_changed(&self, key: &str) -> bool {
        let changed = self.setting("changed");
        let tables = key.match_indices('.').map(|(end, _)| &key[..end]);
        tables.chain([key]).any(|key| changed.contains(&format!("\"{key}\"")))
    }

    /// Has the page say why there are no results on test images.
    pub fn without_test(&mut self, why: impl Into<String>) {
        self.test = Err(why.into());
    }

    /// Whether a key of what a run is about is that of a start.
    pub(crate) fn is_start(key: &str) -> bool {
        key == STARTED || key.starts_with(RESUMED)
    }

    pub(crate) fn setting(&self, key: &str) -> &str {
        self.config.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }
}

/// The pictures of the first of these mistakes.
fn shown(classifier: &mut Classifier, split: &Split, mistakes: &[Mistake]) -> Vec<Shown> {
    let mistakes = &mistakes[..mistakes.len().min(MISTAKES)];
    let read = |mistake: &Mistake| pictures::pixels(split, mistake.sample);
    // A page without some of its pictures is still a page.
    let pixels: Vec<Vec<u8>> = mistakes.iter().map_while(read).collect();
    let taken_for: Vec<usize> = mistakes.iter().map(|mistake| mistake.taken_for).take(pixels.len()).collect();
    let maps = classifier.class_maps(&pixels.concat(), &taken_for).ok().flatten();
    let maps = maps.iter().flat_map(|maps| maps.iter().map(|map| pictures::heat(map, maps.size)));
    let mut maps = maps.chain(std::iter::repeat(None));
    let of_mistake = |(pixels, mistake): (Vec<u8>, &Mistake)| {
        let picture = pictures::of_pixels(pixels, split.shape())?;
        let file = split.path(mistake.sample).map(short_path);
        Some(Shown { picture, file, heat: maps.next().flatten() })
    };
    pixels.into_iter().zip(mistakes).map_while(of_mistake).collect()
}

/// The answer of a network for an image.
struct Ranked {
    taken_for: usize,
    /// The probability of that.
    confidence: f32,
    /// With two classes: the score of the second less that of the first.
    score: f64,
}

/// The predictions of all images by their probability and, of two classes, by their score.
fn ranked(predictions: &[Ranked], evaluation: &Evaluation) -> (Calibration, Option<Ranking>) {
    let mut labels = Vec::from_iter(predictions.iter().map(|prediction| prediction.taken_for));
    evaluation.mistakes.iter().for_each(|mistake| labels[mistake.sample] = mistake.label);
    let mut calibration = Calibration::default();
    for (prediction, label) in predictions.iter().zip(&labels) {
        calibration.add(prediction.confidence.into(), prediction.taken_for == *label);
    }
    let scores =
        || predictions.iter().zip(&labels).map(|(prediction, label)| (prediction.score, *label == 1));
    let ranking = (evaluation.confusion.len() == 2).then(|| Ranking::new(scores().collect()));
    (calibration, ranking.filter(Ranking::is_defined))
}

/// The key of a run's first start among what it is [about](RunReport::about), and how those of later ones begin.
const STARTED: &str = "started";
const RESUMED: &str = "resumed (";

/// The name of a picture with its class folder, as in `cat/001.png`: the folders above are the same for all.
fn short_path(path: &Path) -> String {
    let mut names: Vec<_> = path.iter().rev().take(2).map(|name| name.to_string_lossy()).collect();
    names.reverse();
    names.join("/")
}

/// Moves the starts of the run and the size of its network out of its environment.
fn about(environment: &mut Vec<(String, String)>) -> Vec<(String, String)> {
    let mut take = |key: &str| {
        let place = environment.iter().position(|(name, _)| name == key)?;
        Some(environment.remove(place).1)
    };
    let mut about = Vec::new();
    let starts: Vec<Start> =
        take("starts").and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    for (k, Start { date, command }) in starts.into_iter().enumerate() {
        about.push((
            if k == 0 { STARTED.to_owned() } else { format!("{RESUMED}{k})") },
            format!("{date}: {command}"),
        ));
    }
    if let Some(parameters) = take("parameters").and_then(|text| text.parse().ok()) {
        about.push(("parameters".to_owned(), thousands(parameters)));
    }
    if let Some(flops) = take("flops").and_then(|text| text.parse::<f64>().ok()) {
        let text = format!("{} million in a forward pass, a multiply-add as two", short(flops / 1e6));
        about.push(("FLOPs per image".to_owned(), text));
    }
    about
}

/// A start of a run, in `environment.json`.
#[derive(serde::Deserialize)]
struct Start {
    date: String,
    command: String,
}
