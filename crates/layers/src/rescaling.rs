use crate::{Backward, BackwardReads, Forward, Layer, Op, Operation, Place};
use tensor::{Backend, Result, Shape, Storage, View, ViewMut, Write};

/// All numbers times a constant: Keras' `Rescaling(scale)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rescaling {
    scale: f32,
}

impl Rescaling {
    /// `scale * x`.
    pub fn new(scale: f32) -> Self {
        Rescaling { scale }
    }
}

impl Layer for Rescaling {
    fn kind(&self) -> &'static str {
        "Rescaling"
    }

    fn output_shape(&self, x: Shape) -> Result<Shape> {
        if !self.scale.is_finite() {
            let (value, accepted) = (self.scale.into(), "a finite number");
            return Err(tensor::Error::Value { op: "rescaling", what: "the factor", value, accepted });
        }
        Ok(x)
    }

    fn operation(&self, _x: Shape) -> Option<Operation> {
        Some(Operation::Scale(self.scale))
    }

    fn backward_reads(&self) -> BackwardReads {
        BackwardReads::NOTHING
    }

    fn lends_output(&self) -> bool {
        true
    }

    fn build(&self, _place: &Place) -> Result<Box<dyn Op>> {
        Ok(Box::new(*self))
    }
}

impl Op for Rescaling {
    fn forward(&mut self, cx: Forward<'_>, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        cx.device.copy_scaled(self.scale, x, y, Write::Set)
    }

    fn backward(
        &mut self,
        cx: Backward<'_>,
        _x: View<Storage>,
        _y: View<Storage>,
        dy: ViewMut<Storage>,
        dx: Option<(ViewMut<Storage>, Write)>,
    ) -> Result<()> {
        match dx {
            Some((dx, write)) => cx.device.copy_scaled(self.scale, dy.as_view(), dx, write),
            None => Ok(()),
        }
    }
}
