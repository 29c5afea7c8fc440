//! Softmax, and its cross-entropy with the loss, the correct answers and the gradient.

use crate::operand::*;
use crate::{Bench, Case, Output, Subject};
use program::{Backend, Layout, Result, Shape, SoftmaxXent, Span, Target, ViewMut};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct CrossEntropy {
    samples: usize,
    classes: usize,
    place: Placement,
    smoothing: f32,
    /// Factor on the logits: large ones overflow an exponential.
    size: f32,
    /// Two labels a sample.
    mixed: bool,
}

impl CrossEntropy {
    fn labels(&self) -> Vec<u32> {
        let classes = self.classes as u32;
        let draw =
            |what| numbers(what, self.samples).into_iter().map(move |x| (x.abs() * 7.0) as u32 % classes);
        if !self.mixed {
            return draw("labels").collect();
        }
        // Some weights are 0 or 1, and some pairs the same label twice.
        let weights = numbers("weights", self.samples).into_iter().map(|x| x.abs().fract() * 1.2 - 0.1);
        let pairs = draw("labels").zip(draw("others")).zip(weights);
        let words = |((label, other), weight): ((u32, u32), f32)| {
            Target { label, other, weight: weight.clamp(0.0, 1.0) }.to_words()
        };
        pairs.flat_map(words).collect()
    }
}

impl Case for CrossEntropy {
    fn run<B: Backend>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
        let (device, shape) = (bench.device, Shape::vectors(self.samples, self.classes));
        // Coarse numbers: many samples have several largest logits. Of numbers that dwarf the logarithm of how many there
        // are, only one may be the largest.
        let x = if self.size.abs() < 1e30 { Operand::coarse } else { Operand::draw }("x", shape, self.place);
        let x = x.map(|x| x * self.size).on(bench)?;
        let labels = bench.labels(&self.labels())?;
        let xent = SoftmaxXent { label_smoothing: self.smoothing, scale: 0.125, mixed: self.mixed };
        let (mut sums, metrics) = (bench.arena("sums", 5)?, Span::new(2, 2));
        let mut y = Operand::draw("y", shape, self.place).on(bench)?;
        device.softmax_xent(&xent, x.view(), &labels, None, &mut sums.data, metrics)?;
        let mut outputs = sums.outputs(bench, &[("metrics", metrics, 1e-6)])?;
        device.softmax_xent(&xent, x.view(), &labels, Some(y.view_mut()), &mut sums.data, metrics)?;
        let with_gradient = sums.outputs(bench, &[("metrics with a gradient", metrics, 1e-6)])?;
        assert!(outputs[0].same_bits(&with_gradient[0]), "the metrics depend on the gradient");
        outputs.push(y.output(bench, "dlogits", 1e-6)?.times(1.0 / bench.loss_scale));
        device.softmax(x.view(), y.view_mut())?;
        outputs.push(y.output(bench, "probabilities", 1e-6)?);
        // As a network's are kept, whatever the format of activations.
        let (mut wide, at) = (bench.arena("wide", shape.len())?, Layout::contiguous(shape));
        device.softmax(x.view(), ViewMut::new(&mut wide.data, at))?;
        outputs.extend(wide.outputs(bench, &[("probabilities in f32", Span::new(0, shape.len()), 1e-6)])?);
        Ok(outputs)
    }
}

/// Logits whose exponentials are far beyond any format.
pub fn enormous_logits_do_not_overflow<B: Backend>(subject: &Subject<B>) {
    for (smoothing, size) in [(0.0, 6e3), (0.1, -3e30)] {
        if 10.0 * f32::abs(size) < subject.largest() {
            subject.agree(&CrossEntropy {
                samples: 9,
                classes: 10,
                place: ALONE,
                smoothing,
                size,
                mixed: false,
            });
        }
    }
}

/// A label past the last class, and one that would be a negative number.
#[derive(Debug)]
struct Outside;

impl Case for Outside {
    fn run<B: Backend>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
        let shape = Shape::vectors(3, 3);
        let x = Operand::draw("x", shape, ALONE).on(bench)?;
        let mut dx = Operand::draw("dx", shape, ALONE).on(bench)?;
        let (labels, mut sums) = (bench.labels(&[1, 3, u32::MAX])?, bench.arena("sums", 2)?);
        let (xent, metrics) =
            (SoftmaxXent { label_smoothing: 0.0, scale: 0.125, mixed: false }, Span::new(0, 2));
        let dx_view = Some(dx.view_mut());
        bench.device.softmax_xent(&xent, x.view(), &labels, dx_view, &mut sums.data, metrics)?;
        let mut outputs = sums.outputs(bench, &[("metrics", metrics, 1e-6)])?;
        assert!(outputs[0].values[0].is_nan() && outputs[0].values[1].is_finite());
        outputs.push(dx.output(bench, "dlogits", 1e-6)?.times(1.0 / bench.loss_scale));
        Ok(outputs)
    }
}

/// The loss and that sample's gradient are NaN, and nothing is read outside of the tensor.
pub fn a_label_outside_of_the_classes_gives_nan<B: Backend>(subject: &Subject<B>) {
    subject.agree(&Outside);
}

/// No samples: both sums are 0.
pub fn an_empty_batch<B: Backend>(subject: &Subject<B>) {
    subject.agree(&CrossEntropy {
        samples: 0,
        classes: 10,
        place: SLICE,
        smoothing: 0.0,
        size: 1.0,
        mixed: true,
    });
}

/// More samples than a device has threads at once.
pub fn a_large_batch<B: Backend>(subject: &Subject<B>) {
    for (samples, classes) in [(3000, 10), (700, 100), (5, 1500)] {
        let samples = subject.fit(Shape::vectors(samples, classes), 64 * classes).n;
        subject.agree(&CrossEntropy {
            samples,
            classes,
            place: ALONE,
            smoothing: 0.1,
            size: 1.0,
            mixed: classes == 100,
        });
    }
}

/// Sizes, places, smoothings and magnitudes at random.
pub fn any_shape<B: Backend>(subject: &Subject<B>) {
    let smoothing = prop_oneof![Just(0.0_f32), 0.0..0.9_f32];
    let cases = (0..70_usize, 1..120_usize, placement(), smoothing, 0.1..30.0_f32, any::<bool>());
    let case = |(samples, classes, place, smoothing, size, mixed)| CrossEntropy {
        samples,
        classes,
        place,
        smoothing,
        size,
        mixed,
    };
    subject.agree_on(48, cases.prop_map(case));
}
