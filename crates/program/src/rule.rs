use crate::{Arena, Result, Shape};

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

    /// The results' shapes.
    ///
    /// # Errors
    /// If the operands do not fit.
    fn results(&self, operands: &[Shape]) -> Result<Vec<Shape>>;

    /// In which arena a result lies.
    fn arena(&self, _result: usize) -> Arena {
        Arena::Activations
    }

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
