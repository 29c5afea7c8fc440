//! Warnings of runs that go wrong, as soon as that shows: `no_warnings` turns them off.

use std::collections::HashSet;
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
    /// Of a network that gives all answers the same probability.
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

/// The warning of the last epoch of a run, if that epoch is the first to show it. There is no `guess` where losses are weighted, so that
/// they can't be compared with it.
pub(crate) fn of_epoch(history: &[EpochRecord], guess: Option<Guess>) -> Option<Message> {
    let train = Vec::from_iter(history.iter().filter_map(|record| record.get("loss")));
    if let Some(warning) = guess.and_then(|guess| of_losses(&train, guess)) {
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
        (1..=history.len()).filter(|&epoch| of_epoch(&history[..epoch], guess).is_some()).collect()
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
        let warns = |epochs: &usize| of_epoch(&every_other[..*epochs], Some(Guess::Class(10))).is_some();
        assert_eq!(Vec::from_iter((1..=14).filter(warns)), [12], "after the sixth validation");
        let learns: Vec<_> = (1..10).map(|k| (falling(k), falling(k))).collect();
        assert_eq!(warned(&learns), [0; 0]);
        assert_eq!(warned(&[(2.31, 2.3), (1.9, 2.3), (1.5, 2.3)]), [0; 0], "it has learned");
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
