//! Batch normalization over several replicas' parts of a batch: the two halves of both passes, with what replicas tell each
//! other between them, on one device.

use crate::normalization::{Normalization, Tolerances};
use crate::operand::*;
use crate::shown::brief;
use crate::{Bench, Case, Ops, Output, Source, Subject};
use core::ops::Range;
#[cfg(feature = "random")]
use proptest::prelude::*;
use towers_program::ops::{BatchNormInputGradient, BatchNormMoments, BatchNormWeightGradient, SyncBatchNorm};
use towers_program::{Activation, Arena, BatchNorm, Result, Shape, StepArgs, Write, operands};

/// A batch in parts.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The same of the whole batch, which must come out.
    pub whole: Normalization,
    /// The samples of each part; none, perhaps.
    pub samples: Vec<usize>,
}

impl Parts {
    /// The samples of each part.
    fn rows(&self) -> impl Iterator<Item = Range<usize>> {
        self.samples.iter().scan(0, |start, &n| {
            let rows = *start..*start + n;
            *start += n;
            Some(rows)
        })
    }
}

impl Case for Parts {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let Normalization { shape, place, act, mode, .. } = self.whole;
        let (c, bn, stats_len) = (shape.c, BatchNorm { epsilon: 1e-3, act }, BatchNorm::stats_len(shape.c));
        let (all_x, all_dy) = (self.whole.input(), Operand::draw("dy", shape, place));
        let params =
            |ops: &mut Ops| ["gamma", "beta", "bias"].map(|name| ops.numbers(Arena::Parameters, name, c));
        let mut stats = Vec::new();
        for rows in self.rows() {
            let mut ops = bench.ops(rows.len(), place);
            let x = ops.tensor(&all_x.samples(rows));
            let own = ops.numbers(Arena::Statistics, "own", stats_len);
            ops.set(BatchNormMoments, [x], [own]);
            stats.extend(ops.run()?.output(own, "stats", 0.0)?.values);
        }
        // What replicas add up, added up on the host: dgamma, dbeta, sums.
        let (mut added, mut y, mut dx) = (vec![0.0_f32; 4 * c], Vec::new(), Vec::new());
        let mut saved = Vec::new();
        for rows in self.rows() {
            let mut ops = bench.ops(rows.len(), place);
            let (x, dy) =
                (ops.tensor(&all_x.samples(rows.clone())), ops.tensor(&all_dy.samples(rows.clone())));
            let own_y = ops.draw("y", shape.with_n(rows.len()));
            let all = ops.run_of(Arena::Statistics, &stats);
            let of_batch = ops.numbers(Arena::Statistics, "saved", 2 * c);
            let [gamma, beta, bias] = params(&mut ops);
            let [dgamma, dbeta] = ["dgamma", "dbeta"].map(|name| ops.numbers(Arena::Gradients, name, c));
            let sums = ops.numbers(Arena::Gradients, "sums", 2 * c);
            let joined = operands::SyncBatchNorm { x, stats: all, gamma, beta, bias: Some(bias) };
            ops.set(SyncBatchNorm { bn }, joined, [own_y, of_batch, sums]);
            let of_weights = operands::BatchNormWeightGradient { x, gamma, beta, saved: of_batch, dy };
            ops.set(BatchNormWeightGradient { bn }, of_weights, [dgamma, dbeta]);
            let done = ops.run()?;
            let own = [dgamma, dbeta, sums].map(|id| done.output(id, "sums", 0.0));
            let own = own.into_iter().collect::<Result<Vec<Output>>>()?;
            let own = own.into_iter().flat_map(|output| output.values);
            added.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
            y.extend(done.output(own_y, "y", 0.0)?.values);
            saved = done.output(of_batch, "saved", 0.0)?.values;
        }
        for rows in self.rows() {
            let mut ops = bench.ops(rows.len(), place);
            let (x, dy) =
                (ops.tensor(&all_x.samples(rows.clone())), ops.tensor(&all_dy.samples(rows.clone())));
            let own = ops.tensor(&Operand::draw("dx", shape, place).samples(rows.clone()));
            let of_batch = ops.run_of(Arena::Statistics, &saved);
            let gradients = ops.run_of(Arena::Statistics, &added[..2 * c]);
            let [gamma, beta, _] = params(&mut ops);
            let op = BatchNormInputGradient { bn, shared: true };
            let of_all = operands::BatchNormInputGradient {
                x,
                gamma,
                beta,
                saved: of_batch,
                dy,
                sums: gradients,
                dbeta: None,
            };
            ops.write(op, of_all, [own], mode);
            let args = StepArgs { global_batch: shape.n, ..StepArgs::inference(rows.len()) };
            dx.extend(ops.run_with(&args)?.output(own, "dx", 0.0)?.values);
        }
        let Tolerances { of_numbers, lost, .. } = self.whole.tolerances();
        let stored = |name, values, tolerance| Output {
            source: Source::Stored,
            ..Output::new(name, values, tolerance)
        };
        let mut outputs = vec![stored("y", y, of_numbers)];
        let halves = |values, names| self.whole.statistics(Output::new("", values, 0.0), names);
        outputs.extend(halves(saved, ["mean", "inverse deviation"]));
        outputs.push(Output::new("dgamma", added[..c].to_vec(), 5e-6 * lost));
        outputs.push(Output::new("dbeta", added[c..2 * c].to_vec(), 5e-6 * lost));
        outputs.extend(halves(added.split_off(2 * c), ["n * mean", "n * variance"]));
        outputs.push(stored("dx", dx, 1e-5 * lost));
        Ok(outputs)
    }
}

fn parts(samples: &[usize], [h, w, c]: [usize; 3]) -> Parts {
    let shape = Shape::new(samples.iter().sum(), h, w, c);
    let whole = Normalization { shape, place: ALONE, act: Activation::Relu, mode: Write::Set, mean: 0.0 };
    Parts { whole, samples: samples.to_vec() }
}

/// Parts of one batch, in f64, are the batch: every number that they compute, and every sum that replicas add up.
pub fn parts_are_the_whole(subject: &Subject) {
    let bench = subject.reference();
    for samples in [&[5][..], &[2, 3], &[0, 0, 5], &[4, 0, 1], &[1, 1, 1, 1, 1]] {
        for (act, mode, mean) in [(Activation::Relu, Write::Set, 0.0), (Activation::None, Write::Add, 30.0)] {
            let mut case = parts(samples, [3, 4, 7]);
            case.whole = Normalization { act, mode, mean, ..case.whole };
            let expected = case.whole.run(&bench).expect("the reference runs every case");
            for got in case.run(&bench).expect("the reference runs every case") {
                let whole =
                    expected.iter().find(|e| e.name == got.name).expect("the whole batch has all of it");
                let largest = whole.values.iter().fold(0.0, |m: f32, x| m.max(x.abs()));
                for (a, b) in got.values.iter().zip(&whole.values) {
                    assert!(
                        (a - b).abs() <= 1e-6 * (1.0 + mean) * largest,
                        "{} of {}: {a}, not {b}",
                        got.name,
                        brief(&case)
                    );
                }
            }
        }
    }
}

/// The shapes that training is made of, in uneven parts, one of them empty.
pub fn layers_of_real_networks(subject: &Subject) {
    for (samples, sizes) in [([2, 0, 1], [32, 32, 96]), ([0, 2, 2], [15, 15, 112]), ([5, 5, 6], [7, 7, 336])]
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
pub fn a_large_mean_costs_nothing(subject: &Subject) {
    let side = if subject.fit(Shape::new(1, 32, 32, 10), 160).h < 32 { 8 } else { 32 };
    for samples in [[8, 8, 8, 8], [0, 1, 30, 1]] {
        let mut case = parts(&samples, [side, side, 10]);
        case.whole = Normalization { mean: 300.0, act: Activation::None, ..case.whole };
        subject.agree(&case);
    }
}

/// No samples anywhere: the statistics and gradients are 0.
pub fn an_empty_batch(subject: &Subject) {
    subject.agree(&parts(&[0, 0], [4, 4, 16]));
    subject.agree(&parts(&[0], [3, 5, 7]));
}

/// Sizes, places, means and parts at random.
#[cfg(feature = "random")]
pub fn any_parts(subject: &Subject) {
    let sizes = (prop::collection::vec(0..4_usize, 1..5), 1..7_usize, 1..7_usize, 1..70_usize);
    let cases = (sizes, placement(), write_mode(), activation(), -4.0..4.0_f32);
    let case = |((samples, h, w, c), place, mode, act, mean)| {
        let mut case = parts(Vec::as_slice(&samples), [h, w, c]);
        case.whole = Normalization { place, mode, act, mean, ..case.whole };
        // As for whole batches: of one or two numbers rounding is all that is left.
        (![1, 2].contains(&case.whole.shape.rows())).then_some(case)
    };
    subject.agree_on(64, cases.prop_filter_map("more than two pixels", case));
}
