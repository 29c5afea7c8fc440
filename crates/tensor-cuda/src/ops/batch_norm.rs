//! Batch normalization with its activation.

use crate::kernels::Source;
use crate::{Buffer, Cuda};
use tensor_backend::{BatchNorm, Result, Span, View, ViewMut, Write};

pub(crate) const SOURCE: Source =
    Source { name: "batch_norm.cu", text: include_str!("../../kernels/batch_norm.cu"), kernels: &[] };

impl Cuda {
    pub(crate) fn op_bn_act_fwd_train(
        &self,
        _bn: &BatchNorm,
        _x: View<Buffer>,
        _params: &Buffer,
        _gamma: Span,
        _beta: Span,
        _y: ViewMut<Buffer>,
        _saved: &mut Buffer,
        _grads: &mut Buffer,
        _sums: Span,
    ) -> Result<()> {
        Err(self.error("bn_act_fwd_train is not written yet"))
    }

    pub(crate) fn op_bn_act_fwd_infer(
        &self,
        _bn: &BatchNorm,
        _x: View<Buffer>,
        _params: &Buffer,
        _gamma: Span,
        _beta: Span,
        _running: &Buffer,
        _mean: Span,
        _var: Span,
        _y: ViewMut<Buffer>,
    ) -> Result<()> {
        Err(self.error("bn_act_fwd_infer is not written yet"))
    }

    pub(crate) fn op_bn_act_bwd(
        &self,
        _bn: &BatchNorm,
        _x: View<Buffer>,
        _dy: View<Buffer>,
        _params: &Buffer,
        _gamma: Span,
        _beta: Span,
        _saved: &Buffer,
        _grads: &mut Buffer,
        _dgamma: Span,
        _dbeta: Span,
        _dx: ViewMut<Buffer>,
        _write: Write,
    ) -> Result<()> {
        Err(self.error("bn_act_bwd is not written yet"))
    }
}
