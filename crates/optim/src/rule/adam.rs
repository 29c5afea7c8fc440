use super::{Rule, WeightDecay, check_epsilon, check_lengths, fading};
use crate::Result;
use crate::number::Number;
use crate::text::{NUMBER, Options, SWITCH, Style, Writer, check};
use core::fmt;

/// Adam, at learning rate `lr`, for a gradient `g`: the mean `m = beta1 m + (1 - beta1) g` gives the step its direction, the mean
/// square `a = beta2 a + (1 - beta2) g^2` scales it. Both start at 0 and are corrected for it: `M = m / (1 - beta1^t)` and
/// `A = a / (1 - beta2^t)` in the `t`-th step.
///
/// | | Keras 2 and 3 | PyTorch |
/// | --- | --- | --- |
/// | step | `p -= lr M / (sqrt(A) + epsilon / sqrt(1 - beta2^t))` | `p -= lr M / (sqrt(A) + epsilon)` |
/// | epsilon | 1e-7 | 1e-8 (`eps`) |
/// | weight decay `w` | Keras 3: first `p -= lr w p`; Keras 2: none | first `g += w p` |
/// | `AdamW` | 0.004, first `p -= lr w p` | 0.01, first `p -= lr w p` |
///
/// In the first step Keras' epsilon weighs 32 times as much. So gradients of about 1e-5 move a parameter by a
/// quarter less than with PyTorch's of the same size. From D. Kingma and J. Ba, "Adam: a method for
/// stochastic optimization" (2015), which calls Keras' "epsilon hat"; AdamW is I. Loshchilov and F. Hutter,
/// "Decoupled weight decay regularization" (2019).
///
/// ```
/// use towers_optim::{Adam, WeightDecay};
///
/// let adamw = Adam::pytorch().weight_decay(WeightDecay::Decoupled(0.01));
/// assert_eq!((adamw.beta1, adamw.beta2, adamw.epsilon, adamw.epsilon_hat), (0.9, 0.999, 1e-8, false));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// The decay of the mean.
    pub beta1: f64,
    /// The decay of the mean square.
    pub beta2: f64,
    /// Keeps the quotient finite.
    pub epsilon: f32,
    /// Keras' form.
    pub epsilon_hat: bool,
    /// Weight decay.
    pub weight_decay: WeightDecay,
}

impl Adam {
    /// As in Keras 2.3 and 3. (Its default rate is 0.001.)
    pub const fn keras() -> Self {
        Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-7, epsilon_hat: true, weight_decay: WeightDecay::None }
    }

    /// As in PyTorch. (Its default rate is 0.001.)
    pub const fn pytorch() -> Self {
        Adam { epsilon: 1e-8, epsilon_hat: false, ..Adam::keras() }
    }

    /// The same with other decays of the mean and of the mean square.
    pub fn betas(self, beta1: f64, beta2: f64) -> Self {
        Adam { beta1, beta2, ..self }
    }

    /// The same with another epsilon.
    pub fn epsilon(self, epsilon: f32) -> Self {
        Adam { epsilon, ..self }
    }

    /// The same with a weight decay.
    pub fn weight_decay(self, weight_decay: WeightDecay) -> Self {
        Adam { weight_decay, ..self }
    }

    /// The `t`-th step, counted from 1, at learning rate `lr`, in place. `mean` and `mean_square` start at 0.
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline(always)]
    pub fn step(
        &self,
        lr: f32,
        t: u64,
        params: &mut [f32],
        grads: &[f32],
        mean: &mut [f32],
        mean_square: &mut [f32],
    ) {
        check_lengths(params, [grads, mean, mean_square]);
        // `p -= rate m / (sqrt(a) + epsilon)`, with the corrections of the means in `rate` and `epsilon`.
        let [c1, c2] = [self.beta1, self.beta2].map(|beta| 1.0 - beta.powf(t as f64));
        let (root, epsilon) = (c2.sqrt(), f64::from(self.epsilon));
        let rate = (f64::from(lr) * root / c1) as f32;
        let epsilon = (if self.epsilon_hat { epsilon } else { epsilon * root }) as f32;
        let [keep1, keep2] = [self.beta1, self.beta2].map(|beta| beta as f32);
        let [take1, take2] = [self.beta1, self.beta2].map(|beta| (1.0 - beta) as f32);
        let decay = self.weight_decay.at(lr);
        for (((p, &g), m), a) in params.iter_mut().zip(grads).zip(mean).zip(mean_square) {
            let g = g + decay.penalty * *p;
            *m = keep1 * *m + take1 * g;
            *a = keep2 * *a + take2 * g * g;
            *p = *p * decay.keep - rate * *m / (a.sqrt() + epsilon);
        }
    }
}

impl Style for Adam {
    const ALL: &[(&str, Self)] = &[("keras", Adam::keras()), ("pytorch", Adam::pytorch())];
}

impl Rule for Adam {
    const COUNTS_STEPS: bool = true;

    fn state(&self) -> &'static [&'static str] {
        &["mean", "mean_square"]
    }

    #[inline(always)]
    fn step_over(
        &self,
        lr: f32,
        t: u64,
        params: &mut [f32],
        grads: &[f32],
        [mean, mean_square]: [&mut [f32]; 2],
    ) {
        self.step(lr, t, params, grads, mean, mean_square);
    }

    fn constants(&self) -> Vec<f32> {
        let of = |beta: f64| [beta as f32, (1.0 - beta) as f32, beta.ln() as f32];
        let epsilon = [self.epsilon, self.epsilon_hat.into()];
        [of(self.beta1).as_slice(), &of(self.beta2), &epsilon].concat()
    }

    fn read(name: &str, options: &mut Options) -> Result<Self> {
        let style: Adam = options.style("style", "keras or pytorch")?;
        // AdamW's weight decay is Keras' or PyTorch's.
        let decay = WeightDecay::Decoupled(if style.epsilon_hat { 0.004 } else { 0.01 });
        Ok(Adam {
            beta1: options.or("beta1", NUMBER, style.beta1)?,
            beta2: options.or("beta2", NUMBER, style.beta2)?,
            epsilon: options.or("epsilon", NUMBER, style.epsilon)?,
            epsilon_hat: options.or("epsilon-hat", SWITCH, style.epsilon_hat)?,
            weight_decay: if name == "adamw" { decay } else { WeightDecay::None },
        })
    }

    fn write(&self, out: &mut Writer) -> fmt::Result {
        let form = |adam: &Adam| (adam.epsilon, adam.epsilon_hat);
        let style: Adam = out.style("style", |style| form(style) == form(self))?;
        out.unless_default("beta1", Number(self.beta1), Number(style.beta1))?;
        out.unless_default("beta2", Number(self.beta2), Number(style.beta2))?;
        out.unless_default("epsilon", Number(self.epsilon), Number(style.epsilon))?;
        out.unless_default("epsilon-hat", self.epsilon_hat, style.epsilon_hat)
    }

    fn validate(&self) -> Result<()> {
        check("adam", "beta1", self.beta1, fading(self.beta1))?;
        check("adam", "beta2", self.beta2, fading(self.beta2))?;
        check_epsilon("adam", self.epsilon)
    }
}
