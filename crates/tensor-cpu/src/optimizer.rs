use crate::threads::Threads;
use tensor_backend::{RmspropStep, SgdStep};

pub(crate) fn ema(_momentum: f32, _scale: f32, _sums: &[f32], _running: &mut [f32]) {
    todo!()
}
/// `velocity` is empty where the momentum is 0.
pub(crate) fn sgd(
    _threads: &Threads,
    _step: &SgdStep,
    _params: &mut [f32],
    _grads: &[f32],
    _velocity: &mut [f32],
) {
    todo!()
}
pub(crate) fn rmsprop(
    _threads: &Threads,
    _step: &RmspropStep,
    _params: &mut [f32],
    _grads: &[f32],
    _mean_square: &mut [f32],
) {
    todo!()
}
