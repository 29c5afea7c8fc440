//! Convolutions and dense layers: forward, both backward passes, and what they keep beside the weights.

use crate::kernels::Source;
use crate::{Buffer, Cuda};
use tensor_backend::{Activation, Conv2d, Linear, Result, Shape, Span, View, ViewMut, Write};

pub(crate) const SOURCE: Source =
    Source { name: "convolution.cu", text: include_str!("../../kernels/convolution.cu"), kernels: &[] };

impl Cuda {
    pub(crate) fn op_prepare_conv2d(&self, _conv: &Conv2d, _x: Shape, _training: bool) -> Result<()> {
        Err(self.error("prepare_conv2d is not written yet"))
    }

    pub(crate) fn op_prepare_linear(&self, _linear: &Linear, _n: usize, _training: bool) -> Result<()> {
        Err(self.error("prepare_linear is not written yet"))
    }

    pub(crate) fn op_conv2d_fwd(
        &self,
        _conv: &Conv2d,
        _act: Activation,
        _x: View<Buffer>,
        _params: &Buffer,
        _w: Span,
        _b: Option<Span>,
        _y: ViewMut<Buffer>,
    ) -> Result<()> {
        Err(self.error("conv2d_fwd is not written yet"))
    }

    pub(crate) fn op_conv2d_bwd_data(
        &self,
        _conv: &Conv2d,
        _dy: View<Buffer>,
        _params: &Buffer,
        _w: Span,
        _dx: ViewMut<Buffer>,
        _write: Write,
    ) -> Result<()> {
        Err(self.error("conv2d_bwd_data is not written yet"))
    }

    pub(crate) fn op_conv2d_bwd_filter(
        &self,
        _conv: &Conv2d,
        _x: View<Buffer>,
        _dy: View<Buffer>,
        _grads: &mut Buffer,
        _dw: Span,
        _db: Option<Span>,
    ) -> Result<()> {
        Err(self.error("conv2d_bwd_filter is not written yet"))
    }

    pub(crate) fn op_linear_fwd(
        &self,
        _linear: &Linear,
        _act: Activation,
        _x: View<Buffer>,
        _params: &Buffer,
        _w: Span,
        _b: Option<Span>,
        _y: ViewMut<Buffer>,
    ) -> Result<()> {
        Err(self.error("linear_fwd is not written yet"))
    }

    pub(crate) fn op_linear_bwd_data(
        &self,
        _linear: &Linear,
        _dy: View<Buffer>,
        _params: &Buffer,
        _w: Span,
        _dx: ViewMut<Buffer>,
        _write: Write,
    ) -> Result<()> {
        Err(self.error("linear_bwd_data is not written yet"))
    }

    pub(crate) fn op_linear_bwd_filter(
        &self,
        _linear: &Linear,
        _x: View<Buffer>,
        _dy: View<Buffer>,
        _grads: &mut Buffer,
        _dw: Span,
        _db: Option<Span>,
    ) -> Result<()> {
        Err(self.error("linear_bwd_filter is not written yet"))
    }

    pub(crate) fn op_finish_grads(&self, _grads: &mut Buffer) -> Result<()> {
        Err(self.error("finish_grads is not written yet"))
    }
}
