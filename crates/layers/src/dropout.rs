use crate::{Backward, BackwardReads, Draws, Forward, Layer, Op, Operation, Place};
use tensor::{Backend, DropoutMask, Result, Shape, Storage, View, ViewMut, Write};

/// Sets a share of the elements to 0 in training and scales the rest by `1 / (1 - rate)`; does nothing in inference.
///
/// The mask is a pure function of (seed, layer, step, place in the global batch), so it needs no memory and is the
/// same for any number of replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    rate: f32,
}

impl Dropout {
    /// Drops elements with probability `rate`, in [0, 1).
    pub fn new(rate: f32) -> Self {
        Dropout { rate }
    }

    fn mask(self) -> DropoutMask {
        DropoutMask { rate: self.rate, key: [0; 2], step: 0, first_sample: 0 }
    }
}

impl Layer for Dropout {
    fn kind(&self) -> &'static str {
        "Dropout"
    }

    fn output_shape(&self, x: Shape) -> Result<Shape> {
        self.mask().check("dropout")?;
        Ok(x)
    }

    fn backward_reads(&self) -> BackwardReads {
        BackwardReads::NOTHING
    }

    fn lends_output(&self) -> bool {
        true
    }

    fn operation(&self, _x: Shape) -> Option<Operation> {
        Some(Operation::Dropout { rate: self.rate })
    }

    fn build(&self, place: &Place) -> Result<Box<dyn Op>> {
        Ok(Box::new(DropoutOp { mask: self.mask(), domain: philox::domain(place.name) }))
    }
}

struct DropoutOp {
    mask: DropoutMask,
    domain: u32,
}

impl DropoutOp {
    fn drawn(&self, draws: Draws) -> DropoutMask {
        let key = philox::key(draws.seed, self.domain);
        DropoutMask { key, step: draws.step, first_sample: draws.first_sample, ..self.mask }
    }
}

impl Op for DropoutOp {
    fn forward(&mut self, cx: Forward<'_>, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        match cx.training {
            Some(draws) => cx.device.dropout(&self.drawn(draws), x, y, Write::Set),
            None => cx.device.copy(x, y, Write::Set),
        }
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
            Some((dx, write)) => cx.device.dropout(&self.drawn(cx.draws), dy.as_view(), dx, write),
            None => Ok(()),
        }
    }
}
