use crate::{Backward, BackwardReads, Forward, Layer, Op, Operation, Place};
use tensor::{Activation, Backend, Error, Result, Shape, Storage, View, ViewMut, Write};

/// `max(x, 0)` as a layer of its own. Where it follows a convolution, a dense layer or a normalization, that layer's
/// `activation` does the same in one pass less over the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relu;

/// [`Activation::Gelu`] as a layer of its own: Keras' `Activation("gelu")`. Where it follows a normalization, that layer's
/// `activation` does the same in one pass less over the memory; convolutions and dense layers can't, as its gradient needs what
/// they would overwrite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gelu;

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
        Ok(Box::new(Alone(Activation::Relu)))
    }
}

impl Layer for Gelu {
    fn kind(&self) -> &'static str {
        "GELU"
    }

    fn output_shape(&self, x: Shape) -> Result<Shape> {
        Ok(x)
    }

    fn operation(&self, _x: Shape) -> Option<Operation> {
        Some(Operation::Activation(Activation::Gelu))
    }

    fn backward_reads(&self) -> BackwardReads {
        BackwardReads::INPUT
    }

    fn recomputes(&self) -> bool {
        true
    }

    fn lends_output(&self) -> bool {
        true
    }

    fn build(&self, _place: &Place) -> Result<Box<dyn Op>> {
        Ok(Box::new(Alone(Activation::Gelu)))
    }
}

/// An activation that isn't fused into another op.
struct Alone(Activation);

impl Op for Alone {
    fn forward(&mut self, cx: Forward<'_>, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        cx.device.act_fwd(self.0, x, y)
    }

    fn forward_again(&mut self, cx: Backward<'_>, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        cx.device.act_fwd(self.0, x, y)
    }

    fn backward(
        &mut self,
        cx: Backward<'_>,
        x: View<Storage>,
        y: View<Storage>,
        dy: ViewMut<Storage>,
        dx: Option<(ViewMut<Storage>, Write)>,
    ) -> Result<()> {
        let of = if self.0.reads_input() { x } else { y };
        match dx {
            Some((dx, write)) => cx.device.act_bwd(self.0, of, dy.as_view(), dx, write),
            None => Ok(()),
        }
    }
}

/// Refuses an activation whose gradient needs what an op with it fused in would overwrite.
pub(crate) fn check_fused(op: &'static str, act: Activation) -> Result<()> {
    if !act.reads_input() {
        return Ok(());
    }
    let (name, accepted) =
        (act.name(), "a layer of its own behind this one: its gradient needs what comes in");
    Err(Error::Option { op, what: "the activation", value: name, accepted })
}
