//! Batch normalization: training forward and backward, and inference with running averages. Group normalization.

use crate::operand::*;
use crate::shown::brief;
use crate::{Bench, Case, Output, Subject};
#[cfg(feature = "random")]
use proptest::prelude::*;
use towers_program::ops::{
    BatchNormInfer, BatchNormInferGradient, BatchNormInputGradient, BatchNormMoments, BatchNormRecompute,
    BatchNormTrain, BatchNormWeightGradient, GroupNorm, GroupNormGradient,
};
use towers_program::{Activation, Arena, BatchNorm, Result, Shape, Write, operands, results};

/// Training forward and backward, and inference with running averages.
#[derive(Clone, Debug)]
pub struct Normalization {
    /// Of the input.
    pub shape: Shape,
    /// Of all activations.
    pub place: Placement,
    /// What follows.
    pub act: Activation,
    /// How the input's gradient is written.
    pub mode: Write,
    /// The channels' means: far from 0 they cost digits.
    pub mean: f32,
}

impl Normalization {
    /// The input in quarters around the mean: whether a pre-activation is above 0 hangs on few different numbers, so that
    /// hardly ever rounding decides it.
    pub(crate) fn input(&self) -> Operand {
        Operand::draw("x", self.shape, self.place).map(|x| (x * 4.0).round() / 4.0 + self.mean)
    }

    pub(crate) fn tolerances(&self) -> Tolerances {
        let lost = 1.0 + self.mean.abs();
        // A mean near 0 is the sum of much larger numbers.
        Tolerances {
            lost,
            of_numbers: 2e-6 * lost,
            of_means: 2e-5 / lost + 2e-7,
            of_deviations: 5e-6 * lost.sqrt(),
        }
    }

    /// The two halves of a run of statistics.
    pub(crate) fn statistics(&self, whole: Output, names: [&'static str; 2]) -> [Output; 2] {
        let (means, deviations) = whole.values.split_at(self.shape.c);
        let Tolerances { of_means, of_deviations, .. } = self.tolerances();
        [
            Output::new(names[0], means.to_vec(), of_means),
            Output::new(names[1], deviations.to_vec(), of_deviations),
        ]
    }
}

/// How exact the numbers of a normalization are.
pub(crate) struct Tolerances {
    /// The digits that the mean takes from f32 itself, as a factor.
    pub(crate) lost: f32,
    pub(crate) of_numbers: f32,
    of_means: f32,
    of_deviations: f32,
}

impl Case for Normalization {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (shape, c, n) = (self.shape, self.shape.c, self.shape.n);
        let bn = BatchNorm { epsilon: 1e-3, act: self.act };
        let mut ops = bench.ops(n, self.place);
        let (x, dy) = (ops.tensor(&self.input()), ops.draw("dy", shape));
        let [y, again, dx, of_inference, dx_of_inference] =
            ["y", "again", "dx", "of inference", "dx of inference"].map(|name| ops.draw(name, shape));
        let [gamma, beta, bias] =
            ["gamma", "beta", "bias"].map(|name| ops.numbers(Arena::Parameters, name, c));
        let saved = ops.numbers(Arena::Statistics, "saved", 2 * c);
        let [dgamma, dbeta] = ["dgamma", "dbeta"].map(|name| ops.numbers(Arena::Gradients, name, c));
        let sums = ops.numbers(Arena::Gradients, "sums", 2 * c);
        let mean = ops.numbers(Arena::Averages, "mean", c);
        let variance: Vec<f32> = numbers("variance", c).into_iter().map(f32::abs).collect();
        let variance = ops.run_of(Arena::Averages, &variance);
        let training = operands::BatchNormTrain { x, gamma, beta, bias: Some(bias) };
        ops.set(BatchNormTrain { bn }, training, results::BatchNormTrain { y, saved, sums });
        ops.set(BatchNormRecompute { bn }, operands::BatchNormRecompute { x, gamma, beta, saved }, [again]);
        let of_weights = operands::BatchNormWeightGradient { x, gamma, beta, saved, dy };
        ops.set(BatchNormWeightGradient { bn }, of_weights, [dgamma, dbeta]);
        let of_input = BatchNormInputGradient { bn, shared: false };
        let operands =
            operands::BatchNormInputGradient { x, gamma, beta, saved, dy, sums: dgamma, dbeta: Some(dbeta) };
        ops.write(of_input, operands, [dx], self.mode);
        let inference = operands::BatchNormInfer { x, gamma, beta, mean, var: variance };
        ops.set(BatchNormInfer { bn }, inference, [of_inference]);
        let gradient = BatchNormInferGradient { epsilon: bn.epsilon };
        ops.set(gradient, [dy, gamma, variance], [dx_of_inference]);
        let done = ops.run()?;
        let Tolerances { of_numbers, lost, .. } = self.tolerances();
        let y = done.output(y, "y", of_numbers)?;
        let again = done.output(again, "y again", of_numbers)?;
        assert!(again.same_bits(&y), "the output has other bits when it is computed again: {}", brief(self));
        let mut outputs = vec![y];
        outputs.extend(self.statistics(done.output(saved, "saved", 0.0)?, ["mean", "inverse deviation"]));
        outputs.push(done.output(dgamma, "dgamma", 5e-6 * lost)?);
        outputs.push(done.output(dbeta, "dbeta", 5e-6 * lost)?);
        outputs.extend(self.statistics(done.output(sums, "sums", 0.0)?, ["n * mean", "n * variance"]));
        outputs.push(done.output(dx, "dx", 1e-5 * lost)?);
        outputs.push(done.output(of_inference, "y of inference", of_numbers)?);
        outputs.push(done.output(dx_of_inference, "dx of inference", 2e-6)?);
        Ok(outputs)
    }
}

/// A normalization over groups of channels, forward and backward.
#[derive(Clone, Debug)]
pub struct Grouped {
    /// Input, placement, activation, and how the input's gradient is written.
    pub norm: Normalization,
    /// How many groups.
    pub groups: usize,
}

impl Case for Grouped {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let Normalization { shape, place, act, mode, .. } = self.norm;
        let (c, op) = (shape.c, GroupNorm { groups: self.groups, epsilon: 1e-3, act });
        let mut ops = bench.ops(shape.n, place);
        let (x, dy) = (ops.tensor(&self.norm.input()), ops.draw("dy", shape));
        let (y, dx) = (ops.draw("y", shape), ops.draw("dx", shape));
        let [gamma, beta] = ["gamma", "beta"].map(|name| ops.numbers(Arena::Parameters, name, c));
        let [dgamma, dbeta] = ["dgamma", "dbeta"].map(|name| ops.numbers(Arena::Gradients, name, c));
        ops.set(op, [x, gamma, beta], [y]);
        let gradients = results::GroupNormGradient { dx, dgamma, dbeta };
        let operands = operands::GroupNormGradient { x, gamma, beta, dy };
        ops.write(GroupNormGradient { norm: op }, operands, gradients, mode);
        let done = ops.run()?;
        let Tolerances { of_numbers, lost, .. } = self.norm.tolerances();
        Ok(vec![
            done.output(y, "y", of_numbers)?,
            done.output(dx, "dx", 1e-5 * lost)?,
            done.output(dgamma, "dgamma", 5e-6 * lost)?,
            done.output(dbeta, "dbeta", 5e-6 * lost)?,
        ])
    }
}

/// Over one channel, over some and over all, for as many pixels as real layers have.
fn groups_of_real_networks(subject: &Subject) {
    for (n, side, c, groups, place) in [
        (4, 32, 64, 32, ALONE),
        (2, 15, 48, 4, SLICE),
        (3, 7, 336, 1, WIDE_SLICE),
        (2, 9, 24, 24, ALONE),
        (2, 4, 512, 1, ALONE),
    ] {
        let shape = subject.fit(Shape::new(n, side, side, c), 16 * c);
        subject.agree(&Grouped { norm: case(shape, place), groups });
    }
}

/// Sizes, places, means and groups at random, and batches of none.
#[cfg(feature = "random")]
fn any_groups(subject: &Subject) {
    let sizes = (0..5_usize, 1..9_usize, 1..9_usize, 1..7_usize, 1..12_usize);
    let cases = (sizes, placement(), write_mode(), activation(), -4.0..4.0_f32);
    let case = |((n, h, w, size, groups), place, mode, act, mean)| {
        let norm = Normalization { shape: Shape::new(n, h, w, size * groups), place, act, mode, mean };
        // As for batches: of one or two numbers rounding is all that is left.
        (h * w * size > 2).then_some(Grouped { norm, groups })
    };
    subject.agree_on(64, cases.prop_filter_map("more than two numbers", case));
}

fn case(shape: Shape, place: Placement) -> Normalization {
    Normalization { shape, place, act: Activation::Relu, mode: Write::Set, mean: 0.0 }
}

/// The shapes that training is made of.
pub fn layers_of_real_networks(subject: &Subject) {
    for (n, side, c, place) in
        [(4, 32, 96, ALONE), (2, 32, 48, WIDE_SLICE), (4, 15, 112, SLICE), (16, 7, 336, ALONE)]
    {
        subject.agree(&case(subject.fit(Shape::new(n, side, side, c), 16 * c), place));
    }
    subject.agree(&Normalization { act: Activation::Gelu, ..case(Shape::new(2, 7, 7, 32), ALONE) });
    groups_of_real_networks(subject);
}

/// 65536 numbers a channel around a mean of several hundred: neither mean nor variance may lose digits to it.
pub fn a_large_mean_costs_nothing(subject: &Subject) {
    let shape = subject.fit(Shape::new(64, 32, 32, 10), 160);
    subject.agree(&Normalization { mean: 300.0, act: Activation::None, ..case(shape, ALONE) });
}

/// No samples: the statistics and gradients are 0.
pub fn an_empty_batch(subject: &Subject) {
    subject.agree(&case(Shape::new(0, 4, 4, 16), WIDE_SLICE));
    subject.agree(&Normalization { mode: Write::Add, ..case(Shape::new(0, 3, 5, 7), SLICE) });
}

/// Training's forward pass, with a gamma of 1 and a beta of a half.
#[derive(Debug)]
struct Channels {
    x: Operand,
    act: Activation,
    tolerance: f32,
}

impl Case for Channels {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (shape, c) = (self.x.layout.shape, self.x.layout.shape.c);
        let mut ops = bench.ops(shape.n, ALONE);
        let (x, y) = (ops.tensor(&self.x), ops.draw("y", shape));
        let gamma = ops.run_of(Arena::Parameters, &vec![1.0; c]);
        let beta = ops.run_of(Arena::Parameters, &vec![0.5; c]);
        let saved = ops.numbers(Arena::Statistics, "saved", 2 * c);
        let sums = ops.numbers(Arena::Gradients, "sums", 2 * c);
        let bn = BatchNorm { epsilon: 1e-3, act: self.act };
        ops.set(BatchNormTrain { bn }, [x, gamma, beta], [y, saved, sums]);
        let done = ops.run()?;
        let variance = done.output(sums, "variance", 0.0)?.values.split_off(c);
        Ok(vec![Output::new("variance", variance, self.tolerance), done.output(y, "y", self.tolerance)?])
    }
}

/// A constant channel has a variance of exactly 0, and becomes beta.
pub fn constant_channels(subject: &Subject) {
    for shape in [Shape::new(3, 30, 30, 4), Shape::new(2, 9, 9, 3), Shape::vectors(1, 5)] {
        let x = Operand::constant(123.456, shape, ALONE);
        let case = Channels { x, act: Activation::None, tolerance: 0.0 };
        let expected = case.run(&subject.reference()).expect("the reference runs every case");
        assert!(expected[1].values.iter().all(|&y| y == 0.5) && expected[0].values.iter().all(|&x| x == 0.0));
        subject.agree(&case);
    }
}

/// Outliers where a block's sums begin, as the corners of padded pictures may be, cost no digits.
pub fn outliers_in_front_cost_nothing(subject: &Subject) {
    let shape = subject.fit(Shape::new(8, 32, 32, 4), 64);
    for outlier in [10.0, 100.0, 1e3, -1e5] {
        let numbers = Operand::draw("x", shape, ALONE).map(|x| 3.0 + x);
        let corners = (0..shape.rows()).step_by(64).flat_map(|row| (0..shape.c).map(move |c| row * 4 + c));
        let x = corners.fold(numbers, |x, at| x.with(at, outlier));
        subject.agree(&Channels { x, act: Activation::Relu, tolerance: 1e-5 });
    }
}

/// The statistics of a training pass in which the first pixel of each image stands out.
#[derive(Debug)]
struct Corners {
    x: Operand,
    place: Placement,
}

impl Case for Corners {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (shape, c) = (self.x.layout.shape, self.x.layout.shape.c);
        let mut ops = bench.ops(shape.n, self.place);
        let (x, y) = (ops.tensor(&self.x), ops.draw("y", shape));
        let [gamma, beta] = ["gamma", "beta"].map(|name| ops.numbers(Arena::Parameters, name, c));
        let saved = ops.numbers(Arena::Statistics, "saved", 2 * c);
        let sums = ops.numbers(Arena::Gradients, "sums", 2 * c);
        let bn = BatchNorm { epsilon: 1e-3, act: Activation::Relu };
        ops.set(BatchNormTrain { bn }, [x, gamma, beta], [y, saved, sums]);
        let done = ops.run()?;
        let saved = done.output(saved, "saved", 0.0)?.values;
        // A mean next to 0 is measured by the deviation.
        let mean = saved[..c].iter().zip(&saved[c..]).map(|(mean, inverse)| 1.0 + mean * inverse).collect();
        let variance = done.output(sums, "sums", 0.0)?.values.split_off(c);
        let named = |name, values| Output::new(name, values, 1e-6);
        Ok(vec![named("1 + mean / deviation", mean), named("n * variance", variance)])
    }
}

/// Zero padding and a ReLU leave images whose first pixel stands out, here 10 to 30,000 times. Differences from that
/// pixel, or from a mean of rows that are an image apart, would cost three digits.
pub fn corners_that_stand_out_cost_nothing(subject: &Subject) {
    let backgrounds: [fn(f32) -> f32; 3] = [|_| 0.0, |x| x.max(0.0), |x| 3.0 + x];
    for place in [ALONE, SLICE, WIDE_SLICE] {
        for (n, h, w) in [(32, 4, 8), (8, 16, 16), (4, 16, 32)] {
            let shape = subject.fit(Shape::new(n, h, w, 6), 400);
            for background in backgrounds {
                for ratio in [10.0, 1e3, 3e4] {
                    let mut x = Operand::draw("x", shape, place).map(background);
                    for (image, channel) in (0..shape.n).flat_map(|n| (0..shape.c).map(move |c| (n, c))) {
                        let row = image * shape.h * shape.w;
                        let at = x.layout.offset + row * x.layout.stride + channel;
                        x.values[at] = ratio * (1.0 + channel as f32 / 16.0);
                    }
                    subject.agree(&Corners { x, place });
                }
            }
        }
    }
}

/// A group normalization forward, without the first pixel of its output.
#[derive(Debug)]
struct BesideCorner(Operand);

impl Case for BesideCorner {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let shape = self.0.layout.shape;
        let mut ops = bench.ops(shape.n, ALONE);
        let (x, y) = (ops.tensor(&self.0), ops.draw("y", shape));
        let gamma = ops.run_of(Arena::Parameters, &vec![1.0; shape.c]);
        let beta = ops.run_of(Arena::Parameters, &vec![0.0; shape.c]);
        ops.set(GroupNorm { groups: 1, epsilon: 1e-3, act: Activation::None }, [x, gamma, beta], [y]);
        let mut y = ops.run()?.output(y, "y", 1e-5)?;
        y.values.drain(..shape.c);
        Ok(vec![y])
    }
}

/// The same in a group, whose mean is near 0 beside its first number.
pub fn a_corner_of_a_group_costs_nothing(subject: &Subject) {
    let shape = subject.fit(Shape::new(1, 64, 64, 16), 16);
    for ratio in [10.1, 1003.7] {
        subject.agree(&BesideCorner(Operand::constant(0.0, shape, ALONE).with(0, ratio)));
    }
}

/// A NaN comes through the statistics and the fused activation, so that a diverged run is seen.
pub fn nan_stays(subject: &Subject) {
    let x = Operand::draw("x", Shape::new(2, 5, 5, 8), ALONE).with(11, f32::NAN);
    let case = Channels { x, act: Activation::Relu, tolerance: 1e-5 };
    let y = case.run(&subject.reference()).expect("the reference runs every case").remove(1);
    assert_eq!(y.values.iter().filter(|y| y.is_nan()).count(), 50, "the whole channel, and no other");
    subject.agree(&case);
}

/// Differences whose squares are no numbers of 32 bits any more: a variance of 0 would hide that, and make outputs enormous.
pub fn squares_that_overflow_show(subject: &Subject) {
    for bench in subject.benches() {
        let run = || {
            let shape = Shape::new(2, 3, 5, 3);
            let mut ops = bench.ops(shape.n, ALONE);
            let x = ops.tensor(&Operand::draw("x", shape, ALONE).map(|x| x * 1e30));
            let stats = ops.numbers(Arena::Statistics, "stats", 7);
            ops.set(BatchNormMoments, [x], [stats]);
            ops.run()?.output(stats, "stats", 0.0)
        };
        let stats = run().expect("the statistics of what a device can hold");
        assert!(stats.values[3..6].iter().all(|&squares| squares.is_nan() || squares > 1e30), "{stats:?}");
    }
}

/// Sizes, places and means at random.
#[cfg(feature = "random")]
pub fn any_shape(subject: &Subject) {
    let sizes = (0..5_usize, 1..9_usize, 1..9_usize, 1..70_usize);
    let cases = (sizes, placement(), write_mode(), activation(), -4.0..4.0_f32);
    let case = |((n, h, w, c), place, mode, act, mean)| {
        let shape = Shape::new(n, h, w, c);
        // One number becomes 0, two become 1 and -1, and rounding is all that is left of the input's gradient.
        (![1, 2].contains(&shape.rows())).then_some(Normalization { shape, place, act, mode, mean })
    };
    subject.agree_on(64, cases.prop_filter_map("more than two pixels", case));
    any_groups(subject);
}
