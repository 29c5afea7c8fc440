//! Warnings of runs that go wrong, as soon as that shows: `no_warnings` turns them off.

use std::collections::{HashMap, HashSet};
use std::f64::consts::LN_2;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use towers_callbacks::EpochRecord;
use towers_options::{Message, message};

/// The mean loss after an epoch is far too large if it is so many times that of equal probabilities.
const FAR: f64 = 2.0;
/// The epoch after which a network should know something, and the part of the loss that it should have lost by then.
const LEARNS: usize = 3;
const LOST: f64 = 0.02;
/// So many validated epochs in a row in which the validation loss has risen while the training loss has fallen.
const RISING: usize = 5;
/// So many validated epochs in a row that are no better than guessing, after so many steps: until then the running averages of
/// batch normalization may be far off.
const GUESSING: usize = 5;
const SETTLED: u64 = 500;
/// The accuracy of guessing is exceeded by chance by up to so many standard deviations.
const DEVIATIONS: f64 = 3.0;
/// The share of validation images that may be training images without a warning.
const SHARED: f64 = 0.005;

/// A guess, whose loss is known.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Guess {
    /// That an image has one of so many classes.
    Class(usize),
    /// Whether an image has a class, of any number.
    EachClass,
}

impl Guess {
    /// The loss of a network that gives all answers the same probability.
    fn loss(self) -> f64 {
        match self {
            Guess::Class(classes) => (classes.max(2) as f64).ln(),
            Guess::EachClass => LN_2,
        }
    }
}

impl fmt::Display for Guess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Guess::Class(classes) => write!(f, "guessing among {classes} classes"),
            Guess::EachClass => f.write_str("guessing for each class"),
        }
    }
}

/// The accuracy of guessing, to compare a run with.
pub(crate) struct Labels {
    /// The share of the most frequent class of the validation images: the best accuracy without a look at them.
    share: f64,
    /// The number of validation images.
    images: usize,
    steps_per_epoch: u64,
}

impl Labels {
    /// That of these validation images, each with one label.
    pub(crate) fn new(labels: &[u16], steps_per_epoch: u64) -> Self {
        let mut counts = HashMap::new();
        labels.iter().for_each(|label| *counts.entry(label).or_insert(0) += 1);
        let most = counts.into_values().max().unwrap_or(0);
        Labels { share: f64::from(most) / labels.len().max(1) as f64, images: labels.len(), steps_per_epoch }
    }

    /// Whether an epoch is no better than guessing on the validation images, and much better on the training images.
    fn are_guessed(&self, record: &EpochRecord) -> bool {
        let Some((train, val)) = record.get("acc").zip(record.get("val_acc")) else { return false };
        let deviation = (self.share * (1.0 - self.share) / self.images.max(1) as f64).sqrt();
        let guessed = self.share + DEVIATIONS * deviation;
        let between = f64::midpoint(self.share, train);
        // Too few images tell nothing.
        let is_far = train >= f64::midpoint(self.share, 1.0) && guessed < between;
        is_far && val <= guessed && record.epoch * self.steps_per_epoch >= SETTLED
    }

    /// The warning of labels that belong to other images. Networks that overfit do better than guessing.
    fn warning(&self, history: &[EpochRecord]) -> Option<Message> {
        let last = history.last().filter(|record| record.is_validated())?;
        let validated = history.iter().rev().filter(|record| record.is_validated());
        let in_a_row = validated.take_while(|record| self.are_guessed(record)).count();
        (in_a_row == GUESSING).then(|| {
            let [train, val] = ["acc", "val_acc"].map(|name| 100.0 * last.get(name).unwrap_or(f64::NAN));
            message!(
                "the training accuracy is {train:.1} %, but for {GUESSING} epochs the validation accuracy has been that of \
                 guessing, now {val:.1} %: the labels of the training or validation images may be shuffled, or mean other \
                 classes in one of the sets; look at the images with their labels"
            )
        })
    }
}

/// The warning of the last epoch of a run, if that epoch is the first to show it. There is no `guess` where losses are weighted, so that
/// they can't be compared with it, and there are no `labels` where an image has several.
pub(crate) fn of_epoch(
    history: &[EpochRecord],
    guess: Option<Guess>,
    labels: Option<&Labels>,
) -> Option<Message> {
    let train = Vec::from_iter(history.iter().filter_map(|record| record.get("loss")));
    if let Some(warning) = guess.and_then(|guess| of_losses(&train, guess)) {
        return Some(warning);
    }
    if let Some(warning) = labels.and_then(|labels| labels.warning(history)) {
        return Some(warning);
    }
    let is_validated = history.last().is_some_and(EpochRecord::is_validated);
    let losses = |record: &EpochRecord| Some((record.get("loss")?, record.get("val_loss")?));
    let losses = Vec::from_iter(history.iter().filter_map(losses));
    let rises = |pair: &[(f64, f64)]| pair[1].1 > pair[0].1 && pair[1].0 <= pair[0].0;
    let in_a_row = losses.windows(2).rev().take_while(|pair| rises(pair)).count();
    (is_validated && in_a_row == RISING).then(|| {
        message!(
            "the validation loss has risen for {RISING} epochs while the training loss fell: the network learns the training \
             images by heart; ",
            ["checkpoints.save_best"],
            " keeps the best network, ",
            ["early_stop"],
            " ends such a run"
        )
    })
}

/// The warning of training losses that are those of guessing, or worse.
fn of_losses(train: &[f64], guess: Guess) -> Option<Message> {
    let (even, last) = (guess.loss(), *train.last()?);
    if train.len() == 1 && last > FAR * even {
        return Some(message!(
            "the loss of the first epoch is {last:.2}, far above {even:.2}, that of {guess}; try a \
             lower ",
            ["lr"]
        ));
    }
    (train.len() == LEARNS && train.iter().all(|loss| *loss > (1.0 - LOST) * even)).then(|| {
        message!(
            "after {LEARNS} epochs the loss is {last:.2}, and {guess} has {even:.2}: the network \
             learns nothing; try another ",
            ["lr"],
            ", and look at the images with their labels"
        )
    })
}

/// The images of a set, by their pixels.
#[derive(Default)]
pub(crate) struct Seen {
    images: HashSet<u64>,
    len: usize,
    shared: usize,
}

impl Seen {
    pub(crate) fn new(image_len: usize) -> Self {
        Seen { len: image_len.max(1), ..Seen::default() }
    }

    fn hashes(&self, images: &[u8]) -> Vec<u64> {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        images.chunks(self.len).map(|image| hasher.hash_one(image)).collect()
    }

    /// These are training images.
    pub(crate) fn add(&mut self, images: &[u8]) {
        let hashes = self.hashes(images);
        self.images.extend(hashes);
    }

    /// These are images to validate on.
    pub(crate) fn compare(&mut self, images: &[u8]) {
        self.shared += self.hashes(images).iter().filter(|hash| self.images.contains(hash)).count();
    }

    /// The warning that some of `all` images to validate on are training images.
    pub(crate) fn warning(&self, all: usize) -> Option<Message> {
        let shared = self.shared;
        (shared as f64 > SHARED * all as f64).then(|| {
            message!(
                "{shared} of the {all} images to validate on are training images too, pixel by pixel: the validation is too good"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towers_callbacks::testing::{record, unvalidated};

    /// Those of 1000 images of ten classes, with a hundred steps an epoch.
    fn labels() -> Labels {
        Labels::new(&Vec::from_iter((0..1000).map(|image| image % 10)), 100)
    }

    /// The epochs at which there is a warning, for these losses of training and validation.
    fn warned(losses: &[(f64, f64)]) -> Vec<usize> {
        warned_of(losses, Some(Guess::Class(10)))
    }

    fn warned_of(losses: &[(f64, f64)], guess: Option<Guess>) -> Vec<usize> {
        let history: Vec<EpochRecord> = losses
            .iter()
            .zip(1..)
            .map(|(&(loss, val), epoch)| record(epoch, [loss, 0.5, val, 0.5]))
            .collect();
        let warns = |epoch: &usize| of_epoch(&history[..*epoch], guess, Some(&labels())).is_some();
        (1..=history.len()).filter(warns).collect()
    }

    #[test]
    fn runs_that_go_wrong_are_told_once() {
        let falling = |k: usize| 2.0 / k as f64;
        assert_eq!(warned(&[(9.0, 2.0), (8.0, 2.0), (1.0, 1.0)]), [1], "far above ln(10)");
        assert_eq!(warned(&[(2.31, 2.3), (2.30, 2.3), (2.29, 2.3), (2.3, 2.3)]), [3], "stuck at ln(10)");
        let overfits: Vec<_> = (1..10).map(|k| (falling(k), 1.0 + 0.1 * k as f64)).collect();
        assert_eq!(warned(&overfits), [6]);
        assert_eq!(warned_of(&overfits, None), [6]);
        assert_eq!(
            warned_of(&[(9.0, 2.0), (8.0, 2.0), (8.0, 2.0)], None),
            [0; 0],
            "losses that are weighted"
        );
        let of_each = |losses: &[(f64, f64)]| warned_of(losses, Some(Guess::EachClass));
        assert_eq!(of_each(&[(1.5, 2.0), (0.5, 2.0)]), [1], "far above ln(2)");
        assert_eq!(of_each(&[(0.69, 0.7), (0.69, 0.7), (0.69, 0.7)]), [3], "stuck at ln(2)");
        let every_other = Vec::from_iter((1..=14).map(|epoch| match epoch % 2 {
            0 => record(epoch, [falling(epoch as usize), 0.5, 1.0 + 0.1 * epoch as f64, 0.5]),
            _ => unvalidated(epoch, falling(epoch as usize), 0.5),
        }));
        let warns = |epochs: &usize| {
            of_epoch(&every_other[..*epochs], Some(Guess::Class(10)), Some(&labels())).is_some()
        };
        assert_eq!(Vec::from_iter((1..=14).filter(warns)), [12], "after the sixth validation");
        let learns: Vec<_> = (1..10).map(|k| (falling(k), falling(k))).collect();
        assert_eq!(warned(&learns), [0; 0]);
        assert_eq!(warned(&[(2.31, 2.3), (1.9, 2.3), (1.5, 2.3)]), [0; 0], "it has learned");
    }

    /// Of 1000 images with ten classes, guesses reach 12.8 %.
    #[test]
    fn validation_as_by_guessing_is_told_once() {
        let warned = |labels: &Labels, epochs: u64, [acc, val_acc]: [f64; 2]| {
            let history = Vec::from_iter((1..=epochs).map(|epoch| record(epoch, [0.5, acc, 3.0, val_acc])));
            let warns = |epochs: &u64| labels.warning(&history[..*epochs as usize]).is_some();
            Vec::from_iter((1..=epochs).filter(warns))
        };
        let none: [u64; 0] = [];
        assert_eq!(warned(&labels(), 20, [0.9, 0.12]), [9], "five epochs after 500 steps");
        assert_eq!(warned(&labels(), 8, [0.9, 0.12]), none);
        assert_eq!(warned(&labels(), 20, [0.9, 0.03]), [9], "the classes may be swapped");
        assert_eq!(warned(&labels(), 20, [1.0, 0.14]), none, "it overfits");
        assert_eq!(warned(&labels(), 20, [0.5, 0.1]), none, "it has learned too little");
        let few = Labels::new(&Vec::from_iter(0..10), 100);
        assert_eq!(warned(&few, 20, [0.6, 0.1]), none, "ten images tell nothing");
        let unbalanced = Labels::new(&Vec::from_iter((0..1000).map(|image| u16::from(image < 900))), 100);
        assert_eq!(warned(&unbalanced, 20, [0.94, 0.9]), none, "it knows the most frequent class");
        assert_eq!(warned(&unbalanced, 20, [0.99, 0.9]), [9]);
    }

    #[test]
    fn images_of_both_sets_are_counted() {
        let mut seen = Seen::new(3);
        seen.add(&[1, 2, 3, 4, 5, 6]);
        seen.compare(&[4, 5, 6, 1, 2, 4]);
        assert!(seen.warning(2).unwrap().to_string().starts_with("1 of the 2 images"));
        assert_eq!(seen.warning(1000), None);
    }
}
