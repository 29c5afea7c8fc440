//! Dense layers: `Gemm`, `MatMul`.

use super::axes::Axis;
use super::constants::{Constant, Values};
use super::extent::{Extent, shown};
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
                crate::text::shortened(name)
            ))),
        }
    }

    /// A product with a matrix: of vectors, or of the channels of each pixel where these are the last axis.
    pub(super) fn dense(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let mut kernel = self.kernel(node, 2)?;
        let mut bias = if node.op() == "Gemm" { self.constant(node, 2)?.cloned() } else { None };
        let mut outputs_first = false;
        if node.op() == "Gemm" {
            let (alpha, beta) = (node.float("alpha", 1.0)?, node.float("beta", 1.0)?);
            kernel = times(kernel, alpha)?;
            bias = bias.map(|bias| times(bias, beta)).transpose()?;
            if node.flag("transA", false)? {
                return Err(node.form("with transA=1"));
            }
            outputs_first = node.flag("transB", false)?;
            if !node.since(7) {
                node.flag("broadcast", true)?;
            }
        }
        let [inputs, units] = (if outputs_first { [1, 0] } else { [0, 1] }).map(|k: usize| kernel.shape[k]);
        kernel.inputs_first = !outputs_first;
        let x = self.tensor(node, 0)?;
        let seen = x.seen();
        let is_pixels = x.axes.len() > 2 && x.kinds().last() == Some(&Axis::Channels);
        if (x.axes.len() != 2 && !is_pixels) || (is_pixels && node.op() == "Gemm") {
            return Err(node.form(format!("of an image, {}", shown(&seen))));
        }
        if seen.last().and_then(Extent::known).is_some_and(|own| own != inputs as i64) {
            return Err(node.form(format!("of {} and {:?}", shown(&seen), kernel.shape)));
        }
        let mut weights = vec![("kernel", kernel)];
        let has_bias = bias.is_some();
        if let Some(bias) = bias {
            let numbers = match bias.float() {
                Some(number) => Some(Constant::of(vec![units], vec![number; units])),
                None => bias.vector(units, 0),
            };
            let numbers = numbers.ok_or_else(|| node.form(format!("with a bias of {:?}", bias.shape)))?;
            weights.push(("bias", numbers));
        }
        if !is_pixels {
            let layer = self.layer(node, 0)?;
            let shape = vec![seen[0].clone(), Extent::number(units as i64)];
            let about = json!({"units": units, "use_bias": has_bias});
            return Ok(self.weighted(node, "Dense", about, layer, shape, weights));
        }
        let x = self.base(x)?;
        let mut shape = x.shape.clone();
        shape[1] = Extent::number(units as i64);
        let y = match shape.len() {
            2 => {
                let about = json!({"units": units, "use_bias": has_bias});
                self.weighted(node, "Dense", about, x.layer.clone(), shape.clone(), weights)
            }
            _ => {
                let about = json!({"filters": units, "kernel_size": [1, 1], "use_bias": has_bias});
                self.weighted(node, "Conv2D", about, x.layer.clone(), shape.clone(), weights)
            }
        };
        match y {
            Of::Layer(layer) => Ok(x.beside(layer, shape).into()),
            other => Ok(other),
        }
    }
}

/// A matrix or a vector times a number.
fn times(constant: Constant, factor: f32) -> Result<Constant, String> {
    if factor == 1.0 {
        return Ok(constant);
    }
    let floats: Vec<f32> = constant.floats()?.into_iter().map(|x| x * factor).collect();
    Ok(Constant { values: Values::Floats(floats.into()), ..constant })
}
