//! Convolutions with groups, as some convolutions without: each reads some channels and writes some.
//!
//! Neighbouring groups of few channels share a *block*, a convolution whose weights between different groups are zeros. A block
//! is as wide as the kernels need to be fast, and groups that are as wide have one each. Of the gradient of a block's weights,
//! the part within the groups is kept.

use super::convolved::{Convolved, Pass};
use super::grads::portion;
use super::sums::Finish;

use crate::Cpu;
use core::ops::Range;
use towers_program::{Conv2d, Layout, View, ViewMut, Write};

/// Channels in and out of a block, at least, if there are so many.
const LEAST_CHANNELS: usize = 16;

/// The blocks of a convolution.
#[derive(Clone, Copy, Debug)]
struct Blocks<'a> {
    conv: &'a Conv2d,
    /// Input and output channels of a group.
    inputs: usize,
    outputs: usize,
    count: usize,
}

/// Some groups.
#[derive(Clone, Debug)]
struct Block {
    conv: Conv2d,
    groups: Range<usize>,
    inputs: Range<usize>,
    outputs: Range<usize>,
}

impl<'a> Blocks<'a> {
    fn of(conv: &'a Conv2d) -> Blocks<'a> {
        let [inputs, outputs] = [conv.inputs, conv.outputs].map(|channels| channels / conv.groups.max(1));
        let joined = LEAST_CHANNELS.div_ceil(inputs.min(outputs).max(1));
        Blocks { conv, inputs, outputs, count: conv.groups.div_ceil(joined) }
    }

    fn block(&self, index: usize) -> Block {
        let groups = portion(self.conv.groups, self.count, index);
        let [inputs, outputs] =
            [self.inputs, self.outputs].map(|channels| groups.start * channels..groups.end * channels);
        let conv = Conv2d { inputs: inputs.len(), outputs: outputs.len(), groups: 1, ..*self.conv };
        Block { conv, groups, inputs, outputs }
    }

    fn iter(&self) -> impl Iterator<Item = Block> + use<'a> {
        let blocks = *self;
        (0..self.count).map(move |index| blocks.block(index))
    }

    /// The weights of a block, as those of a convolution without groups.
    fn weights(&self, block: &Block, w: &[f32], to: &mut [f32]) {
        let single = block.groups.len() == 1;
        for (row, to) in to.chunks_exact_mut(block.conv.outputs.max(1)).enumerate() {
            let (from, columns) = self.row(block, row);
            if !single {
                to.fill(0.0);
            }
            to[columns].copy_from_slice(&w[from..from + self.outputs]);
        }
    }

    /// The part within the groups of a gradient of a block's weights.
    fn gradient(&self, block: &Block, of_block: &[f32], dw: &mut [f32]) {
        for (row, of_block) in of_block.chunks_exact(block.conv.outputs.max(1)).enumerate() {
            let (to, columns) = self.row(block, row);
            dw[to..to + self.outputs].copy_from_slice(&of_block[columns]);
        }
    }

    /// Where the weights of a tap and an input channel of a block, counted together, begin among all; and which outputs of
    /// the block they belong to.
    fn row(&self, block: &Block, row: usize) -> (usize, Range<usize>) {
        let (tap, input) = (row / block.conv.inputs, row % block.conv.inputs);
        let group = input / self.inputs;
        let from = (tap * self.inputs + input % self.inputs) * self.conv.outputs;
        let first = group * self.outputs;
        (from + block.outputs.start + first, first..first + self.outputs)
    }
}

/// Elements for the weights of a block; none without groups.
pub(crate) fn weights_len(conv: &Conv2d) -> usize {
    if conv.groups == 1 { 0 } else { Blocks::of(conv).block(0).conv.weights() }
}

/// Elements of scratch memory for a pass over any of the blocks.
pub(super) fn scratch_len(
    pass: Pass,
    conv: &Conv2d,
    x: Layout,
    y: Layout,
    of_block: impl Fn(Pass, &Conv2d, Layout, Layout) -> usize,
) -> usize {
    let len = |block: Block| of_block(pass, &block.conv, x.channels(block.inputs), y.channels(block.outputs));
    Blocks::of(conv).iter().map(len).max().unwrap_or(0)
}

/// See [`Convolved::sums`].
pub(super) fn sums<E: Convolved>(
    cpu: &Cpu,
    conv: &Conv2d,
    x: View<[E]>,
    w: &[f32],
    finish: Finish,
    y: ViewMut<[E]>,
) {
    let blocks = Blocks::of(conv);
    let mut memory = cpu.weights(weights_len(conv));
    for block in blocks.iter() {
        let weights = &mut memory[..block.conv.weights()];
        blocks.weights(&block, w, weights);
        let x = View::new(x.data, x.layout.channels(block.inputs.clone()));
        let y = ViewMut::new(&mut *y.data, y.layout.channels(block.outputs.clone()));
        E::sums(cpu, &block.conv, x, weights, finish.columns(block.outputs), y);
    }
}

/// See [`Convolved::backward_data`].
pub(super) fn backward_data<E: Convolved>(
    cpu: &Cpu,
    conv: &Conv2d,
    dy: View<[E]>,
    w: &[f32],
    dx: ViewMut<[E]>,
    mode: Write,
) {
    let blocks = Blocks::of(conv);
    let mut memory = cpu.weights(weights_len(conv));
    for block in blocks.iter() {
        let weights = &mut memory[..block.conv.weights()];
        blocks.weights(&block, w, weights);
        let dy = View::new(dy.data, dy.layout.channels(block.outputs));
        let dx = ViewMut::new(&mut *dx.data, dx.layout.channels(block.inputs));
        E::backward_data(cpu, &block.conv, dy, weights, dx, mode);
    }
}

/// See [`Convolved::backward_filter`].
pub(super) fn backward_filter<E: Convolved>(
    cpu: &Cpu,
    conv: &Conv2d,
    x: View<[E]>,
    dy: View<[E]>,
    dw: &mut [f32],
) {
    let blocks = Blocks::of(conv);
    let mut memory = cpu.weights(weights_len(conv));
    for block in blocks.iter() {
        let of_block = &mut memory[..block.conv.weights()];
        let x = View::new(x.data, x.layout.channels(block.inputs.clone()));
        let dy = View::new(dy.data, dy.layout.channels(block.outputs.clone()));
        E::backward_filter(cpu, &block.conv, x, dy, of_block);
        blocks.gradient(&block, of_block, dw);
    }
}
