//! Slices of channels and their gradients, and channels in another order.

use crate::operand::*;
use crate::{Bench, Case, Output, Subject};
#[cfg(feature = "random")]
use proptest::prelude::*;
use towers_program::ops::{ChannelShuffle, Slice, SliceGradient};
use towers_program::{Result, Shape, Write};

/// A slice and a shuffle, with their gradients. All are exact but for a sum.
#[derive(Clone, Debug)]
pub struct Channels {
    /// Of the whole tensor.
    pub shape: Shape,
    /// The part that is taken.
    pub slice: Slice,
    /// Of the shuffle.
    pub groups: usize,
    /// Of inputs.
    pub from: Placement,
    /// Of results.
    pub to: Placement,
    /// How gradients are written.
    pub mode: Write,
}

impl Case for Channels {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (shape, slice) = (self.shape, self.slice);
        let part = shape.with_c(slice.channels);
        let tolerance = if self.mode == Write::Set { 0.0 } else { 1e-7 };
        let mut ops = bench.ops(shape.n, ALONE);
        let x = ops.tensor(&Operand::draw("x", shape, self.from));
        let dy = ops.tensor(&Operand::draw("dy", part, self.from));
        let taken = ops.tensor(&Operand::draw("taken", part, self.to));
        let [dx, shuffled, back] =
            ["dx", "shuffled", "back"].map(|name| ops.tensor(&Operand::draw(name, shape, self.to)));
        let shuffle = ChannelShuffle { groups: self.groups };
        ops.set(slice, [x], [taken]);
        ops.write(SliceGradient { slice, of: shape.c }, [dy], [dx], self.mode);
        ops.set(shuffle, [x], [shuffled]);
        ops.write(shuffle.inverse(shape.c), [x], [back], self.mode);
        let done = ops.run()?;
        Ok(vec![
            done.output(taken, "taken", 0.0)?,
            done.output(dx, "dx", tolerance)?,
            done.output(shuffled, "shuffled", 0.0)?,
            done.output(back, "back", tolerance)?,
        ])
    }
}

/// Halves of channels, as ShuffleNet has them, and odd parts.
pub fn parts_of_real_networks(subject: &Subject) {
    for (c, groups, from, channels) in
        [(116, 2, 58, 58), (24, 2, 0, 12), (24, 3, 5, 1), (30, 5, 0, 30), (12, 12, 3, 8), (6, 1, 2, 3)]
    {
        let (shape, slice) = (Shape::new(2, 7, 5, c), Slice { from, channels });
        let case = Channels { shape, slice, groups, from: ALONE, to: ALONE, mode: Write::Set };
        subject.agree(&case);
        subject.agree(&Channels { from: SLICE, to: WIDE_SLICE, mode: Write::Add, ..case });
    }
}

/// Sizes and places at random, no samples among them.
#[cfg(feature = "random")]
pub fn any_part(subject: &Subject) {
    let sizes = (0..4_usize, 1..9_usize, 1..9_usize, 1..7_usize, 1..7_usize);
    let part = (0.0..1.0_f64, 0.0..1.0_f64);
    let cases = (sizes, part, placement(), placement(), write_mode());
    let case = |((n, h, w, groups, each), (first, len), from, to, mode)| {
        let c = groups * each;
        let start = (first * c as f64) as usize;
        let channels = 1 + (len * (c - start) as f64) as usize;
        let slice = Slice { from: start, channels: channels.min(c - start) };
        Channels { shape: Shape::new(n, h, w, c), slice, groups, from, to, mode }
    };
    subject.agree_on(64, cases.prop_map(case));
}
