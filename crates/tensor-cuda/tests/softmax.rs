//! Softmax on the emulated GPU.

use crate::harness::*;
use towers_program::{Backend, Layout, Precision, Result, Shape, Span, View, ViewMut};

/// In the sum of a logarithm and a logit of 3e30 nothing is left of the logarithm. Halves must not become ones.
#[test]
fn equal_shares_of_enormous_logits() -> Result<()> {
    let (cuda, at) = (emulated(Precision::Fp32), Layout::contiguous(Shape::vectors(1, 3)));
    let (x, mut y) = (upload(&cuda, &[3e30, -3e30, 3e30])?, cuda.alloc(3)?);
    cuda.softmax(View::new(&x, at), ViewMut::new(&mut y, at))?;
    assert_eq!(download(&cuda, &y, Span::new(0, 3))?, [0.5, 0.0, 0.5]);
    Ok(())
}
