use crate::passes::Gradients;
use crate::{Activation, Error, Op, Result, Shape, Signature, Step, TensorId};

/// The rules of an op, as methods. Its fields are its options. `ops` has a file for each topic.
///
/// Operands and results have an order, and names: the op's [`Signature`]. Shapes are those of one sample for
/// activations.
pub trait Rule: Signature {
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
    fn shapes(&self, operands: &[Shape]) -> Result<Vec<Shape>>;

    /// The operands in whose memory the first result may lie, the best one first.
    fn in_place(&self) -> &'static [usize] {
        &[]
    }

    /// Whether the op can add its first result to another tensor.
    fn adds(&self) -> bool {
        false
    }

    /// Multiply-adds for one sample.
    fn multiply_adds(&self, _operands: &[Shape]) -> usize {
        0
    }

    /// Adds the ops that compute the gradients of a step's operands from that of its first result, for
    /// [`differentiate`](crate::passes::differentiate).
    ///
    /// # Errors
    /// If the op has no gradient, as by default, or none for these operands.
    fn gradient(&self, _step: &Step, _to: &mut Gradients) -> Result<()> {
        let (what, value, accepted) = ("the gradient", "asked for", "left alone: this op has none");
        Err(Error::Option { op: self.name(), what, value, accepted })
    }

    /// For an op that costs little: the op and the operands that compute the first result of `step` once more, with the
    /// same bits, where all results are still there but the first one. For [`recompute`](crate::passes::recompute).
    fn recompute(&self, _step: &Step) -> Option<(Op, Vec<TensorId>)> {
        None
    }

    /// The activation that is fused into an op which keeps only its output.
    fn fused_activation(&mut self) -> Option<&mut Activation> {
        None
    }
}
