//! Copies to and from the device, fills, copies and activations.

use crate::kernels::Source;
use crate::{Buffer, Cuda};
use tensor_backend::{Activation, Result, Span, View, ViewMut, Write};

pub(crate) const SOURCE: Source =
    Source { name: "elementwise.cu", text: include_str!("../../kernels/elementwise.cu"), kernels: &[] };

impl Cuda {
    pub(crate) fn op_upload(&self, _src: &[f32], _dst: &mut Buffer, _offset: usize) -> Result<()> {
        Err(self.error("upload is not written yet"))
    }

    pub(crate) fn op_download(&self, _src: &Buffer, _offset: usize, _dst: &mut [f32]) -> Result<()> {
        Err(self.error("download is not written yet"))
    }

    pub(crate) fn op_fill(&self, _value: f32, _dst: &mut Buffer, _at: Span) -> Result<()> {
        Err(self.error("fill is not written yet"))
    }

    pub(crate) fn op_copy(&self, _x: View<Buffer>, _y: ViewMut<Buffer>, _write: Write) -> Result<()> {
        Err(self.error("copy is not written yet"))
    }

    pub(crate) fn op_act_fwd(&self, _act: Activation, _x: View<Buffer>, _y: ViewMut<Buffer>) -> Result<()> {
        Err(self.error("act_fwd is not written yet"))
    }

    pub(crate) fn op_act_bwd(
        &self,
        _act: Activation,
        _y: View<Buffer>,
        _dy: View<Buffer>,
        _dx: ViewMut<Buffer>,
        _write: Write,
    ) -> Result<()> {
        Err(self.error("act_bwd is not written yet"))
    }

    pub(crate) fn op_act_bwd_in_place(
        &self,
        _act: Activation,
        _y: View<Buffer>,
        _dy: ViewMut<Buffer>,
    ) -> Result<()> {
        Err(self.error("act_bwd_in_place is not written yet"))
    }
}
