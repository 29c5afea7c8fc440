use crate::task::check_labels;
use crate::{Classifier, ColorMode, Error, ImageSize, Prediction, Result, classify_batches};
use std::slice;
use towers_dataset::ndarray::Array2;
use towers_dataset::{Dataset, Split, ValidationFrom};
use towers_metrics::{Tally, Values};

/// How well a classifier does on labelled pictures.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Evaluation {
    /// How many pictures.
    pub samples: usize,
    /// The mean cross-entropy, over the classes too where a picture has any number of them.
    pub loss: f64,
    /// The share that was classified correctly: of the pictures, or of the answers for all their classes.
    pub acc: f64,
    /// All [metrics](towers_metrics::names) that are defined for so many classes.
    pub metrics: Values,
    /// How often a picture of the row's class was taken for the column's; empty where a picture has any number of classes.
    pub confusion: Vec<Vec<u64>>,
    /// For each class, where a picture has any number of them: how many pictures have the class, how many were taken for it, and
    /// how many of these have it. Else empty.
    pub class_counts: Vec<[u64; 3]>,
    /// The pictures that were taken for something else, the surest mistake first.
    pub mistakes: Vec<Mistake>,
}

/// A picture that was taken for something else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mistake {
    /// Its place among all.
    pub sample: usize,
    /// What it shows.
    pub label: usize,
    /// What it was taken for.
    pub taken_for: usize,
    /// The probability of that.
    pub probability: f32,
}

impl Evaluation {
    /// The share of each class that was classified correctly; NaN for a class without pictures.
    pub fn class_accuracy(&self) -> Vec<f64> {
        let share = |(k, row): (usize, &Vec<u64>)| row[k] as f64 / row.iter().sum::<u64>() as f64;
        self.confusion.iter().enumerate().map(share).collect()
    }
}

/// How well one class is told from the others.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClassScores {
    /// The number of pictures of the class.
    pub samples: u64,
    /// The share of the pictures that were taken for the class, and show it; NaN if there are none.
    pub precision: f64,
    /// The share of the class's pictures that were classified correctly; NaN if there are none.
    pub recall: f64,
    /// The harmonic mean of both; NaN if there is no picture of either kind.
    pub f1: f64,
}

impl Evaluation {
    /// Precision, recall and F1 score of each class.
    ///
    /// ```
    /// let mut evaluation = towers_trained::Evaluation::default();
    /// evaluation.confusion = vec![vec![3, 1], vec![2, 4]];
    /// let scores = evaluation.class_scores();
    /// assert_eq!((scores[0].precision, scores[0].recall, scores[0].f1), (0.6, 0.75, 2.0 / 3.0));
    /// ```
    pub fn class_scores(&self) -> Vec<ClassScores> {
        let of_confusion = |(k, row): (usize, &Vec<u64>)| {
            [row.iter().sum::<u64>(), self.confusion.iter().map(|row| row[k]).sum(), row[k]]
        };
        let of_confusion = self.confusion.iter().enumerate().map(of_confusion);
        let scores = |[samples, taken, right]: [u64; 3]| ClassScores {
            samples,
            precision: right as f64 / taken as f64,
            recall: right as f64 / samples as f64,
            f1: 2.0 * right as f64 / (samples + taken) as f64,
        };
        of_confusion.chain(self.class_counts.iter().copied()).map(scores).collect()
    }
}

/// The images that [`evaluate`] measures on, in words. `all` is the number of those that the data set has, of which `data` has the
/// first; `None` if that is not known, since of class folders so many were read of each class.
///
/// ```
/// let data = towers_cifar::synthetic(1, 20, 10);
/// assert_eq!(towers_trained::measured_on(&data, Some(10)), "the 10 test images of synthetic");
/// assert_eq!(towers_trained::measured_on(&data, Some(3000)), "the first 10 of 3,000 test images of synthetic");
/// assert_eq!(towers_trained::measured_on(&data, None), "10 test images of synthetic, of all classes alike");
/// ```
///
/// A folder that is [measured as a whole](towers_dataset::ValidationFrom::Whole) is named as such.
pub fn measured_on(data: &Dataset, all: Option<usize>) -> String {
    let (samples, kind, name) = (thousands(data.test.len()), split_name(data), &data.name);
    match all {
        Some(all) if data.test.len() == all && data.validation_from == Some(ValidationFrom::Whole) => {
            let images = if all == 1 { "the only image".to_owned() } else { format!("all {samples} images") };
            format!("{images} of {name}, other data than those of the training")
        }
        Some(all) if data.test.len() == all => format!("the {samples} {kind} images of {name}"),
        Some(all) => format!("the first {samples} of {} {kind} images of {name}", thousands(all)),
        None => format!("{samples} {kind} images of {name}, of all classes alike"),
    }
}

/// A number with commas between its thousands: `10,000`.
///
/// ```
/// assert_eq!([7, 999, 1000, 1_234_567].map(towers_trained::thousands), ["7", "999", "1,000", "1,234,567"]);
/// ```
pub fn thousands(number: usize) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", thousands(number / 1000), number % 1000),
    }
}

/// `test`, or `validation` where there are no other images to test on.
///
/// ```
/// assert_eq!(towers_trained::split_name(&towers_cifar::synthetic(1, 20, 10)), "test");
/// ```
pub fn split_name(data: &Dataset) -> &'static str {
    if data.tests_on_validation() { "validation" } else { "test" }
}

/// Evaluates a classifier on all test pictures of `data`; `each` gets the number of each picture and its prediction, in their order.
///
/// Classes are the same if their names are, in any order; the data may have only some of the classifier's.
/// Where the names of its classes are not [known](Classifier::named), labels are taken as they are.
///
/// # Errors
/// [`Error::Option`] if the data have a class that the classifier doesn't know or pictures of another size, or there are none.
pub fn evaluate(
    classifier: &mut Classifier,
    data: &Dataset,
    each: impl FnMut(usize, &Prediction),
) -> Result<Evaluation> {
    evaluate_on(slice::from_mut(classifier), data, each)
}

/// As [`evaluate`], on all replicas of a network at once: [the same bits](crate::classify_batches) in less time.
///
/// # Errors
/// As [`evaluate`], and [`Error::Option`] without replicas.
pub fn evaluate_on(
    replicas: &mut [Classifier],
    data: &Dataset,
    mut each: impl FnMut(usize, &Prediction),
) -> Result<Evaluation> {
    let split = &data.test;
    let Some(classifier) = replicas.first_mut() else { return Err(none("the number of replicas")) };
    let classes = classifier.classes.len();
    let places = check(classifier, data)?;
    if let Some(rows) = &split.multi_hot {
        return evaluate_multi_label(replicas, split, rows, &places, each);
    }
    let mut confusion = vec![vec![0; classes]; classes];
    let mut tally = Tally::all(classes);
    let (mut loss, mut done, mut mistakes, mut scores) = (0.0, 0, Vec::new(), Vec::new());
    classify_all(replicas, split, |prediction| {
        each(done, prediction);
        let label = places[usize::from(split.labels[done])];
        loss -= prediction.log_probabilities[label];
        let (taken_for, probability) = prediction.ranked()[0];
        confusion[label][taken_for] += 1;
        scores.clear();
        scores.extend(prediction.log_probabilities.iter().map(|&score| score as f32));
        tally.add(&scores, label);
        if taken_for != label {
            mistakes.push(Mistake { sample: done, label, taken_for, probability });
        }
        done += 1;
    })?;
    let correct: u64 = confusion.iter().enumerate().map(|(k, row)| row[k]).sum();
    mistakes.sort_by(|a, b| b.probability.total_cmp(&a.probability).then(a.sample.cmp(&b.sample)));
    let samples = split.len();
    let (loss, acc) = (loss / samples as f64, correct as f64 / samples as f64);
    let class_counts = Vec::new();
    Ok(Evaluation { samples, loss, acc, metrics: tally.values(), confusion, class_counts, mistakes })
}

/// As [`evaluate_on`], of pictures with any number of classes: `rows` is multi-hot.
fn evaluate_multi_label(
    replicas: &mut [Classifier],
    split: &Split,
    rows: &Array2<u8>,
    places: &[usize],
    mut each: impl FnMut(usize, &Prediction),
) -> Result<Evaluation> {
    let classes = replicas.first().map_or(0, |classifier| classifier.classes.len());
    let (mut tally, mut class_counts) = (Tally::all_multi_label(classes), vec![[0; 3]; classes]);
    let (mut loss, mut right, mut done) = (0.0, 0_u64, 0);
    let (mut has, mut scores) = (Vec::new(), Vec::new());
    classify_all(replicas, split, |prediction| {
        each(done, prediction);
        has.clear();
        has.resize(classes, false);
        rows.row(done).iter().zip(places).for_each(|(&own, &place)| has[place] |= own == 1);
        scores.clear();
        let logs = prediction.log_probabilities.iter().zip(&prediction.log_absences);
        for (((log, absence), &has), counts) in logs.zip(&has).zip(&mut class_counts) {
            loss -= if has { log } else { absence };
            scores.push((log - absence) as f32);
            let taken = log > absence;
            right += u64::from(taken == has);
            let own = [has, taken, taken && has];
            counts.iter_mut().zip(own).for_each(|(count, own)| *count += u64::from(own));
        }
        tally.add_multi_label(&scores, |class| has[class]);
        done += 1;
    })?;
    let (samples, answers) = (split.len(), (split.len() * classes) as f64);
    let (loss, acc, metrics) = (loss / answers, right as f64 / answers, tally.values());
    Ok(Evaluation { samples, loss, acc, metrics, confusion: Vec::new(), class_counts, mistakes: Vec::new() })
}

/// Classifies all pictures of a split; `see` gets their predictions in order.
fn classify_all(replicas: &mut [Classifier], split: &Split, mut see: impl FnMut(&Prediction)) -> Result<()> {
    let batch = replicas.first_mut().map_or(1, |classifier| classifier.network_mut().max_batch());
    let read = |k: usize| {
        let (start, mut buffer) = (k * batch, Vec::new());
        let pixels = split.pixels(start..(start + batch).min(split.len()), &mut buffer)?;
        Ok(((), pixels.to_vec()))
    };
    classify_batches(replicas, split.len().div_ceil(batch), read, |(), predictions| {
        predictions.iter().for_each(&mut see);
        Ok::<_, Error>(true)
    })
}

/// Refuses data that the classifier isn't for. Returns its label for each label of the data.
fn check(classifier: &Classifier, data: &Dataset) -> Result<Vec<usize>> {
    let split = &data.test;
    ColorMode::check(split.shape()[2], "the network", classifier.image()[2])?;
    let [given, taken] = [ImageSize::of(split.shape()), classifier.image_size()];
    if given != taken {
        let accepted = format!("of {taken} images, as the network takes them");
        return Err(Error::option("data.dataset", format!("of {given} images"), accepted));
    }
    check_labels(split)?;
    let kinds = ["one label a picture", "several labels a picture"];
    if split.multi_hot.is_some() != classifier.is_multi_label() {
        let [given, taken] = [split.multi_hot.is_some(), classifier.is_multi_label()];
        let [given, taken] = [given, taken].map(|several| kinds[usize::from(several)]);
        let accepted = format!("of {taken}, as the network was trained");
        return Err(Error::option("data.dataset", format!("of {given}"), accepted));
    }
    let places = places(classifier, data)?;
    if let Some(&label) = split.labels.iter().find(|&&label| usize::from(label) >= places.len()) {
        let accepted = format!("below {}, the number of classes", places.len());
        return Err(Error::about("a label of the data", label, accepted));
    }
    if split.is_empty() { Err(none("the number of test samples")) } else { Ok(places) }
}

fn none(what: &'static str) -> Error {
    Error::about(what, 0, "at least 1")
}

/// The classifier's label for each label of the data: that of the class with the same name.
fn places(classifier: &Classifier, data: &Dataset) -> Result<Vec<usize>> {
    let known = &classifier.classes;
    if !classifier.named && data.classes.len() != known.len() {
        let accepted =
            format!("data with {}, since the model's file has no names for its classes", known.len());
        return Err(Error::option(
            "data.dataset",
            format!("{} with {} classes", data.name, data.classes.len()),
            accepted,
        ));
    }
    if !classifier.named || data.classes == *known {
        return Ok((0..known.len()).collect());
    }
    let place = |class: &String| known.iter().position(|known| known == class);
    let unknown: Vec<&String> = data.classes.iter().filter(|class| place(class).is_none()).collect();
    if unknown.is_empty() {
        return Ok(data.classes.iter().filter_map(place).collect());
    }
    let kind = if unknown.len() == 1 { "class" } else { "classes" };
    let value = format!("{} with the unknown {kind} {}", data.name, listed(&unknown));
    let accepted = format!("data with the model's classes or some of them: {}", listed(known));
    Err(Error::option("data.dataset", value, accepted))
}

/// Names in a sentence: at most twenty of them, and the number of the others.
///
/// ```
/// assert_eq!(towers_trained::listed(&["cat", "dog"]), "cat, dog");
/// assert!(towers_trained::listed(&["x"; 30]).ends_with("x, x and 10 more"));
/// ```
pub fn listed(names: &[impl AsRef<str>]) -> String {
    const MOST: usize = 20;
    let first: Vec<&str> = names.iter().take(MOST).map(AsRef::as_ref).collect();
    let more = names.len() - first.len();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    first.join(", ") + &rest
}
