//! Dropout: the mask's very bits, on any slice of the batch.

use crate::operand::*;
use crate::{Bench, Case, Output, Subject};
use program::{Backend, DropoutMask, Result, Shape, Write};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Dropout {
    shape: Shape,
    from: Placement,
    to: Placement,
    mode: Write,
    mask: DropoutMask,
}

impl Case for Dropout {
    fn run<B: Backend>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
        let x = Operand::draw("x", self.shape, self.from).on(bench)?;
        let mut y = Operand::draw("y", self.shape, self.to).on(bench)?;
        bench.device.dropout(&self.mask, x.view(), y.view_mut(), self.mode)?;
        Ok(vec![y.output(bench, "y", 1e-6)?])
    }
}

/// Sizes, places, rates and steps at random.
pub fn any_mask<B: Backend>(subject: &Subject<B>) {
    let sizes = (0..5_usize, 1..12_usize, 1..12_usize, 1..40_usize);
    let mask = (0.0..0.95_f32, any::<u64>(), any::<u32>(), any::<[u32; 2]>());
    let cases = (sizes, placement(), placement(), write_mode(), mask);
    let case = |((n, h, w, c), from, to, mode, (rate, step, first_sample, key))| {
        let mask = DropoutMask { rate, key, step, first_sample };
        Dropout { shape: Shape::new(n, h, w, c), from, to, mode, mask }
    };
    subject.agree_on(64, cases.prop_map(case));
}

/// What dropout makes of ones.
fn of_ones<B: Backend>(bench: &Bench<B>, shape: Shape, mask: &DropoutMask) -> Vec<f32> {
    let run = || {
        let x = Operand::constant(1.0, shape, ALONE).on(bench)?;
        let mut y = Operand::draw("y", shape, ALONE).on(bench)?;
        bench.device.dropout(mask, x.view(), y.view_mut(), Write::Set)?;
        y.output(bench, "y", 0.0)
    };
    run().expect("dropout runs").values
}

/// The mask belongs to a sample's place in the global batch: a slice of the batch gets a slice of the mask.
pub fn a_slice_of_the_batch_has_its_own_part_of_the_mask<B: Backend>(subject: &Subject<B>) {
    let mask = DropoutMask { rate: 0.5, key: [1, 2], step: 9, first_sample: 0 };
    let shape = Shape::new(5, 3, 3, 7);
    for bench in subject.benches() {
        let whole = of_ones(&bench, shape, &mask);
        let last = of_ones(&bench, shape.with_n(2), &DropoutMask { first_sample: 3, ..mask });
        assert_eq!(whole[3 * 63..], last);
        assert_ne!(whole[..2 * 63], last);
    }
}

/// As many are dropped as the rate says, up to five standard deviations.
pub fn the_rate_is_kept<B: Backend>(subject: &Subject<B>) {
    let shape = Shape::new(4, 16, 16, 33);
    for bench in subject.benches() {
        for rate in [0.0, 0.1, 0.5, 0.9] {
            let mask = DropoutMask { rate, key: [3, 4], step: 1, first_sample: 0 };
            let y = of_ones(&bench, shape, &mask);
            let dropped = y.iter().filter(|&&y| y == 0.0).count() as f64;
            let (len, rate) = (shape.len() as f64, f64::from(rate));
            let deviation = (len * rate * (1.0 - rate)).sqrt();
            let few = (dropped - rate * len).abs() <= 5.0 * deviation;
            assert!(few, "{dropped} of {len} dropped at a rate of {rate}");
        }
    }
}
