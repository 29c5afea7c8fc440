use crate::{Backward, BackwardReads, Forward, Layer, Op, Operation, Place};
use tensor::{Activation, Backend, Result, Shape, Storage, View, ViewMut, Write};

/// `max(x, 0)` as a layer of its own. Where it follows a convolution, a dense layer or a normalization, that layer's
/// `activation` does the same in one pass less over the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relu;

impl Layer for Relu {
    fn kind(&self) -> &'static str {
        "ReLU"
    }

    fn output_shape(&self, x: Shape) -> Result<Shape> {
        Ok(x)
    }

    fn operation(&self, _x: Shape) -> Option<Operation> {
        Some(Operation::Activation(Activation::Relu))
    }

    fn backward_reads(&self) -> BackwardReads {
        BackwardReads::OUTPUT
    }

    fn build(&self, _place: &Place) -> Result<Box<dyn Op>> {
        Ok(Box::new(*self))
    }
}

impl Op for Relu {
    fn forward(&mut self, cx: Forward<'_>, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        cx.device.act_fwd(Activation::Relu, x, y)
    }

    fn backward(
        &mut self,
        cx: Backward<'_>,
        _x: View<Storage>,
        y: View<Storage>,
        dy: ViewMut<Storage>,
        dx: Option<(ViewMut<Storage>, Write)>,
    ) -> Result<()> {
        match dx {
            Some((dx, write)) => cx.device.act_bwd(Activation::Relu, y, dy.as_view(), dx, write),
            None => Ok(()),
        }
    }
}
