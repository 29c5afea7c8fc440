//! Largest and mean elements of windows.

use crate::kernels::Source;
use crate::{Buffer, Cuda};
use tensor_backend::{Pool2d, Result, View, ViewMut, Write};

pub(crate) const SOURCE: Source =
    Source { name: "pooling.cu", text: include_str!("../../kernels/pooling.cu"), kernels: &[] };

impl Cuda {
    pub(crate) fn op_maxpool_fwd(&self, _pool: &Pool2d, _x: View<Buffer>, _y: ViewMut<Buffer>) -> Result<()> {
        Err(self.error("maxpool_fwd is not written yet"))
    }

    pub(crate) fn op_maxpool_bwd(
        &self,
        _pool: &Pool2d,
        _x: View<Buffer>,
        _y: View<Buffer>,
        _dy: View<Buffer>,
        _dx: ViewMut<Buffer>,
        _write: Write,
    ) -> Result<()> {
        Err(self.error("maxpool_bwd is not written yet"))
    }

    pub(crate) fn op_avgpool_fwd(&self, _pool: &Pool2d, _x: View<Buffer>, _y: ViewMut<Buffer>) -> Result<()> {
        Err(self.error("avgpool_fwd is not written yet"))
    }

    pub(crate) fn op_avgpool_bwd(
        &self,
        _pool: &Pool2d,
        _dy: View<Buffer>,
        _dx: ViewMut<Buffer>,
        _write: Write,
    ) -> Result<()> {
        Err(self.error("avgpool_bwd is not written yet"))
    }
}
