//! Dense layers: `Gemm`, `MatMul`.

use super::constants::Constant;
use super::extent::Extent;
use super::graph::{Of, Reader};
use super::node::Node;
use serde_json::json;

impl<'g> Reader<'g> {
    /// The kernel of a layer with this number of axes, which no other layer may have.
    pub(super) fn kernel(&mut self, node: &Node<'g>, axes: usize) -> Result<Constant, String> {
        let kernel = self.constant(node, 1)?.filter(|kernel| kernel.shape.len() == axes).cloned();
        let kernel = kernel.ok_or_else(|| node.form(format!("without weights of {axes} axes")))?;
        let name = node.operand(1).unwrap_or_default();
        match self.kernels.insert(name.to_owned()) {
            true => Ok(kernel),
            false => Err(node.refuse(format!(
                "uses the weights `{}` again, but weights can only be used once",
                crate::keras::shortened(name)
            ))),
        }
    }

    pub(super) fn dense(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let kernel = self.kernel(node, 2)?;
        let bias = if node.op() == "Gemm" { self.constant(node, 2)?.cloned() } else { None };
        let mut outputs_first = false;
        if node.op() == "Gemm" {
            let (alpha, beta) = (node.float("alpha", 1.0)?, node.float("beta", 1.0)?);
            if alpha != 1.0 || (beta != 1.0 && bias.is_some()) {
                return Err(node.form(format!("with alpha={alpha} and beta={beta}")));
            }
            if node.flag("transA", false)? {
                return Err(node.form("with transA=1"));
            }
            outputs_first = node.flag("transB", false)?;
        }
        let x = self.layer(node, 0)?;
        let mut shape = self.shape(&x);
        if shape.len() != 2 {
            return Err(node.form(format!("of an image, {}", super::extent::shown(&shape))));
        }
        // As PyTorch has it.
        let kernel = if outputs_first { Some(kernel) } else { kernel.transposed() };
        let kernel = kernel.ok_or_else(|| node.unknown())?;
        let units = kernel.shape[0];
        shape[1] = Extent::number(units as i64);
        let mut weights = vec![("kernel", kernel)];
        let about = json!({"units": units, "use_bias": bias.is_some()});
        if let Some(bias) = bias {
            let vector = bias.vector(units, 0);
            weights
                .push(("bias", vector.ok_or_else(|| node.form(format!("with a bias of {:?}", bias.shape)))?));
        }
        Ok(self.weighted(node, "Dense", about, x, shape, weights))
    }
}
