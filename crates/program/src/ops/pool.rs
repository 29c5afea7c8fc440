use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{Error, Pad, Pool2d, Result, Shape, Step};

/// The largest element of each window. Reads x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MaxPool {
    /// The windows.
    pub pool: Pool2d,
}

/// The gradient of [`MaxPool`]'s input. Of several largest elements the first in row-major order gets it, as in PyTorch and TensorFlow.
/// Reads x, y and dy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MaxPoolGradient {
    /// The windows.
    pub pool: Pool2d,
}

/// The mean of each window, with the padding that counts. Reads x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AveragePool {
    /// The windows.
    pub pool: Pool2d,
}

/// The gradient of [`AveragePool`]'s input. Reads dy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AveragePoolGradient {
    /// The windows.
    pub pool: Pool2d,
    /// The input's shape.
    pub x: Shape,
}

signatures! {
    MaxPool { x: batch "the input" }
    MaxPoolGradient { x: batch "the input", y: batch "the output", dy: batch "dy" }
    AveragePool { x: batch "the input" }
    AveragePoolGradient { dy: batch "dy" }
}

fn options(pool: &Pool2d) -> String {
    let ([kh, kw], [sh, sw]) = (pool.kernel, pool.stride);
    let counted = if pool.counted == Pad::VALID { "" } else { ", with padding" };
    let stride = if pool.kernel == pool.stride { String::new() } else { format!(", stride {sh}x{sw}") };
    format!("{kh}x{kw}{stride}{counted}")
}

impl Rule for MaxPool {
    fn name(&self) -> &'static str {
        "max_pool"
    }

    fn options(&self) -> String {
        options(&self.pool)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::MaxPool { x } = self.operands_of(shapes)?;
        Ok(vec![self.pool.output(x)?])
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let (x, y) = (step.operands[0], step.results[0]);
        to.add_op(x, MaxPoolGradient { pool: self.pool }, &[x, y, to.of(step)])
    }
}

impl Rule for MaxPoolGradient {
    fn name(&self) -> &'static str {
        "max_pool_gradient"
    }

    fn options(&self) -> String {
        options(&self.pool)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::MaxPoolGradient { x, y, dy } = self.operands_of(shapes)?;
        Error::check_shape(self.name(), "the output", y, self.pool.output(x)?)?;
        Error::check_shape(self.name(), "dy", dy, y)?;
        Ok(vec![x])
    }

    fn adds(&self) -> bool {
        true
    }
}

impl Rule for AveragePool {
    fn name(&self) -> &'static str {
        "average_pool"
    }

    fn options(&self) -> String {
        options(&self.pool)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::AveragePool { x } = self.operands_of(shapes)?;
        Ok(vec![self.pool.output(x)?])
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let x = step.operands[0];
        to.add_op(x, AveragePoolGradient { pool: self.pool, x: to.shape(x) }, &[to.of(step)])
    }
}

impl Rule for AveragePoolGradient {
    fn name(&self) -> &'static str {
        "average_pool_gradient"
    }

    fn options(&self) -> String {
        options(&self.pool)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::AveragePoolGradient { dy } = self.operands_of(shapes)?;
        Error::check_shape(self.name(), "dy", dy, self.pool.output(self.x)?)?;
        Ok(vec![self.x])
    }

    fn adds(&self) -> bool {
        true
    }
}
