//! Products and sums of two tensors, one of which may be spread over pixels or channels.

#[cfg(feature = "random")]
use crate::operand::{placement, write_mode};
use crate::{ALONE, Bench, Case, Operand, Output, Placement, SLICE, Subject, WIDE_SLICE};
#[cfg(feature = "random")]
use proptest::prelude::*;
use towers_program::ops::{How, Merge, MergeGradient, Spread};
use towers_program::{Result, Shape, Write};

/// The ops with one shape.
#[derive(Clone, Copy, Debug)]
pub struct Merging {
    /// Of the larger tensor.
    pub shape: Shape,
    /// Of the smaller one.
    pub spread: Spread,
    /// Of every tensor.
    pub place: Placement,
    /// How results are written.
    pub mode: Write,
}

impl Case for Merging {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let Merging { shape, spread, place, mode } = *self;
        let mut ops = bench.ops(shape.n, ALONE);
        let draw = |name, shape| Operand::draw(name, shape, place);
        let (x, z) = (ops.tensor(&draw("x", shape)), ops.tensor(&draw("z", spread.shape(shape))));
        let [product, sum, replaced] = [(); 3].map(|()| ops.tensor(&draw("to", shape)));
        let [dz, of_sum] = [(); 2].map(|()| ops.tensor(&draw("dz", spread.shape(shape))));
        ops.write(Merge { how: How::Product }, [x, z], [product], mode);
        ops.write(Merge { how: How::Sum }, [x, z], [sum], mode);
        let in_place = ops.in_place_of(replaced);
        ops.set(Merge { how: How::Product }, [replaced, z], [in_place]);
        ops.write(MergeGradient { spread }, [sum, x], [dz], mode);
        ops.write(MergeGradient { spread }, [x], [of_sum], mode);
        let done = ops.run()?;
        Ok(vec![
            done.output(product, "product", 3e-7)?,
            done.output(sum, "sum", 3e-7)?,
            done.output(in_place, "product in place", 3e-7)?,
            done.output(dz, "gradient of the factor", 3e-6)?,
            done.output(of_sum, "gradient of the summand", 3e-6)?,
        ])
    }
}

/// Sizes and places at random.
#[cfg(feature = "random")]
pub fn any_shape(subject: &Subject) {
    let sizes = (0..4_usize, 1..20_usize, 1..20_usize, 1..40_usize);
    let spreads = prop::sample::select(&[Spread::None, Spread::Pixels, Spread::Channels]);
    let cases = (sizes, spreads, placement(), write_mode());
    let case =
        |((n, h, w, c), spread, place, mode)| Merging { shape: Shape::new(n, h, w, c), spread, place, mode };
    subject.agree_on(48, cases.prop_map(case));
}

/// Maps and widths of squeeze-and-excite blocks, and of one pixel.
pub fn layers_of_real_networks(subject: &Subject) {
    for (h, c, place) in [(28, 72, ALONE), (7, 480, WIDE_SLICE), (14, 40, SLICE), (1, 24, ALONE)] {
        for spread in [Spread::None, Spread::Pixels, Spread::Channels] {
            let shape = subject.fit(Shape::new(2, h, h, c), 200);
            subject.agree(&Merging { shape, spread, place, mode: Write::Set });
        }
    }
}
