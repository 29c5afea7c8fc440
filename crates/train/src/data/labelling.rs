use crate::{Config, Error, Result};
use std::sync::Arc;
use towers_dataset::Split;
use towers_options::{Message, message};
use towers_program::{Labels, Target};

/// So many times more samples of a class than of another are worth a warning.
const UNBALANCED: usize = 10;
/// The most weights that a note has.
const SHOWN: usize = 10;

/// The targets of a split's samples, besides their labels.
#[derive(Clone, Debug, Default)]
pub(crate) enum Labelling {
    /// Nothing.
    #[default]
    Labels,
    /// The factor on the loss of each class, of `class_weight`.
    Weighted(Arc<[f32]>),
    /// The classes of each sample, which has any number of them.
    MultiHot(MultiHot),
}

/// The [multi-hot](Labels::MultiHot) words of all samples of a split.
#[derive(Clone, Debug)]
pub(crate) struct MultiHot {
    all: Arc<[u32]>,
    words: usize,
}

impl MultiHot {
    /// Integers of a sample.
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    /// The words of all samples.
    pub(crate) fn all(&self) -> &[u32] {
        &self.all
    }

    /// The words of a sample.
    pub(crate) fn of(&self, sample: usize) -> &[u32] {
        &self.all[sample * self.words..][..self.words]
    }
}

impl Labelling {
    /// The labels of a split, without weights.
    pub(crate) fn of(split: &Split) -> Self {
        let Some(rows) = &split.multi_hot else { return Labelling::Labels };
        let words = Labels::MultiHot.words(rows.ncols());
        let all =
            rows.rows().into_iter().flat_map(|row| Labels::multi_hot(&row.to_vec()).collect::<Vec<_>>());
        Labelling::MultiHot(MultiHot { all: all.collect(), words })
    }

    /// The labels of these training samples with the configured weights. `notes` gets their values, `warnings` that a class is rare.
    pub(crate) fn new(
        config: &Config,
        train: &Split,
        classes: &[String],
        [notes, warnings]: [&mut Vec<Message>; 2],
    ) -> Result<Self> {
        if train.multi_hot.is_some() {
            check_multi_label(config)?;
            notes.push("several labels a picture: sigmoid outputs, binary cross-entropy".into());
            return Ok(Labelling::of(train));
        }
        let counts = train.class_counts(classes.len());
        let Some(given) = &config.training.class_weight else {
            if config.training.sampler.is_none() && !config.outputs.no_warnings {
                warnings.extend(unbalanced(&counts, classes));
            }
            return Ok(Labelling::Labels);
        };
        let weights = given.of(classes, &counts)?;
        let shown =
            classes.iter().zip(&weights).take(SHOWN).map(|(class, weight)| format!("{class} {weight:.3}"));
        let more = if classes.len() > SHOWN { ", ..." } else { "" };
        let shown = shown.collect::<Vec<_>>().join(", ");
        notes.push(format!("the training loss is weighted by class: {shown}{more}").into());
        Ok(Labelling::Weighted(weights.iter().map(|&weight| weight as f32).collect()))
    }

    /// Whether classes have weights.
    pub(crate) fn is_weighted(&self) -> bool {
        matches!(self, Labelling::Weighted(_))
    }

    /// The classes of the samples, if they have any number of them.
    pub(crate) fn multi_hot(&self) -> Option<&MultiHot> {
        if let Labelling::MultiHot(rows) = self { Some(rows) } else { None }
    }

    /// The target of a sample with this label, and perhaps another label and the share of the first.
    pub(crate) fn target(&self, label: u32, mix: Option<(u32, f32)>) -> Target {
        let (other, share) = mix.unwrap_or((label, 1.0));
        let weight = |label: u32| match self {
            Labelling::Weighted(weights) => weights[label as usize],
            Labelling::Labels | Labelling::MultiHot(_) => 1.0,
        };
        Target { label, other, share, weights: [label, other].map(weight) }
    }
}

/// Refuses options that need one label for each sample.
fn check_multi_label(config: &Config) -> Result<()> {
    let (training, augmentation) = (&config.training, &config.training.augmentation);
    let given = [
        ("class_weight", training.class_weight.is_some(), "left out"),
        ("sampler", training.sampler.is_some(), "left out"),
        ("augmentation.mixup", augmentation.mixup != 0.0, "0"),
        ("augmentation.cutmix", augmentation.cutmix != 0.0, "0"),
    ];
    match given.into_iter().find(|(_, given, _)| *given) {
        Some((key, _, instead)) => {
            let accepted =
                format!("{instead}, since it needs one label a picture and these data have several");
            Err(Error::option(key, "given", accepted))
        }
        None => Ok(()),
    }
}

/// The warning that a class has far fewer samples than another.
fn unbalanced(counts: &[usize], classes: &[String]) -> Option<Message> {
    let present = || counts.iter().zip(classes).filter(|(count, _)| **count > 0);
    let ((most, large), (least, small)) =
        (present().max_by_key(|(count, _)| **count)?, present().min_by_key(|(count, _)| **count)?);
    (*most >= UNBALANCED * least).then(|| {
        message!(
            "the class {large} has {most} training images and {small} has {least}, so accuracy says little about {small}; ",
            ["class_weight"],
            " balanced or ",
            ["sampler"],
            " balanced counts all classes alike, and ",
            ["metrics"],
            " balanced_acc,f1 shows each"
        )
    })
}
