use crate::{Backward, BackwardReads, Forward, Layer, Op, Operation, Place};
use tensor::{Backend, Layout, Result, Shape, Storage, View, ViewMut, Write};

/// One vector a sample, in the order `(row, column, channel)`, as Keras' `Flatten` makes of channels-last images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flatten;

impl Layer for Flatten {
    fn kind(&self) -> &'static str {
        "Flatten"
    }

    fn output_shape(&self, x: Shape) -> Result<Shape> {
        Ok(x.flatten())
    }

    fn backward_reads(&self) -> BackwardReads {
        BackwardReads::NOTHING
    }

    fn makes_vectors(&self) -> bool {
        true
    }

    fn contiguous_output(&self) -> bool {
        true
    }

    fn operation(&self, _x: Shape) -> Option<Operation> {
        Some(Operation::Flatten)
    }

    fn build(&self, _place: &Place) -> Result<Box<dyn Op>> {
        Ok(Box::new(Flatten))
    }
}

/// The vectors at `flat` seen as images of shape `shape`.
fn unflatten(flat: Layout, shape: Shape) -> Layout {
    Layout { offset: flat.offset, shape, stride: shape.c }
}

impl Op for Flatten {
    fn forward(&mut self, cx: Forward<'_>, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        let layout = unflatten(y.layout, x.layout.shape);
        cx.device.copy(x, ViewMut::new(y.data, layout), Write::Set)
    }

    fn backward(
        &mut self,
        cx: Backward<'_>,
        x: View<Storage>,
        _y: View<Storage>,
        dy: ViewMut<Storage>,
        dx: Option<(ViewMut<Storage>, Write)>,
    ) -> Result<()> {
        let Some((dx, write)) = dx else { return Ok(()) };
        let layout = unflatten(dy.layout, x.layout.shape);
        cx.device.copy(View::new(&*dy.data, layout), dx, write)
    }
}
