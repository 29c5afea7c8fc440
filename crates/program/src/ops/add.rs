use super::activation::before_activation;
use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{Activation, Error, Op, Result, Shape, Step, TensorId};

/// `y = act(a + b)`: the end of a residual block, and gradients that come together. Reads a and b.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Add {
    /// The activation after the sum.
    pub act: Activation,
}

signatures! {
    Add { a: batch "the first operand", b: batch "the second operand" }
}

impl Rule for Add {
    fn name(&self) -> &'static str {
        "add"
    }

    fn options(&self) -> String {
        if self.act == Activation::None { String::new() } else { self.act.to_string() }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::Add { a, b } = self.operands_of(shapes)?;
        Error::check_shape(self.name(), "the second operand", b, a)?;
        Ok(vec![a])
    }

    fn in_place(&self) -> &'static [usize] {
        &[1, 0]
    }

    fn fused_activation(&mut self) -> Option<&mut Activation> {
        Some(&mut self.act)
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let dy = before_activation(self.act, step.results[0], to.of(step), to)?;
        for &operand in &step.operands {
            to.add(operand, dy)?;
        }
        Ok(())
    }
}

// Gradients that come together become an op of this file.
impl Gradients {
    /// Adds the op whose result is a part of a tensor's gradient, if anything reads that.
    ///
    /// # Errors
    /// As [`Gradients::push`].
    pub fn add_op(&mut self, id: TensorId, op: impl Into<Op>, operands: &[TensorId]) -> Result<()> {
        if !self.wants(id) {
            return Ok(());
        }
        let gradient = self.push(op, operands, &[])?[0];
        self.add(id, gradient)
    }

    /// Adds `gradient` to a tensor's gradient, if anything reads that.
    ///
    /// # Errors
    /// As [`Gradients::push`].
    pub fn add(&mut self, id: TensorId, gradient: TensorId) -> Result<()> {
        if !self.wants(id) {
            return Ok(());
        }
        self.of[id.index()] = Some(match self.of[id.index()] {
            None => gradient,
            Some(before) => self.push(Add { act: Activation::None }, &[before, gradient], &[])?[0],
        });
        Ok(())
    }
}
