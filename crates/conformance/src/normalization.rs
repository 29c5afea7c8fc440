//! Batch normalization: training forward and backward, the running statistics, and inference with them.

use crate::operand::*;
use crate::{Bench, Case, Output, Subject};
use program::{
    Activation, AffineSpans, Backend, BatchNorm, NormInfer, NormSaved, NormSpans, NormTrain, Result, RunMut,
    Shape, Span, Write,
};
use proptest::prelude::*;

/// Training forward and backward, the running statistics, and inference with them.
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
}

impl Case for Normalization {
    fn run<B: Backend>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
        let (device, c, bn) = (bench.device, self.shape.c, BatchNorm { epsilon: 1e-3, act: self.act });
        let x = self.input().on(bench)?;
        let dy = Operand::draw("dy", self.shape, self.place).on(bench)?;
        let mut y = Operand::draw("y", self.shape, self.place).on(bench)?;
        let mut dx = Operand::draw("dx", self.shape, self.place).on(bench)?;
        let params = bench.arena("params", 3 * c + 3)?;
        let at = AffineSpans { gamma: Span::new(3, c), beta: Span::new(3 + c, c) };
        let (affine, bias) = (params.run(at), Some(Span::new(3 + 2 * c, c)));
        let (mut saved, mut grads) = (bench.arena("saved", 2 * c + 1)?, bench.arena("grads", 4 * c + 1)?);
        let (dgamma, dbeta, sums) = (Span::new(0, c), Span::new(c, c), Span::new(2 * c, 2 * c));
        let norm = NormTrain { affine, bias, saved: &mut saved.data, sums: grads.run_mut(sums) };
        device.bn_act_fwd_train(&bn, x.view(), norm, y.view_mut())?;
        // Digits that the mean takes from f32 itself.
        let lost = 1.0 + self.mean.abs();
        let mut outputs = vec![y.output(bench, "y", 2e-6 * lost)?];
        let mut again = Operand::draw("y again", self.shape, self.place).on(bench)?;
        let norm = NormSaved { x: x.view(), affine, saved: &saved.data };
        device.bn_act_fwd_again(&bn, norm, again.view_mut())?;
        let again = again.output(bench, "y again", 2e-6 * lost)?;
        assert!(
            again.same_bits(&outputs[0]),
            "the output has other bits when it is computed again: {self:?}"
        );
        let gradients = grads.run_mut(AffineSpans { gamma: dgamma, beta: dbeta });
        device.bn_act_bwd(&bn, norm, dy.view(), gradients, dx.view_mut(), self.mode)?;
        let mut running = bench.arena_of(vec![1.0; 2 * c + 1])?;
        let whole = Span::new(0, 2 * c);
        let scale = 1.0 / self.shape.n.max(1) as f32;
        device.ema_step(0.9, scale, &grads.data, sums, &mut running.data, whole)?;
        let (mean, var) = (Span::new(0, c), Span::new(c, c));
        let at = NormSpans { affine: at, mean, var };
        let norm = NormInfer { params: &params.data, running: &running.data, at };
        device.bn_act_fwd_infer(&bn, x.view(), norm, y.view_mut())?;
        // Of means near 0, which are sums of much larger numbers.
        let of_mean = 2e-5 / lost + 2e-7;
        let of_variance = 5e-6 * lost.sqrt();
        let (sum_of_means, sum_of_variances) = (Span::new(2 * c, c), Span::new(3 * c, c));
        let grads = grads.outputs(
            bench,
            &[
                ("dgamma", dgamma, 5e-6 * lost),
                ("dbeta", dbeta, 5e-6 * lost),
                ("n * mean", sum_of_means, of_mean),
                ("n * variance", sum_of_variances, of_variance),
            ],
        )?;
        let saved =
            saved.outputs(bench, &[("mean", mean, of_mean), ("inverse deviation", var, of_variance)])?;
        outputs.extend(saved.into_iter().chain(grads));
        outputs.extend(running.outputs(bench, &[("running", whole, 1e-6)])?);
        outputs.push(dx.output(bench, "dx", 1e-5 * lost)?);
        outputs.push(y.output(bench, "y of inference", 2e-6 * lost)?);
        Ok(outputs)
    }
}

fn case(shape: Shape, place: Placement) -> Normalization {
    Normalization { shape, place, act: Activation::Relu, mode: Write::Set, mean: 0.0 }
}

/// The shapes that training is made of.
pub fn layers_of_real_networks<B: Backend>(subject: &Subject<B>) {
    for (n, side, c, place) in
        [(16, 32, 96, ALONE), (8, 32, 48, WIDE_SLICE), (4, 15, 112, SLICE), (64, 7, 336, ALONE)]
    {
        subject.agree(&case(subject.fit(Shape::new(n, side, side, c), 16 * c), place));
    }
}

/// 65536 numbers a channel around a mean of several hundred: neither mean nor variance may lose digits to it.
pub fn a_large_mean_costs_nothing<B: Backend>(subject: &Subject<B>) {
    let shape = subject.fit(Shape::new(64, 32, 32, 10), 160);
    subject.agree(&Normalization { mean: 300.0, act: Activation::None, ..case(shape, ALONE) });
}

/// No samples: the statistics and gradients are 0.
pub fn an_empty_batch<B: Backend>(subject: &Subject<B>) {
    subject.agree(&case(Shape::new(0, 4, 4, 16), WIDE_SLICE));
    subject.agree(&Normalization { mode: Write::Add, ..case(Shape::new(0, 3, 5, 7), SLICE) });
}

/// Channels that are the same number everywhere.
#[derive(Debug)]
struct Constant;

impl Case for Constant {
    fn run<B: Backend>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
        let (shape, bn) = (Shape::new(3, 30, 30, 4), BatchNorm { epsilon: 1e-3, act: Activation::None });
        let x = Operand::constant(123.456, shape, ALONE).on(bench)?;
        let mut y = Operand::draw("y", shape, ALONE).on(bench)?;
        let params = bench.arena_of(vec![1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5])?;
        let (mut saved, mut grads) = (bench.device.alloc(8)?, bench.device.alloc(8)?);
        let affine = params.run(AffineSpans { gamma: Span::new(0, 4), beta: Span::new(4, 4) });
        let sums = RunMut::new(&mut grads, Span::new(0, 8));
        let norm = NormTrain { affine, bias: None, saved: &mut saved, sums };
        bench.device.bn_act_fwd_train(&bn, x.view(), norm, y.view_mut())?;
        let variance = Output::new("variance", bench.download(&grads, Span::new(4, 4))?, 0.0);
        Ok(vec![variance, y.output(bench, "y", 0.0)?])
    }
}

/// A constant channel has a variance of exactly 0, and becomes beta.
pub fn constant_channels<B: Backend>(subject: &Subject<B>) {
    let expected = Constant.run(&subject.reference()).expect("the reference runs every case");
    assert!(expected[1].values.iter().all(|&y| y == 0.5) && expected[0].values == [0.0; 4]);
    subject.agree(&Constant);
}

/// A NaN in one channel.
#[derive(Debug)]
struct Nan;

impl Case for Nan {
    fn run<B: Backend>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
        let (shape, bn) = (Shape::new(2, 5, 5, 8), BatchNorm { epsilon: 1e-3, act: Activation::Relu });
        let x = Operand::draw("x", shape, ALONE).with(11, f32::NAN).on(bench)?;
        let mut y = Operand::draw("y", shape, ALONE).on(bench)?;
        let params = bench.arena("params", 16)?;
        let (mut saved, mut grads) = (bench.device.alloc(16)?, bench.device.alloc(16)?);
        let affine = params.run(AffineSpans { gamma: Span::new(0, 8), beta: Span::new(8, 8) });
        let sums = RunMut::new(&mut grads, Span::new(0, 16));
        let norm = NormTrain { affine, bias: None, saved: &mut saved, sums };
        bench.device.bn_act_fwd_train(&bn, x.view(), norm, y.view_mut())?;
        let y = y.output(bench, "y", 1e-5)?;
        assert_eq!(y.values.iter().filter(|y| y.is_nan()).count(), 50, "the whole channel, and no other");
        Ok(vec![y])
    }
}

/// A NaN comes through the statistics and the fused activation, so that a diverged run is seen.
pub fn nan_stays<B: Backend>(subject: &Subject<B>) {
    subject.agree(&Nan);
}

/// Differences whose squares are no numbers of 32 bits any more: a variance of 0 would hide that, and make outputs enormous.
pub fn squares_that_overflow_show<B: Backend>(subject: &Subject<B>) {
    for bench in subject.benches() {
        let run = || {
            let shape = Shape::new(2, 3, 5, 3);
            let x = Operand::draw("x", shape, ALONE).map(|x| x * 1e30).on(&bench)?;
            let (mut stats, at) = (bench.arena_of(vec![0.0; 7])?, Span::new(0, 7));
            bench.device.bn_statistics(x.view(), stats.run_mut(at))?;
            bench.download(&stats.data, at)
        };
        let stats = run().expect("the statistics of what a device can hold");
        assert!(stats[3..6].iter().all(|&squares| squares.is_nan() || squares > 1e30), "{stats:?}");
    }
}

/// Sizes, places and means at random.
pub fn any_shape<B: Backend>(subject: &Subject<B>) {
    let sizes = (0..5_usize, 1..9_usize, 1..9_usize, 1..70_usize);
    let cases = (sizes, placement(), write_mode(), activation(), -4.0..4.0_f32);
    let case = |((n, h, w, c), place, mode, act, mean)| {
        let shape = Shape::new(n, h, w, c);
        // Two numbers become 1 and -1, and rounding is all that is left of the input's gradient.
        (shape.rows() != 2).then_some(Normalization { shape, place, act, mode, mean })
    };
    subject.agree_on(64, cases.prop_filter_map("more than two pixels", case));
}
