use super::{Rule, WeightDecay, check_epsilon, check_lengths, fading};
use crate::Result;
use crate::number::Number;
use crate::text::{NUMBER, Options, Style, Writer, check};
use core::fmt;

/// NAdam, Adam with Nesterov's momentum, at learning rate `lr`, for a gradient `g`. The mean `m = beta1 m + (1 - beta1) g` and the
/// mean square `a = beta2 a + (1 - beta2) g^2` are Adam's. The `t`-th step has the momentum
/// `u(t) = beta1 (1 - 0.96^(t momentum_decay) / 2)`. With the product `U(t) = u(1) u(2) ... u(t)` and `A = a / (1 - beta2^t)`
/// it is `p -= lr (u(t+1) m / (1 - U(t+1)) + (1 - u(t)) g / (1 - U(t))) / (sqrt(A) + epsilon)`.
///
/// | | Keras 3 | PyTorch |
/// | --- | --- | --- |
/// | momentum decay | 1 | 0.004 |
/// | epsilon | 1e-7 | 1e-8 (`eps`) |
/// | weight decay `w` | first `p -= lr w p` | first `g += w p`, or as Keras with `decoupled_weight_decay` |
///
/// Keras' momentum is near `beta1` after 50 steps. PyTorch's starts at half of that, and is near it after 10,000.
/// From T. Dozat, "Incorporating Nesterov momentum into Adam" (2016).
///
/// ```
/// use towers_optim::Nadam;
///
/// let (nadam, mut params, [mut mean, mut mean_square]) = (Nadam::keras(), [1.0, 2.0], [[0.0; 2]; 2]);
/// nadam.step(0.5, 1, &mut params, &[0.25, 0.0], &mut mean, &mut mean_square);
/// assert!((params[0] - 0.4686).abs() < 1e-4 && params[1] == 2.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nadam {
    /// The decay of the mean, and the momentum in the end.
    pub beta1: f64,
    /// The decay of the mean square.
    pub beta2: f64,
    /// Keeps the quotient finite.
    pub epsilon: f32,
    /// How fast the momentum goes from half of `beta1` to `beta1`; 0 for never.
    pub momentum_decay: f64,
    /// Weight decay.
    pub weight_decay: WeightDecay,
}

/// The base of the momentum's schedule.
const BASE: f64 = 0.96;

impl Nadam {
    /// As in Keras 3. (Its default rate is 0.001.)
    pub const fn keras() -> Self {
        let weight_decay = WeightDecay::None;
        Nadam { beta1: 0.9, beta2: 0.999, epsilon: 1e-7, momentum_decay: 1.0, weight_decay }
    }

    /// As in PyTorch. (Its default rate is 0.002.)
    pub const fn pytorch() -> Self {
        Nadam { epsilon: 1e-8, momentum_decay: 0.004, ..Nadam::keras() }
    }

    /// The same with other decays of the mean and of the mean square.
    pub fn betas(self, beta1: f64, beta2: f64) -> Self {
        Nadam { beta1, beta2, ..self }
    }

    /// The same with another epsilon.
    pub fn epsilon(self, epsilon: f32) -> Self {
        Nadam { epsilon, ..self }
    }

    /// The same with another decay of the momentum.
    pub fn momentum_decay(self, momentum_decay: f64) -> Self {
        Nadam { momentum_decay, ..self }
    }

    /// The same with a weight decay.
    pub fn weight_decay(self, weight_decay: WeightDecay) -> Self {
        Nadam { weight_decay, ..self }
    }

    /// The factors of the gradient and of the mean in the `t`-th step, counted from 1: `(1 - u(t)) / (1 - U(t))` and
    /// `u(t+1) / (1 - U(t+1))`.
    fn shares(&self, t: u64) -> [f64; 2] {
        let momentum = |t: f64| self.beta1 * (1.0 - 0.5 * BASE.powf(self.momentum_decay * t));
        let ratio = BASE.powf(self.momentum_decay);
        let (mut product, mut power) = (1.0, 1.0);
        for _ in 0..t {
            power *= ratio;
            product *= self.beta1 * (1.0 - 0.5 * power);
            // No further factor changes `1 - product`.
            if product < 1e-17 {
                break;
            }
        }
        let (now, next) = (momentum(t as f64), momentum(t as f64 + 1.0));
        [(1.0 - now) / (1.0 - product), next / (1.0 - product * next)]
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
        // `p -= (of_g g + of_m m) / (sqrt(a) + epsilon)`, with the correction of `a` in all three constants.
        let root = (1.0 - self.beta2.powf(t as f64)).sqrt();
        let [of_g, of_m] = self.shares(t).map(|share| (f64::from(lr) * root * share) as f32);
        let epsilon = (f64::from(self.epsilon) * root) as f32;
        let [keep1, keep2] = [self.beta1, self.beta2].map(|beta| beta as f32);
        let [take1, take2] = [self.beta1, self.beta2].map(|beta| (1.0 - beta) as f32);
        let decay = self.weight_decay.at(lr);
        for (((p, &g), m), a) in params.iter_mut().zip(grads).zip(mean).zip(mean_square) {
            let g = g + decay.penalty * *p;
            *m = keep1 * *m + take1 * g;
            *a = keep2 * *a + take2 * g * g;
            *p = *p * decay.keep - (of_g * g + of_m * *m) / (a.sqrt() + epsilon);
        }
    }
}

impl Style for Nadam {
    const ALL: &[(&str, Self)] = &[("keras", Nadam::keras()), ("pytorch", Nadam::pytorch())];
}

impl Rule for Nadam {
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
        let log_ratio = self.momentum_decay * BASE.ln();
        let all = [self.beta1, 1.0 - self.beta1, log_ratio, self.beta2, 1.0 - self.beta2, self.beta2.ln()];
        all.into_iter().map(|x| x as f32).chain([self.epsilon]).collect()
    }

    fn read(_: &str, options: &mut Options) -> Result<Self> {
        let style: Nadam = options.style("style", "keras or pytorch")?;
        Ok(Nadam {
            beta1: options.or("beta1", NUMBER, style.beta1)?,
            beta2: options.or("beta2", NUMBER, style.beta2)?,
            epsilon: options.or("epsilon", NUMBER, style.epsilon)?,
            momentum_decay: options.or("momentum-decay", NUMBER, style.momentum_decay)?,
            ..style
        })
    }

    fn write(&self, out: &mut Writer) -> fmt::Result {
        let form = |nadam: &Nadam| (nadam.epsilon, nadam.momentum_decay);
        let style: Nadam = out.style("style", |style| form(style) == form(self))?;
        out.unless_default("beta1", Number(self.beta1), Number(style.beta1))?;
        out.unless_default("beta2", Number(self.beta2), Number(style.beta2))?;
        out.unless_default("epsilon", Number(self.epsilon), Number(style.epsilon))?;
        out.unless_default("momentum-decay", Number(self.momentum_decay), Number(style.momentum_decay))
    }

    fn validate(&self) -> Result<()> {
        check("nadam", "beta1", self.beta1, fading(self.beta1))?;
        check("nadam", "beta2", self.beta2, fading(self.beta2))?;
        check_epsilon("nadam", self.epsilon)?;
        let decay = self.momentum_decay;
        check("nadam", "momentum-decay", decay, (decay.is_finite() && decay >= 0.0, "a number of 0 or more"))
    }
}
