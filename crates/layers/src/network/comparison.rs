//! A training pass on a device, of which another device repeats each step.

use super::instance::Network;
use super::passes::Work;
use crate::error::InLayer;
use crate::{Draws, Error, Result};
use core::fmt;
use towers_program::{
    Activation, Arena, Device, Layout, Op, Precision, Program, Step, StepArgs, Tensor, TensorId, Trial, Write,
};

/// A result of a step, from the device under test and from another one, with the same operands.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Comparison {
    /// The layer, or another part of a training step.
    pub layer: String,
    /// The op.
    pub op: String,
    /// The result's number, from 0.
    pub result: usize,
    /// The element with the largest difference.
    pub element: usize,
    /// Its value on the device under test.
    pub got: f32,
    /// Its value on the other device.
    pub expected: f32,
    /// The difference of the results, relative to the largest magnitude of the expected ones.
    pub difference: f32,
    /// The largest difference that rounding explains.
    pub tolerance: f32,
}

impl Comparison {
    /// Whether rounding explains the difference.
    pub fn agrees(&self) -> bool {
        self.difference <= self.tolerance
    }

    /// Compares the elements of a result.
    pub fn new(layer: &str, op: &str, [got, expected]: [&[f32]; 2], how: &Tolerance) -> Comparison {
        let mut worst = Comparison {
            layer: layer.to_owned(),
            op: op.to_owned(),
            result: 0,
            element: 0,
            got: got.first().copied().unwrap_or(0.0),
            expected: expected.first().copied().unwrap_or(0.0),
            difference: if got.len() == expected.len() { 0.0 } else { f32::INFINITY },
            tolerance: how.relative,
        };
        let is_counted = |x: f32| x.is_finite() && x.abs() <= how.largest;
        let largest = expected.iter().filter(|x| is_counted(**x)).fold(0.0, |most: f32, x| most.max(x.abs()));
        let (mut sum, mut sum_expected, mut most) = (0.0, 0.0, -1.0_f32);
        for (element, (&got, &expected)) in got.iter().zip(expected).enumerate() {
            let apart = match (got.is_finite(), is_counted(expected)) {
                (true, true) if (got - expected).abs() <= how.absolute => 0.0,
                (true, true) => (got - expected).abs(),
                // What is too large for the format is infinite there, and a NaN may come of it.
                (false, false) => 0.0,
                (true, false) | (false, true) => f32::INFINITY,
            };
            sum += f64::from(apart).powi(2);
            sum_expected += if is_counted(expected) { f64::from(expected).powi(2) } else { 0.0 };
            if apart > most {
                most = apart;
                (worst.element, worst.got, worst.expected) = (element, got, expected);
            }
        }
        let (apart, size) = match how.by_mean_square {
            true => (sum.sqrt() as f32, sum_expected.sqrt() as f32),
            false => (most.max(0.0), largest),
        };
        if apart > 0.0 {
            worst.difference = worst.difference.max(apart / size);
        }
        worst
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison { layer, op, result, element, got, expected, difference, tolerance } = self;
        let of = if *result == 0 { String::new() } else { format!(", result {result}") };
        write!(f, "{op} of {layer}{of}: element {element} is {got:e}, not {expected:e}; ")?;
        write!(f, "relative to the largest, results differ by {difference:.1e}, and may by {tolerance:.1e}")
    }
}

/// How far the results of an op may lie apart on two devices.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// The largest difference, relative to the largest magnitude.
    pub relative: f32,
    /// A difference that is always allowed: the smallest number of the format, and what changes if operands
    /// change by `relative`. A sum of numbers that cancel each other is nothing but rounding.
    pub absolute: f32,
    /// The largest number of the format.
    pub largest: f32,
    /// Whether the root mean square counts, and not the largest difference. Rounding decides which side of a
    /// rectifier's corner an input lies on if an op computes that input again: then single elements differ.
    pub by_mean_square: bool,
}

impl Tolerance {
    /// Of results in a number format. Sums of products have factors and results of that format.
    pub fn of(precision: Precision) -> Tolerance {
        let power = |digits: i32| 2.0_f32.powi(-digits);
        let (relative, absolute, largest) = match precision {
            Precision::Fp32 => (1e-4, 0.0, f32::MAX),
            Precision::Tf32 => (power(9), 0.0, f32::MAX),
            Precision::Bf16 => (power(6), 0.0, f32::MAX),
            Precision::Fp16 => (power(8), power(24), 65504.0),
        };
        Tolerance { relative, absolute, largest, by_mean_square: false }
    }

    /// Of the results of an op.
    fn of_op(op: &Op, precision: Precision) -> Tolerance {
        let plain = Tolerance::of(precision);
        let act = match op {
            Op::BatchNormWeightGradient(op) => op.bn.act,
            Op::BatchNormInputGradient(op) => op.bn.act,
            Op::GroupNormGradient(op) => op.norm.act,
            _ => Activation::None,
        };
        match act {
            Activation::Relu => {
                Tolerance { relative: plain.relative.max(1e-2), by_mean_square: true, ..plain }
            }
            _ => plain,
        }
    }
}

impl Network {
    /// A [`train_pass`](Network::train_pass) on these images and labels. `other` repeats each step alone, on
    /// the operands that this device has, so that differences don't add up over the steps. Exchanges are
    /// left out.
    ///
    /// ```
    /// use towers_layers::{Conv2D, Dense, Draws, Flatten, Graph, Mode};
    ///
    /// let mut graph = Graph::new("tiny", [4, 4, 3]);
    /// let x = graph.add(Conv2D::new(2, 3), graph.input())?;
    /// let x = graph.add(Flatten, x)?;
    /// let logits = graph.add(Dense::new(2), x)?;
    /// let mut network = graph.build(logits, &towers_tensor_cpu::device(1), 2, Mode::Training)?;
    /// network.init(1)?;
    /// let draws = Draws { seed: 1, step: 0, first_sample: 0 };
    /// let images: Vec<f32> = (0..96).map(|k| (k as f32).sin()).collect();
    /// let all = network.compare_train_pass(&towers_tensor_cpu::reference(), &images, &[0, 1], draws, 0.0)?;
    /// assert!(all.len() > 5 && all.iter().all(|result| result.agrees()));
    /// # Ok::<(), towers_layers::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`set_input`](Network::set_input) and [`train_pass`](Network::train_pass), and the errors of
    /// `other`.
    pub fn compare_train_pass(
        &mut self,
        other: &Device,
        images: &[f32],
        labels: &[u32],
        draws: Draws,
        label_smoothing: f32,
    ) -> Result<Vec<Comparison>> {
        if self.train.is_none() {
            return Err(Error::InferenceOnly);
        }
        self.set_input(images, labels)?;
        let samples = self.n();
        let loss_scale = self.device.loss_scale()?.map_or(1.0, |[scale, _]| scale);
        let (device, mut work) = (self.device.clone(), self.begin_training());
        let args = work.args(Some(draws), label_smoothing, samples);
        let program = work.prepared.program();
        let mut comparisons = Vec::new();
        let is_own = |&k: &usize| !program.steps[k].op.is_exchange();
        for number in (0..program.steps.len()).filter(is_own) {
            let step = &program.steps[number];
            let layer = program.layers.get(step.layer).map_or("", String::as_str);
            let read = |work: &Work, ids: &mut dyn Iterator<Item = TensorId>| {
                ids.map(|id| work.read(id)).collect::<towers_program::Result<Vec<_>>>().in_layer(layer)
            };
            let before = read(&work, &mut step.reads())?;
            work.run(number..number + 1, &args, None).in_layer(layer)?;
            for &id in step.results.iter().filter(|&&id| program.tensor(id).arena == Arena::Gradients) {
                let at = work.prepared.executable.span(id);
                device.finish_grads(&mut work.arena.grads, at)?;
            }
            let repeated = |numbers: &[Vec<f32>]| {
                let mut results = repeat(other, program, step, &args, (numbers, labels)).in_layer(layer)?;
                if matches!(step.op, Op::CrossEntropy(op) if op.gradient) {
                    results[0].iter_mut().for_each(|x| *x *= loss_scale);
                }
                Ok::<_, Error>(results)
            };
            let how = Tolerance::of_op(&step.op, device.precision());
            let (results, expected) = (read(&work, &mut step.results.iter().copied())?, repeated(&before)?);
            let compare = |result: usize, how: &Tolerance| {
                let numbers = [&results[result][..], &expected[result]];
                Comparison { result, ..Comparison::new(layer, step.op.name(), numbers, how) }
            };
            let mut of_step: Vec<_> = (0..results.len()).map(|result| compare(result, &how)).collect();
            if !of_step.iter().all(Comparison::agrees) {
                let moved = repeated(&nearby(&before, how.relative))?;
                for comparison in &mut of_step {
                    let result = comparison.result;
                    let absolute = how.absolute.max(mean_difference(&moved[result], &expected[result]));
                    *comparison = compare(result, &Tolerance { absolute, ..how });
                }
            }
            comparisons.extend(of_step);
        }
        Ok(comparisons)
    }
}

/// The numbers, each larger or smaller by this part of itself.
fn nearby(operands: &[Vec<f32>], part: f32) -> Vec<Vec<f32>> {
    let moved = |(k, x): (usize, &f32)| {
        // Knuth's multiplicative hash: the signs follow no pattern of rows or channels.
        let is_up = (k as u32).wrapping_mul(2_654_435_769) & 0x8000_0000 == 0;
        x * if is_up { 1.0 + part } else { 1.0 - part }
    };
    operands.iter().map(|numbers| numbers.iter().enumerate().map(moved).collect()).collect()
}

/// The root mean square of the finite differences.
fn mean_difference(some: &[f32], others: &[f32]) -> f32 {
    let squares = some.iter().zip(others).map(|(a, b)| f64::from(a - b).powi(2));
    let (sum, count) = squares.filter(|x| x.is_finite()).fold((0.0, 0), |(sum, n), x| (sum + x, n + 1));
    (sum / f64::from(count.max(1))).sqrt() as f32
}

/// The results of a step on a device, from the numbers that it reads.
fn repeat(
    device: &Device,
    program: &Program,
    step: &Step,
    args: &StepArgs,
    (numbers, labels): (&[Vec<f32>], &[u32]),
) -> towers_program::Result<Vec<Vec<f32>>> {
    let mut trial = Trial::new(args.n);
    let mut tensor = |id: TensorId, numbers: Option<&Vec<f32>>| {
        let Tensor { shape, arena, .. } = *program.tensor(id);
        let zeros = || vec![0.0; if arena.is_batched() { args.n * shape.len() } else { shape.len() }];
        let numbers = numbers.cloned().unwrap_or_else(zeros);
        match arena {
            Arena::Activations => trial.activations(Layout::contiguous(shape.with_n(args.n)), &numbers),
            Arena::Labels => trial.labels_of(labels, shape.len()),
            _ => trial.run(arena, &numbers),
        }
    };
    let operands: Vec<_> = step.operands.iter().zip(numbers).map(|(&id, x)| tensor(id, Some(x))).collect();
    // What the first result is added to is read last.
    let added_to = |result| step.onto.and(numbers.last()).filter(|_| result == 0);
    let results: Vec<_> = step.results.iter().zip(0..).map(|(&id, k)| tensor(id, added_to(k))).collect();
    let write = if step.onto.is_some() { Write::Add } else { Write::Set };
    trial.step(step.op, &operands, &results, write);
    let mut run = trial.on(&**device)?;
    run.run(args)?;
    results.into_iter().map(|id| run.read(id, args.n)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(got: &[f32], expected: &[f32], precision: Precision) -> Comparison {
        Comparison::new("conv2d", "conv2d_forward", [got, expected], &Tolerance::of(precision))
    }

    #[test]
    fn a_single_wrong_element_is_found() {
        let expected: Vec<f32> = (0..1000).map(|k| (k as f32).sin()).collect();
        let with = |at: usize, x: f32| {
            let mut got = expected.clone();
            got[at] = x;
            compare(&got, &expected, Precision::Fp32)
        };
        assert!(compare(&expected, &expected, Precision::Fp32).agrees());
        assert!(with(3, expected[3] + 9e-5).agrees());
        let wrong = with(3, expected[3] + 2e-4);
        assert!(!wrong.agrees() && wrong.element == 3 && wrong.expected == expected[3], "{wrong}");
        for x in [f32::NAN, f32::INFINITY] {
            assert!(!with(999, x).agrees());
        }
        assert!(!compare(&expected[1..], &expected, Precision::Fp32).agrees());
        assert!(!compare(&[1e-30], &[0.0], Precision::Fp32).agrees());
        assert!(compare(&[0.0], &[0.0], Precision::Fp32).agrees());
        let said = with(0, 1.0).to_string();
        assert!(said.starts_with("conv2d_forward of conv2d: element 0 is 1e0, not 0e0; "), "{said}");
    }

    #[test]
    fn half_precision_ends_at_its_largest_number_and_begins_at_its_smallest() {
        let agrees = |got, expected| compare(&[got, 1.0], &[expected, 1.0], Precision::Fp16).agrees();
        assert!(agrees(f32::INFINITY, 70_000.0) && agrees(f32::NAN, f32::INFINITY));
        assert!(!agrees(f32::INFINITY, 65_000.0) && !agrees(9.0, 70_000.0));
        let tiny = |got, expected| compare(&[got], &[expected], Precision::Fp16).agrees();
        assert!(tiny(0.0, 5e-8) && !tiny(0.0, 7e-8));
    }

    /// Behind the first normalization lies another one, so the gradients that it gets add up to 0 in each channel.
    #[test]
    fn sums_that_cancel_are_rounding() {
        use crate::{BatchNormalization, Conv2D, Dense, Flatten, Graph, Mode};
        let mut graph = Graph::new("cancelling", [1, 1, 8]);
        let x = graph.add(Conv2D::new(16, 1), graph.input()).unwrap();
        let x = graph.add(BatchNormalization::new(), x).unwrap();
        let x = graph.add(Conv2D::new(16, 1), x).unwrap();
        let x = graph.add(BatchNormalization::new(), x).unwrap();
        let x = graph.add(Flatten, x).unwrap();
        let logits = graph.add(Dense::new(4), x).unwrap();
        let mut network = graph.build(logits, &towers_tensor_cpu::device(1), 16, Mode::Training).unwrap();
        network.init(1).unwrap();
        let images: Vec<f32> = (0..128).map(|k| (k as f32).sin()).collect();
        let labels: Vec<u32> = (0..16).map(|k| k % 4).collect();
        let draws = Draws { seed: 1, step: 0, first_sample: 0 };
        let reference = towers_tensor_cpu::reference();
        let all = network.compare_train_pass(&reference, &images, &labels, draws, 0.0).unwrap();
        assert!(all.iter().all(Comparison::agrees), "{all:?}");
        let sums = |c: &&Comparison| c.op == "batch_norm_weight_gradient" && c.expected.abs() < 1e-6;
        let cancelled = all.iter().find(sums).expect("a sum cancels");
        let plain = Tolerance::of(Precision::Fp32);
        let alone = Comparison::new("", "", [&[cancelled.got], &[cancelled.expected]], &plain);
        assert!(!alone.agrees(), "{cancelled:?}");
    }

    #[test]
    fn nearby_numbers_differ_by_a_part_in_both_directions() {
        let near = nearby(&[vec![2.0; 1000]], 0.5);
        let up = near[0].iter().filter(|&&x| x == 3.0).count();
        assert!((400..600).contains(&up) && near[0].iter().all(|&x| x == 3.0 || x == 1.0), "{up}");
        assert_eq!(mean_difference(&[1.0, f32::INFINITY, 3.0], &[1.0, 2.0, 1.0]), 2.0_f32.sqrt());
        assert_eq!(mean_difference(&[], &[]), 0.0);
    }

    /// A rectifier's input that is 0 up to rounding.
    #[test]
    fn a_single_element_may_flip_where_an_op_rectifies_anew() {
        let bn = towers_program::BatchNorm { epsilon: 1e-3, act: Activation::Relu };
        let how = |bn| {
            let op = Op::from(towers_program::ops::BatchNormInputGradient { bn, shared: false });
            Tolerance::of_op(&op, Precision::Fp32)
        };
        let expected = vec![1.0; 100_000];
        let mut got = expected.clone();
        let agrees = |got: &[f32], how| Comparison::new("", "", [got, &expected], &how).agrees();
        got[17] = 0.0;
        assert!(agrees(&got, how(bn)));
        assert!(!agrees(&got, how(towers_program::BatchNorm { act: Activation::None, ..bn })));
        got[..100].fill(0.0);
        assert!(!agrees(&got, how(bn)), "the first row of a thousand is missing");
    }
}
