use crate::Cpu;
use tensor_backend::{Pool2d, View, ViewMut, Write};

pub(crate) fn max_forward(_cpu: &Cpu, _pool: &Pool2d, _x: View<[f32]>, _y: ViewMut<[f32]>) {
    todo!()
}
pub(crate) fn max_backward(
    _cpu: &Cpu,
    _pool: &Pool2d,
    _x: View<[f32]>,
    _y: View<[f32]>,
    _dy: View<[f32]>,
    _dx: ViewMut<[f32]>,
    _mode: Write,
) {
    todo!()
}
pub(crate) fn average_forward(_cpu: &Cpu, _pool: &Pool2d, _x: View<[f32]>, _y: ViewMut<[f32]>) {
    todo!()
}
pub(crate) fn average_backward(
    _cpu: &Cpu,
    _pool: &Pool2d,
    _dy: View<[f32]>,
    _dx: ViewMut<[f32]>,
    _mode: Write,
) {
    todo!()
}
