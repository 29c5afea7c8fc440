use crate::Cpu;
use tensor_backend::{Activation, View, ViewMut, Write};

pub(crate) fn forward(_cpu: &Cpu, _act: Activation, _x: View<[f32]>, _y: ViewMut<[f32]>) {
    todo!()
}
pub(crate) fn backward(
    _cpu: &Cpu,
    _act: Activation,
    _y: View<[f32]>,
    _dy: View<[f32]>,
    _dx: ViewMut<[f32]>,
    _mode: Write,
) {
    todo!()
}
pub(crate) fn backward_in_place(_cpu: &Cpu, _act: Activation, _y: View<[f32]>, _dy: ViewMut<[f32]>) {
    todo!()
}
