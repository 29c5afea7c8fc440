use crate::Cpu;
use tensor_backend::{BatchNorm, View, ViewMut, Write};

pub(crate) fn forward_train(
    _cpu: &Cpu,
    _bn: &BatchNorm,
    _x: View<[f32]>,
    _gamma: &[f32],
    _beta: &[f32],
    _y: ViewMut<[f32]>,
    _saved: &mut [f32],
    _sums: &mut [f32],
) {
    todo!()
}
pub(crate) fn forward_infer(
    _cpu: &Cpu,
    _bn: &BatchNorm,
    _x: View<[f32]>,
    _gamma: &[f32],
    _beta: &[f32],
    _mean: &[f32],
    _var: &[f32],
    _y: ViewMut<[f32]>,
) {
    todo!()
}
pub(crate) fn backward(
    _cpu: &Cpu,
    _bn: &BatchNorm,
    _x: View<[f32]>,
    _dy: View<[f32]>,
    _gamma: &[f32],
    _beta: &[f32],
    _saved: &[f32],
    _dgamma: &mut [f32],
    _dbeta: &mut [f32],
    _dx: ViewMut<[f32]>,
    _mode: Write,
) {
    todo!()
}
