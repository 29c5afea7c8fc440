use crate::ops::Op;
use crate::passes::Gradients;
use crate::{Arena, Error, Result, Shape, Step, TensorId};

/// The rules of an op, as methods. Its fields are its options. `ops` has a file for each topic.
///
/// Operands and results have an order, which the op's documentation tells. Shapes are those of one sample for activations.
pub trait Rule {
    /// The name in printed programs and errors.
    fn name(&self) -> &'static str;

    /// The options in printed programs: `3x3, stride 2`.
    fn options(&self) -> String {
        String::new()
    }

    /// The results' shapes.
    ///
    /// # Errors
    /// If the operands do not fit.
    fn results(&self, operands: &[Shape]) -> Result<Vec<Shape>>;

    /// In which arena a result lies.
    fn arena(&self, _result: usize) -> Arena {
        Arena::Activations
    }

    /// The ops of the backward pass: reads the gradient of the step's first result, and adds to those of its operands.
    ///
    /// # Errors
    /// As [`Gradients::push`]; by default that the op has none.
    fn gradient(&self, _step: &Step, _to: &mut Gradients) -> Result<()> {
        let (what, value, accepted) = ("the gradient", "asked for", "left alone: this op has none");
        Err(Error::Option { op: self.name(), what, value, accepted })
    }

    /// The operands in whose memory the first result may lie, the best one first.
    fn in_place(&self) -> &'static [usize] {
        &[]
    }

    /// Whether the op can add its first result to another tensor.
    fn adds(&self) -> bool {
        false
    }

    /// For an op that costs little: the op and the operands that compute the first result of `step` once more, with the same bits,
    /// where all results are still there but the first one.
    fn recompute(&self, _step: &Step) -> Option<(Op, Vec<TensorId>)> {
        None
    }

    /// Multiply-adds for one sample.
    fn multiply_adds(&self, _operands: &[Shape]) -> usize {
        0
    }
}
