use crate::{Config, Result};
use std::sync::Arc;
use towers_dataset::Split;
use towers_options::{Message, message};
use towers_program::Target;

/// So many times more samples of a class than of another are worth a warning.
const UNBALANCED: usize = 10;
/// The most weights that a note has.
const SHOWN: usize = 10;

/// The factor on the loss of each class; none without `class_weight`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassWeights(Option<Arc<[f32]>>);

impl ClassWeights {
    /// The configured weights for these training samples. `notes` gets their values, `warnings` that a class is rare.
    pub(crate) fn new(
        config: &Config,
        train: &Split,
        classes: &[String],
        [notes, warnings]: [&mut Vec<Message>; 2],
    ) -> Result<Self> {
        let counts = train.class_counts(classes.len());
        let Some(given) = &config.training.class_weight else {
            if config.training.sampler.is_none() && !config.outputs.no_warnings {
                warnings.extend(unbalanced(&counts, classes));
            }
            return Ok(ClassWeights(None));
        };
        let weights = given.of(classes, &counts)?;
        let shown =
            classes.iter().zip(&weights).take(SHOWN).map(|(class, weight)| format!("{class} {weight:.3}"));
        let more = if classes.len() > SHOWN { ", ..." } else { "" };
        let shown = shown.collect::<Vec<_>>().join(", ");
        notes.push(format!("the training loss is weighted by class: {shown}{more}").into());
        Ok(ClassWeights(Some(weights.iter().map(|&weight| weight as f32).collect())))
    }

    pub(crate) fn are_given(&self) -> bool {
        self.0.is_some()
    }

    /// The target of a sample with this label, and perhaps another label and the share of the first.
    pub(crate) fn target(&self, label: u32, mix: Option<(u32, f32)>) -> Target {
        let (other, share) = mix.unwrap_or((label, 1.0));
        let weight = |label: u32| self.0.as_ref().map_or(1.0, |weights| weights[label as usize]);
        Target { label, other, share, weights: [label, other].map(weight) }
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
