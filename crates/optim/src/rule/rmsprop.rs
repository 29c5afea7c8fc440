use super::{Rule, WeightDecay, check_epsilon, check_lengths, fading};
use crate::Result;
use crate::number::Number;
use crate::text::{NUMBER, Options, SWITCH, Style, Writer, check};
use core::fmt;

/// RMSprop, without momentum and not centered, at learning rate `lr`, for a gradient `g`: the mean square
/// `a = rho a + (1 - rho) g^2` scales the step, in one of two ways.
///
/// | | Keras 2 | Keras 3 | PyTorch |
/// | --- | --- | --- | --- |
/// | step | `p -= lr g / (sqrt(a) + epsilon)` | `p -= lr g / sqrt(a + epsilon)` | as Keras 2 |
/// | rho | 0.9 | 0.9 | 0.99 (`alpha`) |
/// | epsilon | 1e-7 | 1e-7 | 1e-8 (`eps`) |
/// | weight decay `w` | none | first `p -= lr w p` | first `g += w p` |
///
/// Where epsilon stands matters for small gradients, since inside of the root it weighs as `sqrt(epsilon)`, 3e-4: at a
/// root mean square of 1e-2 the steps of Keras 3 are shorter by 0.05%, at 1e-3 by 4.6%, at 1e-4 they are less than a
/// third. From G. Hinton, "Neural networks for machine learning" (2012), lecture 6e.
///
/// ```
/// use towers_optim::Rmsprop;
///
/// // The MXNet tutorial: `keras.optimizers.rmsprop(lr=0.0001, decay=1e-6)`, its decay being the schedule `time:decay=1e-6`.
/// let rmsprop = Rmsprop::keras2();
/// assert_eq!((rmsprop.rho, rmsprop.epsilon, rmsprop.epsilon_inside_root), (0.9, 1e-7, false));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rmsprop {
    /// The decay of the mean square.
    pub rho: f32,
    /// Keeps the quotient finite.
    pub epsilon: f32,
    /// Keras 3's form.
    pub epsilon_inside_root: bool,
    /// Weight decay.
    pub weight_decay: WeightDecay,
}

impl Rmsprop {
    /// As in Keras 2.3. (Its default rate is 0.001.)
    pub const fn keras2() -> Self {
        Rmsprop { rho: 0.9, epsilon: 1e-7, epsilon_inside_root: false, weight_decay: WeightDecay::None }
    }

    /// As in Keras 3. (Its default rate is 0.001.)
    pub const fn keras3() -> Self {
        Rmsprop { epsilon_inside_root: true, ..Rmsprop::keras2() }
    }

    /// As in PyTorch. (Its default rate is 0.01.)
    pub const fn pytorch() -> Self {
        Rmsprop { rho: 0.99, epsilon: 1e-8, ..Rmsprop::keras2() }
    }

    /// The same with another rho.
    pub fn rho(self, rho: f32) -> Self {
        Rmsprop { rho, ..self }
    }

    /// The same with another epsilon.
    pub fn epsilon(self, epsilon: f32) -> Self {
        Rmsprop { epsilon, ..self }
    }

    /// The same with a weight decay.
    pub fn weight_decay(self, weight_decay: WeightDecay) -> Self {
        Rmsprop { weight_decay, ..self }
    }

    /// One step at learning rate `lr`, in place. `mean_square` starts at 0.
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline(always)]
    pub fn step(&self, lr: f32, params: &mut [f32], grads: &[f32], mean_square: &mut [f32]) {
        check_lengths(params, [grads, mean_square]);
        let (rho, decay) = (self.rho, self.weight_decay.at(lr));
        let (inside, outside) =
            if self.epsilon_inside_root { (self.epsilon, 0.0) } else { (0.0, self.epsilon) };
        for ((p, &g), a) in params.iter_mut().zip(grads).zip(mean_square) {
            let g = g + decay.penalty * *p;
            *a = rho * *a + (1.0 - rho) * g * g;
            *p = *p * decay.keep - lr * g / ((*a + inside).sqrt() + outside);
        }
    }
}

impl Style for Rmsprop {
    const ALL: &[(&str, Self)] =
        &[("keras2", Rmsprop::keras2()), ("keras3", Rmsprop::keras3()), ("pytorch", Rmsprop::pytorch())];
}

impl Rule for Rmsprop {
    const COUNTS_STEPS: bool = false;

    fn state(&self) -> &'static [&'static str] {
        &["mean_square"]
    }

    #[inline(always)]
    fn step_over(
        &self,
        lr: f32,
        _: u64,
        params: &mut [f32],
        grads: &[f32],
        [mean_square, _]: [&mut [f32]; 2],
    ) {
        self.step(lr, params, grads, mean_square);
    }

    fn constants(&self) -> Vec<f32> {
        let (inside, outside) =
            if self.epsilon_inside_root { (self.epsilon, 0.0) } else { (0.0, self.epsilon) };
        vec![self.rho, inside, outside]
    }

    fn read(_: &str, options: &mut Options) -> Result<Self> {
        let style: Rmsprop = options.style("style", "keras2, keras3 or pytorch")?;
        Ok(Rmsprop {
            rho: options.or("rho", NUMBER, style.rho)?,
            epsilon: options.or("epsilon", NUMBER, style.epsilon)?,
            epsilon_inside_root: options.or("epsilon-inside-root", SWITCH, style.epsilon_inside_root)?,
            ..style
        })
    }

    fn write(&self, out: &mut Writer) -> fmt::Result {
        let plain = self.weight_decay(WeightDecay::None);
        let style: Rmsprop = out.style("style", |style| *style == plain)?;
        out.unless_default("rho", Number(self.rho), Number(style.rho))?;
        out.unless_default("epsilon", Number(self.epsilon), Number(style.epsilon))?;
        out.unless_default("epsilon-inside-root", self.epsilon_inside_root, style.epsilon_inside_root)
    }

    fn validate(&self) -> Result<()> {
        check("rmsprop", "rho", self.rho, fading(self.rho))?;
        check_epsilon("rmsprop", self.epsilon)
    }
}
