pub(crate) mod activation;
mod backend;
mod batch_norm;
mod conv;
mod elementwise;
mod images;
mod linear;
mod operand;
mod optimizer;
mod pooling;
mod run;
mod softmax;
mod window;

/// Every op as a plain loop in f64, straight from its definition: what the other backends, and gradients, are
/// checked against.
///
/// Its buffers are `Vec<f64>`, so a test can read and write them without rounding to f32.
///
/// ```
/// use program::{Activation, Backend, Layout, Shape, View, ViewMut};
/// use tensor_cpu::Reference;
///
/// let at = Layout::contiguous(Shape::vectors(1, 3));
/// let (x, mut y) = (vec![-1.0, 0.0, 2.5], vec![0.0; 3]);
/// Reference.act_fwd(Activation::Relu, View::new(&x, at), ViewMut::new(&mut y, at))?;
/// assert_eq!(y, [0.0, 0.0, 2.5]);
/// # Ok::<(), program::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;
