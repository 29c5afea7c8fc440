//! What convolutions need from a format of numbers.

use super::sums::Finish;
use crate::Cpu;
use crate::element::Element;
use towers_program::{Conv2d, Layout, View, ViewMut, Write};

/// How convolutions of tensors of such numbers are computed, if they have no groups.
pub(crate) trait Convolved: Element {
    /// Elements of scratch memory for a pass.
    fn scratch_len(cpu: &Cpu, pass: Pass, conv: &Conv2d, x: Layout, y: Layout) -> usize;

    fn sums(cpu: &Cpu, conv: &Conv2d, x: View<[Self]>, w: &[f32], finish: Finish, y: ViewMut<[Self]>);

    fn backward_data(cpu: &Cpu, conv: &Conv2d, dy: View<[Self]>, w: &[f32], dx: ViewMut<[Self]>, mode: Write);

    fn backward_filter(cpu: &Cpu, conv: &Conv2d, x: View<[Self]>, dy: View<[Self]>, dw: &mut [f32]);
}

/// The passes of a convolution.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pass {
    Forward,
    InputGradient,
    WeightGradient,
}
