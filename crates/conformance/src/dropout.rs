//! Dropout: the mask's very bits, on any slice of the batch.

use crate::operand::*;
use crate::shown::assert_equal;
use crate::{Bench, Case, Output, Subject};
#[cfg(feature = "random")]
use proptest::prelude::*;
use towers_program::ops::Dropout;
use towers_program::{Noise, Result, Shape, StepArgs, Write};

/// A batch, or the gradient of one, of which some elements are dropped.
#[derive(Clone, Debug)]
pub struct Dropped {
    /// Of the batch.
    pub shape: Shape,
    /// Of the input.
    pub from: Placement,
    /// Of the output.
    pub to: Placement,
    /// How it is written.
    pub mode: Write,
    /// The op.
    pub op: Dropout,
    /// Seed, step and first sample.
    pub args: StepArgs,
}

impl Case for Dropped {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let mut ops = bench.ops(self.shape.n, ALONE);
        let x = ops.tensor(&Operand::draw("x", self.shape, self.from));
        let y = ops.tensor(&Operand::draw("y", self.shape, self.to));
        ops.write(self.op, [x], [y], self.mode);
        Ok(vec![ops.run_with(&self.args)?.output(y, "y", 1e-6)?])
    }
}

/// Sizes, places, rates and steps at random.
#[cfg(feature = "random")]
pub fn any_mask(subject: &Subject) {
    let sizes = (0..5_usize, 1..12_usize, 1..12_usize, 1..40_usize);
    let noise = prop::sample::select(&[Noise::Element, Noise::Channel, Noise::Sample][..]);
    let mask = ((0.0..0.95_f32, noise), any::<u32>(), any::<u64>(), any::<u64>(), any::<u32>());
    let cases = (sizes, placement(), placement(), write_mode(), mask);
    let case = |((n, h, w, c), from, to, mode, ((rate, noise), domain, seed, step, first_sample))| {
        let args = StepArgs { seed, step, first_sample, ..StepArgs::inference(n) };
        Dropped { shape: Shape::new(n, h, w, c), from, to, mode, op: Dropout { rate, noise, domain }, args }
    };
    subject.agree_on(64, cases.prop_map(case));
}

/// What dropout makes of ones.
fn of_ones(bench: &Bench, shape: Shape, op: Dropout, first_sample: u32) -> Vec<f32> {
    let run = || {
        let mut ops = bench.ops(shape.n, ALONE);
        let (x, y) = (ops.tensor(&Operand::constant(1.0, shape, ALONE)), ops.draw("y", shape));
        ops.set(op, [x], [y]);
        let args = StepArgs { seed: 7, step: 9, first_sample, ..StepArgs::inference(shape.n) };
        ops.run_with(&args)?.output(y, "y", 0.0)
    };
    run().expect("dropout runs").values
}

/// The mask belongs to a sample's place in the global batch: a slice of the batch gets a slice of the mask.
pub fn a_slice_of_the_batch_has_its_own_part_of_the_mask(subject: &Subject) {
    for noise in [Noise::Element, Noise::Channel, Noise::Sample] {
        let (op, shape) = (Dropout { rate: 0.5, noise, domain: 3 }, Shape::new(9, 3, 3, 7));
        for bench in subject.benches() {
            let whole = of_ones(&bench, shape, op, 0);
            let last = of_ones(&bench, shape.with_n(6), op, 3);
            assert_equal("the last samples", &whole[3 * 63..], &last);
            assert!(whole[..6 * 63] != last, "two slices of the batch have the same mask");
        }
    }
}

/// All pixels of a channel, or all of a sample, are dropped or kept together.
pub fn channels_and_samples_stay_together(subject: &Subject) {
    let (shape, pixels) = (Shape::new(8, 3, 3, 21), 9);
    for bench in subject.benches() {
        let y = of_ones(&bench, shape, Dropout { rate: 0.5, noise: Noise::Channel, domain: 3 }, 0);
        for (sample, y) in y.chunks(pixels * shape.c).enumerate() {
            assert!(y.chunks(shape.c).all(|pixel| pixel == &y[..shape.c]), "sample {sample}");
            assert!(y[..shape.c].iter().any(|&one| one != y[0]), "all channels of sample {sample} are alike");
        }
        let y = of_ones(&bench, shape, Dropout { rate: 0.5, noise: Noise::Sample, domain: 3 }, 0);
        assert!(y.chunks(pixels * shape.c).all(|y| y.iter().all(|&one| one == y[0])));
        assert!(y.iter().any(|&one| one != y[0]), "all samples are alike");
    }
}

/// As many are dropped as the rate says, up to five standard deviations.
pub fn the_rate_is_kept(subject: &Subject) {
    let shape = Shape::new(4, 16, 16, 33);
    for bench in subject.benches() {
        for rate in [0.0, 0.1, 0.5, 0.9] {
            let y = of_ones(&bench, shape, Dropout { rate, noise: Noise::Element, domain: 5 }, 0);
            let dropped = y.iter().filter(|&&y| y == 0.0).count() as f64;
            let (len, rate) = (shape.len() as f64, f64::from(rate));
            let deviation = (len * rate * (1.0 - rate)).sqrt();
            let few = (dropped - rate * len).abs() <= 5.0 * deviation;
            assert!(few, "{dropped} of {len} dropped at a rate of {rate}");
        }
    }
}
