pub(crate) mod activation;
mod backend;
pub(crate) mod channels;
pub(crate) mod conv;
pub(crate) mod depthwise;
pub(crate) mod elementwise;
pub(crate) mod images;
pub(crate) mod linear;
pub(crate) mod merge;
pub(crate) mod normalization;
pub(crate) mod operand;
pub(crate) mod optimizer;
pub(crate) mod pixel_norm;
pub(crate) mod pooling;
pub(crate) mod prelu;
mod run;
pub(crate) mod softmax;
pub(crate) mod spatial;
pub(crate) mod window;

/// Every op as a plain loop in f64, straight from its definition: the reference for the other backends, and
/// for gradients.
///
/// Its buffers are `Vec<f64>`, so a test can read and write them without rounding to f32.
///
/// ```
/// use towers_program::{Activation, Layout, Shape, StepArgs, Trial, Write, ops::Activate};
/// use towers_tensor_cpu::Reference;
///
/// let (at, mut trial) = (Layout::contiguous(Shape::vectors(1, 3)), Trial::new(1));
/// let (x, y) = (trial.activations(at, &[-1.0, 0.0, 2.5]), trial.activations(at, &[0.0; 3]));
/// trial.step(Activate { act: Activation::Relu }, &[x], &[y], Write::Set);
/// let mut run = trial.on(&Reference)?;
/// run.run(&StepArgs::inference(1))?;
/// assert_eq!(run.read(y, 1)?, [0.0, 0.0, 2.5]);
/// # Ok::<(), towers_program::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;
