//! Dropout.

use crate::kernels::Source;
use crate::{Buffer, Cuda};
use tensor_backend::{DropoutMask, Result, View, ViewMut, Write};

pub(crate) const SOURCE: Source =
    Source { name: "dropout.cu", text: include_str!("../../kernels/dropout.cu"), kernels: &[] };

impl Cuda {
    pub(crate) fn op_dropout(
        &self,
        _mask: &DropoutMask,
        _x: View<Buffer>,
        _y: ViewMut<Buffer>,
        _write: Write,
    ) -> Result<()> {
        Err(self.error("dropout is not written yet"))
    }
}
