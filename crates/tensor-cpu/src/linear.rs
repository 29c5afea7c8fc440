use crate::Cpu;
use tensor_backend::{Activation, Linear, View, ViewMut, Write};

pub(crate) fn forward(
    _cpu: &Cpu,
    _linear: &Linear,
    _act: Activation,
    _x: View<[f32]>,
    _w: &[f32],
    _b: Option<&[f32]>,
    _y: ViewMut<[f32]>,
) {
    todo!()
}
pub(crate) fn backward_data(
    _cpu: &Cpu,
    _linear: &Linear,
    _dy: View<[f32]>,
    _w: &[f32],
    _dx: ViewMut<[f32]>,
    _mode: Write,
) {
    todo!()
}
pub(crate) fn backward_filter(
    _cpu: &Cpu,
    _linear: &Linear,
    _x: View<[f32]>,
    _dy: View<[f32]>,
    _dw: &mut [f32],
) {
    todo!()
}
