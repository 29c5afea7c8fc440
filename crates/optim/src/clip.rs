/// How gradients are clipped before a step, by the names of Keras 3: one of three ways.
///
/// A gradient with a norm within the limit keeps its bits. Norms are of the gradients over the whole batch, after the sum over
/// replicas, and without a coupled weight decay (PyTorch's `weight_decay`), as PyTorch's `clip_grad_norm_` has them.
///
/// ```
/// use towers_optim::Clip;
///
/// let (mut kernel, mut bias) = ([3.0, 0.0, 4.0], [0.0, -12.0]);
/// Clip::GlobalNorm(6.5).apply(&mut [&mut kernel, &mut bias]); // their norm is 13
/// assert_eq!((kernel, bias), ([1.5, 0.0, 2.0], [0.0, -6.0]));
/// Clip::Norm(5.0).apply(&mut [&mut kernel, &mut bias]); // 2.5 and 6
/// assert_eq!((kernel, bias), ([1.5, 0.0, 2.0], [0.0, -5.0]));
/// Clip::Value(1.0).apply(&mut [&mut kernel, &mut bias]);
/// assert_eq!((kernel, bias), ([1.0, 0.0, 1.0], [0.0, -1.0]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Clip {
    /// The gradient of each parameter is shortened to this norm: `clipnorm` (in standalone Keras 2 that was the norm of all
    /// gradients).
    Norm(f32),
    /// Each number is brought into `-limit..=limit`: `clipvalue`, PyTorch's `clip_grad_value_`.
    Value(f32),
    /// All gradients are shortened alike, so that their common norm is this: `global_clipnorm`, PyTorch's `clip_grad_norm_` (which
    /// divides by the norm and 1e-6 more).
    GlobalNorm(f32),
}

impl Clip {
    /// Clips gradients in place, a slice for each parameter.
    pub fn apply(&self, grads: &mut [&mut [f32]]) {
        match *self {
            Clip::Value(limit) => {
                grads.iter_mut().flat_map(|grad| grad.iter_mut()).for_each(|g| *g = g.clamp(-limit, limit));
            }
            Clip::Norm(limit) => {
                grads.iter_mut().for_each(|grad| scale(grad, Self::factor(limit, norm(Self::squares(grad)))));
            }
            Clip::GlobalNorm(limit) => {
                let all = grads.iter().map(|grad| Self::squares(grad)).sum();
                let factor = Self::factor(limit, norm(all));
                grads.iter_mut().for_each(|grad| scale(grad, factor));
            }
        }
    }

    /// The sum of squares, in f64 and in a fixed order, with the instruction set of the function that calls it.
    #[inline(always)]
    pub fn squares(grads: &[f32]) -> f64 {
        const LANES: usize = 16;
        let (blocks, rest) = grads.as_chunks::<LANES>();
        let mut lanes = [0.0_f64; LANES];
        for block in blocks {
            for (lane, &g) in lanes.iter_mut().zip(block) {
                *lane += f64::from(g) * f64::from(g);
            }
        }
        let rest = rest.iter().map(|&g| f64::from(g) * f64::from(g));
        lanes.into_iter().chain(rest).sum()
    }

    /// The factor that shortens a gradient of this norm to `limit`; 1 if it is no longer.
    pub fn factor(limit: f32, norm: f32) -> f32 {
        if norm > limit { limit / norm } else { 1.0 }
    }

    /// The limit.
    pub fn limit(&self) -> f32 {
        let (Clip::Norm(limit) | Clip::Value(limit) | Clip::GlobalNorm(limit)) = *self;
        limit
    }

    /// The name of the option in the compact form of an [`Optimizer`](crate::Optimizer).
    pub fn name(&self) -> &'static str {
        match self {
            Clip::Norm(_) => "clipnorm",
            Clip::Value(_) => "clipvalue",
            Clip::GlobalNorm(_) => "global-clipnorm",
        }
    }
}

fn norm(squares: f64) -> f32 {
    squares.sqrt() as f32
}

fn scale(grad: &mut [f32], factor: f32) {
    if factor != 1.0 {
        grad.iter_mut().for_each(|g| *g *= factor);
    }
}
