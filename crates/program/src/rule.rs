use crate::{Kind, Result, Shape};

/// The rules of an op, as methods. Its fields are its options. `ops` has a file for each topic.
///
/// Operands and results have an order, which the op's documentation tells. Shapes are those of one sample for
/// activations.
///
/// The ops that [`differentiate`](crate::passes::differentiate) and [`recompute`](crate::passes::recompute) add
/// for an op need a program, so they are separate methods of the op.
pub trait Rule {
    /// The name in printed programs and errors.
    fn name(&self) -> &'static str;

    /// The options in printed programs: `3x3, stride 2`.
    fn options(&self) -> String {
        String::new()
    }

    /// The kinds of the operands, in their order.
    fn operands(&self) -> &'static [Kind];

    /// The kinds of the results, in their order: arenas that a program may write. By default one batch.
    fn results(&self) -> &'static [Kind] {
        const { &[Kind::batch("the output")] }
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
}
