//! Batch normalization over several replicas' parts of a batch: the two halves of both passes, with what replicas tell each
//! other between them, on one device.

use crate::normalization::Normalization;
use crate::operand::*;
use crate::{Bench, Case, Output, Subject};
use core::ops::Range;
use program::{
    Activation, AffineSpans, Backend, BatchNorm, NormGrads, NormSaved, NormTrain, Result, Run, RunMut, Shape,
    Span, View, ViewMut, Write,
};
use proptest::prelude::*;

/// A batch in parts.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The same of the whole batch, which must come out.
    pub whole: Normalization,
    /// The samples of each part; none, perhaps.
    pub samples: Vec<usize>,
}

impl Parts {
    /// The samples of each part; an empty one lies at the beginning, where there is memory.
    fn rows(&self) -> impl Iterator<Item = Range<usize>> {
        self.samples.iter().scan(0, |start, &n| {
            let rows = if n == 0 { 0..0 } else { *start..*start + n };
            *start += n;
            Some(rows)
        })
    }
}

impl Case for Parts {
    fn run<B: Backend>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
        let Normalization { shape, place, act, mode, mean } = self.whole;
        let (device, c, bn) = (bench.device, shape.c, BatchNorm { epsilon: 1e-3, act });
        let x = self.whole.input().on(bench)?;
        let dy = Operand::draw("dy", shape, place).on(bench)?;
        let mut y = Operand::draw("y", shape, place).on(bench)?;
        let mut dx = Operand::draw("dx", shape, place).on(bench)?;
        let params = bench.arena("params", 3 * c + 3)?.data;
        let affine = Run::new(&params, AffineSpans { gamma: Span::new(3, c), beta: Span::new(3 + c, c) });
        let bias = Some(Span::new(3 + 2 * c, c));
        let stats_len = BatchNorm::stats_len(c);
        let mut stats = bench.arena("stats", self.samples.len() * stats_len + 1)?;
        let mut saved = bench.arena("saved", 2 * c + 1)?;
        let (dgamma, dbeta, sums) = (Span::new(0, c), Span::new(c, c), Span::new(2 * c, 2 * c));
        let gradients = AffineSpans { gamma: dgamma, beta: dbeta };
        let part = |tensor: View<'_, B::Buffer>, rows| tensor.layout.samples(rows);
        for (k, rows) in self.rows().enumerate() {
            let x = View::new(x.view().data, part(x.view(), rows));
            device.bn_statistics(x, stats.run_mut(Span::new(k * stats_len, stats_len)))?;
        }
        // What replicas add up, added up on the host.
        let mut added = vec![0.0_f32; 4 * c];
        for rows in self.rows() {
            let mut grads = bench.arena("grads", 4 * c)?.data;
            let (x, layout) =
                (View::new(x.view().data, part(x.view(), rows.clone())), part(y.view(), rows.clone()));
            let y = ViewMut::new(y.view_mut().data, layout);
            let sums = RunMut::new(&mut grads, sums);
            let norm = NormTrain { affine, bias, saved: &mut saved.data, sums };
            let all = stats.run(Span::new(0, self.samples.len() * stats_len));
            device.bn_act_fwd_joined(&bn, x, all, norm, y)?;
            let dy = View::new(dy.view().data, part(dy.view(), rows));
            let norm = NormSaved { x, affine, saved: &saved.data };
            device.bn_act_bwd_params(&bn, norm, dy, RunMut::new(&mut grads, gradients))?;
            let own = bench.download(&grads, Span::new(0, 4 * c))?;
            added.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
        let grads = bench.arena_of(added)?;
        for rows in self.rows() {
            let x = View::new(x.view().data, part(x.view(), rows.clone()));
            let (dy, layout) =
                (View::new(dy.view().data, part(dy.view(), rows.clone())), part(dx.view(), rows));
            let norm = NormSaved { x, affine, saved: &saved.data };
            let whole = NormGrads { grads: grads.run(gradients), count: shape.rows() };
            let dx = ViewMut::new(dx.view_mut().data, layout);
            device.bn_act_bwd_data(&bn, norm, dy, whole, dx, mode)?;
        }
        let lost = 1.0 + mean.abs();
        let (of_mean, of_variance) = (2e-5 / lost + 2e-7, 5e-6 * lost.sqrt());
        let mut outputs = vec![y.output(bench, "y", 2e-6 * lost)?];
        let (first, second) = (Span::new(0, c), Span::new(c, c));
        outputs.extend(
            saved.outputs(bench, &[("mean", first, of_mean), ("inverse deviation", second, of_variance)])?,
        );
        outputs.extend(grads.outputs(
            bench,
            &[
                ("dgamma", dgamma, 5e-6 * lost),
                ("dbeta", dbeta, 5e-6 * lost),
                ("n * mean", Span::new(2 * c, c), of_mean),
                ("n * variance", Span::new(3 * c, c), of_variance),
            ],
        )?);
        outputs.push(dx.output(bench, "dx", 1e-5 * lost)?);
        Ok(outputs)
    }
}

fn parts(samples: &[usize], [h, w, c]: [usize; 3]) -> Parts {
    let shape = Shape::new(samples.iter().sum(), h, w, c);
    let whole = Normalization { shape, place: ALONE, act: Activation::Relu, mode: Write::Set, mean: 0.0 };
    Parts { whole, samples: samples.to_vec() }
}

/// Parts of one batch, in f64, are the batch: every number that they compute, and every sum that replicas add up.
pub fn parts_are_the_whole<B: Backend>(subject: &Subject<B>) {
    let bench = subject.reference();
    for samples in [&[5][..], &[2, 3], &[0, 0, 5], &[4, 0, 1], &[1, 1, 1, 1, 1]] {
        for (act, mode, mean) in [(Activation::Relu, Write::Set, 0.0), (Activation::None, Write::Add, 300.0)]
        {
            let mut case = parts(samples, [3, 4, 7]);
            case.whole = Normalization { act, mode, mean, ..case.whole };
            let expected = case.whole.run(&bench).expect("the reference runs every case");
            for got in case.run(&bench).expect("the reference runs every case") {
                let whole =
                    expected.iter().find(|e| e.name == got.name).expect("the whole batch has all of it");
                let largest = whole.values.iter().fold(0.0, |m: f32, x| m.max(x.abs()));
                for (a, b) in got.values.iter().zip(&whole.values) {
                    assert!((a - b).abs() <= 1e-6 * largest, "{} of {case:?}: {a}, not {b}", got.name);
                }
            }
        }
    }
}

/// The shapes that training is made of, in uneven parts, one of them empty.
pub fn layers_of_real_networks<B: Backend>(subject: &Subject<B>) {
    for (samples, sizes) in
        [([5, 0, 6], [32, 32, 96]), ([0, 2, 2], [15, 15, 112]), ([21, 21, 22], [7, 7, 336])]
    {
        let mut case = parts(&samples, sizes);
        let fits = subject.fit(case.whole.shape, 16 * sizes[2]);
        if fits != case.whole.shape {
            case = parts(&[1, 0, 2], [fits.h.min(8), fits.w.min(8), sizes[2]]);
        }
        subject.agree(&case);
    }
}

/// Around a mean of several hundred neither mean nor variance may lose digits, in a part or between the parts.
pub fn a_large_mean_costs_nothing<B: Backend>(subject: &Subject<B>) {
    let side = if subject.fit(Shape::new(1, 32, 32, 10), 160).h < 32 { 8 } else { 32 };
    for samples in [[8, 8, 8, 8], [0, 1, 30, 1]] {
        let mut case = parts(&samples, [side, side, 10]);
        case.whole = Normalization { mean: 300.0, act: Activation::None, ..case.whole };
        subject.agree(&case);
    }
}

/// No samples anywhere: the statistics and gradients are 0.
pub fn an_empty_batch<B: Backend>(subject: &Subject<B>) {
    subject.agree(&parts(&[0, 0], [4, 4, 16]));
    subject.agree(&parts(&[0], [3, 5, 7]));
}

/// Sizes, places, means and parts at random.
pub fn any_parts<B: Backend>(subject: &Subject<B>) {
    let sizes = (prop::collection::vec(0..4_usize, 1..5), 1..7_usize, 1..7_usize, 1..70_usize);
    let cases = (sizes, placement(), write_mode(), activation(), -4.0..4.0_f32);
    let case = |((samples, h, w, c), place, mode, act, mean)| {
        let mut case = parts(Vec::as_slice(&samples), [h, w, c]);
        case.whole = Normalization { place, mode, act, mean, ..case.whole };
        // As for whole batches: of two numbers rounding is all that is left.
        (case.whole.shape.rows() != 2).then_some(case)
    };
    subject.agree_on(64, cases.prop_filter_map("more than two pixels", case));
}
