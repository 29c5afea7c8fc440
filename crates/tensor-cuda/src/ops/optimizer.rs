//! Steps of optimizers and running averages over flat arenas, and the meter of the losses.

use crate::kernels::Source;
use crate::{Buffer, Cuda};
use tensor_backend::{Result, RmspropStep, SgdStep, Span};

pub(crate) const SOURCE: Source =
    Source { name: "optimizer.cu", text: include_str!("../../kernels/optimizer.cu"), kernels: &[] };

impl Cuda {
    pub(crate) fn op_ema_step(
        &self,
        _momentum: f32,
        _scale: f32,
        _sums: &Buffer,
        _from: Span,
        _running: &mut Buffer,
        _to: Span,
    ) -> Result<()> {
        Err(self.error("ema_step is not written yet"))
    }

    pub(crate) fn op_meter(&self, _sums: &Buffer, _metrics: Span, _meter: &mut Buffer) -> Result<()> {
        Err(self.error("meter is not written yet"))
    }

    pub(crate) fn op_sgd_step(
        &self,
        _step: &SgdStep,
        _params: &mut Buffer,
        _grads: &Buffer,
        _velocity: &mut Buffer,
        _at: Span,
    ) -> Result<()> {
        Err(self.error("sgd_step is not written yet"))
    }

    pub(crate) fn op_rmsprop_step(
        &self,
        _step: &RmspropStep,
        _params: &mut Buffer,
        _grads: &Buffer,
        _mean_square: &mut Buffer,
        _at: Span,
    ) -> Result<()> {
        Err(self.error("rmsprop_step is not written yet"))
    }
}
