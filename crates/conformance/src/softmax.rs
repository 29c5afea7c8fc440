//! Softmax, and its cross-entropy with the loss, the correct answers and the gradient.

use crate::operand::*;
use crate::{Bench, Case, Output, Subject};
#[cfg(feature = "random")]
use proptest::prelude::*;
use towers_philox::{Philox, domain};
use towers_program::ops::CrossEntropy;
use towers_program::{Arena, Labels, Layout, Result, Shape, Span, StepArgs, Target, View, ViewMut};

/// Logits with labels.
#[derive(Clone, Debug)]
pub struct Logits {
    /// In the batch.
    pub samples: usize,
    /// Of a sample: logits. A single one tells two classes apart.
    pub classes: usize,
    /// Of the logits and their gradient.
    pub place: Placement,
    /// Of the labels.
    pub smoothing: f32,
    /// Factor on the logits: large ones overflow an exponential.
    pub size: f32,
    /// One label a sample, two with weights, or any number.
    pub labels: Labels,
    /// What some logits are instead of their numbers.
    pub odd: Option<f32>,
}

impl Logits {
    fn labels(&self) -> Vec<u32> {
        if self.labels == Labels::MultiHot {
            let all = numbers("labels", self.samples * self.classes);
            let rows = all.chunks(self.classes).map(|row| row.iter().map(|&x| u8::from(x > 0.0)));
            return rows
                .flat_map(|row| Labels::multi_hot(&row.collect::<Vec<_>>()).collect::<Vec<_>>())
                .collect();
        }
        let classes = if self.classes == 1 { 2 } else { self.classes as u32 };
        let draw =
            |what| numbers(what, self.samples).into_iter().map(move |x| (x.abs() * 7.0) as u32 % classes);
        if self.labels == Labels::Class {
            return draw("labels").collect();
        }
        // Some shares are 0 or 1, some pairs the same label twice, some weights 0.
        let shares = numbers("shares", self.samples).into_iter().map(|x| x.abs().fract() * 1.2 - 0.1);
        let weights = numbers("weights", self.samples).into_iter().map(|x| [x.max(0.0), x.abs()]);
        let pairs = draw("labels").zip(draw("others")).zip(shares.zip(weights));
        let words = |((label, other), (share, weights)): ((u32, u32), (f32, [f32; 2]))| {
            Target { label, other, share: share.clamp(0.0, 1.0), weights }.to_words()
        };
        pairs.flat_map(words).collect()
    }
}

impl Case for Logits {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (device, shape) = (bench.device, Shape::vectors(self.samples, self.classes));
        // Coarse numbers: many samples have several largest logits. Of numbers that dwarf the logarithm of how many there
        // are, only one may be the largest.
        let draw = if self.size.abs() < 1e30 { Operand::coarse } else { Operand::draw };
        let mut rng = Philox::new(7, domain("odd"), [0, 0]);
        let odd = |x| self.odd.filter(|_| rng.below(7) == 0).unwrap_or(x);
        let logits = draw("x", shape, self.place).map(|x| x * self.size).map(odd);
        let mut ops = bench.ops(self.samples, self.place);
        let multi_label = self.labels == Labels::MultiHot;
        let words = CrossEntropy { gradient: true, multi_label }.label_words(self.classes);
        let labels = ops.labels_of(&self.labels(), words);
        let (x, y) = (ops.tensor(&logits), ops.draw("y", shape));
        let [metrics, alone] = ["metrics", "alone"].map(|name| ops.numbers(Arena::Gradients, name, 2));
        ops.set(CrossEntropy { gradient: false, multi_label }, [x, labels], [alone]);
        ops.set(CrossEntropy { gradient: true, multi_label }, [x, labels], [y, metrics]);
        let args = StepArgs {
            label_smoothing: self.smoothing,
            // A gradient that half precision holds, scaled too.
            global_batch: 8,
            targets: self.labels == Labels::Target,
            ..StepArgs::inference(self.samples)
        };
        let done = ops.run_with(&args)?;
        let metrics = done.output(metrics, "metrics with a gradient", 1e-6)?;
        let mut outputs = vec![done.output(alone, "metrics", 1e-6)?];
        assert!(outputs[0].same_bits(&metrics), "the metrics depend on the gradient");
        outputs.push(done.output(y, "dlogits", 1e-6)?.times(1.0 / bench.loss_scale));
        // As a network's are kept: in f32, whatever the format of activations.
        let values: Vec<f32> = logits.values.iter().map(|&x| bench.round(x)).collect();
        let (mut x, mut wide) = (device.alloc_activations(values.len())?, bench.buffer("wide", shape.len())?);
        device.upload(&values, &mut x, 0)?;
        let at = ViewMut::new(&mut wide.data, Layout::contiguous(shape));
        device.softmax(View::new(&x, logits.layout), at)?;
        outputs.extend(wide.outputs(bench, &[("probabilities", Span::new(0, shape.len()), 1e-6)])?);
        Ok(outputs)
    }
}

/// Logits whose exponentials are far beyond any format.
pub fn enormous_logits_do_not_overflow(subject: &Subject) {
    for (smoothing, size, labels) in [
        (0.0, 6e3, Labels::Class),
        (0.1, -3e30, Labels::Class),
        (0.0, 6e3, Labels::MultiHot),
        (0.1, -3e30, Labels::MultiHot),
    ] {
        if 10.0 * f32::abs(size) < subject.largest() {
            subject.agree(&Logits {
                samples: 9,
                classes: 10,
                place: ALONE,
                smoothing,
                size,
                labels,
                odd: None,
            });
        }
    }
}

/// Neither the loss nor the gradient of such a sample may look good.
pub fn logits_that_are_no_numbers(subject: &Subject) {
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for classes in [1, 5, 40] {
            for labels in [Labels::Class, Labels::MultiHot] {
                let (place, smoothing, size, odd) = (ALONE, 0.0, 1.0, Some(odd));
                subject.agree(&Logits { samples: 50, classes, place, smoothing, size, labels, odd });
            }
        }
    }
}

/// Three samples of three classes, the second with labels that are none.
#[derive(Debug)]
struct Outside {
    label: u32,
    /// The second label of a mixed sample.
    other: Option<u32>,
}

impl Case for Outside {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (shape, mut ops) = (Shape::vectors(3, 3), bench.ops(3, ALONE));
        let (x, dx) = (ops.draw("x", shape), ops.draw("dx", shape));
        let labels = match self.other {
            None => vec![1, self.label, 2],
            Some(other) => {
                let pairs = [(1, 0), (self.label, other), (2, 2)];
                pairs
                    .map(|(label, other)| Target { other, share: 0.5, ..Target::label(label) }.to_words())
                    .concat()
            }
        };
        let labels = ops.labels(&labels);
        let metrics = ops.numbers(Arena::Gradients, "metrics", 2);
        ops.set(CrossEntropy { gradient: true, multi_label: false }, [x, labels], [dx, metrics]);
        let targets = self.other.is_some();
        let done = ops.run_with(&StepArgs { global_batch: 8, targets, ..StepArgs::inference(3) })?;
        let metrics = done.output(metrics, "metrics", 1e-6)?;
        assert!(metrics.values[0].is_nan() && metrics.values[1].is_finite());
        Ok(vec![metrics, done.output(dx, "dlogits", 1e-6)?.times(1.0 / bench.loss_scale)])
    }
}

/// The loss and that sample's gradient are NaN, and nothing is read outside of the tensor.
///
/// A label may lie just past the last class, or be a negative number.
pub fn a_label_outside_of_the_classes_gives_nan(subject: &Subject) {
    for (label, other) in [(3, None), (u32::MAX, None), (3, Some(0)), (0, Some(3))] {
        subject.agree(&Outside { label, other });
    }
}

/// No samples: both sums are 0.
pub fn an_empty_batch(subject: &Subject) {
    for labels in [Labels::Target, Labels::MultiHot] {
        let (place, smoothing, size, odd) = (SLICE, 0.0, 1.0, None);
        subject.agree(&Logits { samples: 0, classes: 10, place, smoothing, size, labels, odd });
    }
}

/// More samples than a device has threads at once.
pub fn a_large_batch(subject: &Subject) {
    for (samples, classes, labels) in [
        (3000, 1, Labels::Class),
        (3000, 10, Labels::Class),
        (700, 100, Labels::Target),
        (5, 1500, Labels::Class),
        (3000, 10, Labels::MultiHot),
        (700, 100, Labels::MultiHot),
    ] {
        let samples = subject.fit(Shape::vectors(samples, classes), 64 * classes).n;
        subject.agree(&Logits {
            samples,
            classes,
            place: ALONE,
            smoothing: 0.1,
            size: 1.0,
            labels,
            odd: None,
        });
    }
}

/// Sizes, places, smoothings and magnitudes at random.
#[cfg(feature = "random")]
pub fn any_shape(subject: &Subject) {
    let smoothing = prop_oneof![Just(0.0_f32), 0.0..0.9_f32];
    let labels = prop_oneof![Just(Labels::Class), Just(Labels::Target), Just(Labels::MultiHot)];
    let cases = (0..70_usize, 1..120_usize, placement(), smoothing, 0.1..30.0_f32, labels);
    let case = |(samples, classes, place, smoothing, size, labels)| Logits {
        samples,
        classes,
        place,
        smoothing,
        size,
        labels,
        odd: None,
    };
    subject.agree_on(48, cases.prop_map(case));
}
