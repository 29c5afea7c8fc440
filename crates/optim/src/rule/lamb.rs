use super::{Rule, WeightDecay, check_epsilon, check_has_decay, check_lengths, fading, trust_ratio};
use crate::Result;
use crate::number::Number;
use crate::text::{NUMBER, Options, Writer, check};
use core::fmt;

/// LAMB, Adam whose steps have about the same size beside each parameter tensor. With the corrected means `M` and `A` of
/// [`Adam`](crate::Adam), and the weight decay `w`, a tensor `p` has the direction `u = M / (sqrt(A) + epsilon) + w p`. The
/// step is `p -= lr r u` with the trust ratio `r = |p| / |u|`, which is 1 where a norm is 0, and for tensors without a weight
/// decay.
///
/// The conventions and defaults are timm's and Apex', but they also clip all gradients to a norm of 1:
/// `lamb:weight-decay=0.01,global-clipnorm=1`. A weight decay is a part of the direction, [decoupled](WeightDecay::Decoupled)
/// or not. From Y. You et al., "Large batch optimization for deep learning: training BERT in 76 minutes" (2019).
///
/// ```
/// use towers_optim::{Lamb, WeightDecay};
///
/// let lamb = Lamb::new().weight_decay(WeightDecay::Decoupled(0.01));
/// let (mut params, [mut mean, mut mean_square]) = ([3.0, 4.0], [[0.0; 2]; 2]);
/// lamb.step(0.1, 1, &mut params, &[1.0, -1.0], &mut mean, &mut mean_square);
/// let moved = (params[0] - 3.0).hypot(params[1] - 4.0);
/// assert!((moved - 0.5).abs() < 1e-6, "a tenth of its norm");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lamb {
    /// The decay of the mean.
    pub beta1: f64,
    /// The decay of the mean square.
    pub beta2: f64,
    /// Keeps the quotient finite.
    pub epsilon: f32,
    /// Weight decay.
    pub weight_decay: WeightDecay,
}

impl Lamb {
    /// timm's defaults, without a weight decay. (Its default rate is 0.001.)
    pub const fn new() -> Self {
        Lamb { beta1: 0.9, beta2: 0.999, epsilon: 1e-6, weight_decay: WeightDecay::None }
    }

    /// The same with other decays of the mean and of the mean square.
    pub fn betas(self, beta1: f64, beta2: f64) -> Self {
        Lamb { beta1, beta2, ..self }
    }

    /// The same with another epsilon.
    pub fn epsilon(self, epsilon: f32) -> Self {
        Lamb { epsilon, ..self }
    }

    /// The same with a weight decay.
    pub fn weight_decay(self, weight_decay: WeightDecay) -> Self {
        Lamb { weight_decay, ..self }
    }

    /// The `t`-th step of a whole tensor, counted from 1, at learning rate `lr`, in place. `mean` and `mean_square` start at 0.
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
        let squares = self.measure(t, params, grads, [mean, mean_square]);
        self.scaled_step(lr, t, self.ratio(squares), params, grads, [mean, mean_square]);
    }

    /// The direction as a function of `p`, `m` and `a`, with the corrections of the means in its constants.
    #[inline(always)]
    fn direction(&self, t: u64) -> impl Fn(f32, f32, f32) -> f32 {
        let [c1, c2] = [self.beta1, self.beta2].map(|beta| 1.0 - beta.powf(t as f64));
        let root = c2.sqrt();
        let (of_m, epsilon) = ((root / c1) as f32, (f64::from(self.epsilon) * root) as f32);
        let w = self.weight_decay.strength();
        move |p, m, a| of_m * m / (a.sqrt() + epsilon) + w * p
    }
}

impl Default for Lamb {
    fn default() -> Self {
        Lamb::new()
    }
}

impl Rule for Lamb {
    const COUNTS_STEPS: bool = true;
    const OF_TENSORS: bool = true;

    fn state(&self) -> &'static [&'static str] {
        &["mean", "mean_square"]
    }

    #[inline(always)]
    fn measure(
        &self,
        t: u64,
        params: &[f32],
        grads: &[f32],
        [mean, mean_square]: [&mut [f32]; 2],
    ) -> [f64; 2] {
        check_lengths(params, [grads, mean, mean_square]);
        let [keep1, keep2] = [self.beta1, self.beta2].map(|beta| beta as f32);
        let [take1, take2] = [self.beta1, self.beta2].map(|beta| (1.0 - beta) as f32);
        let direction = self.direction(t);
        let mut squares = [0.0, 0.0];
        for (((&p, &g), m), a) in params.iter().zip(grads).zip(mean).zip(mean_square) {
            *m = keep1 * *m + take1 * g;
            *a = keep2 * *a + take2 * g * g;
            for (sum, x) in squares.iter_mut().zip([p, direction(p, *m, *a)]) {
                *sum += f64::from(x) * f64::from(x);
            }
        }
        squares
    }

    fn ratio(&self, squares: [f64; 2]) -> f32 {
        let norms @ [p, u] = squares.map(f64::sqrt);
        trust_ratio(self.weight_decay.strength(), norms, p / u)
    }

    #[inline(always)]
    fn scaled_step(
        &self,
        lr: f32,
        t: u64,
        ratio: f32,
        params: &mut [f32],
        _: &[f32],
        [mean, mean_square]: [&mut [f32]; 2],
    ) {
        let (rate, direction) = (lr * ratio, self.direction(t));
        for ((p, m), a) in params.iter_mut().zip(mean).zip(mean_square) {
            *p -= rate * direction(*p, *m, *a);
        }
    }

    fn constants(&self) -> Vec<f32> {
        let of = |beta: f64| [beta as f32, (1.0 - beta) as f32, beta.ln() as f32];
        [of(self.beta1).as_slice(), &of(self.beta2), &[self.epsilon]].concat()
    }

    fn read(_: &str, options: &mut Options) -> Result<Self> {
        let new = Lamb::new();
        Ok(Lamb {
            beta1: options.or("beta1", NUMBER, new.beta1)?,
            beta2: options.or("beta2", NUMBER, new.beta2)?,
            epsilon: options.or("epsilon", NUMBER, new.epsilon)?,
            ..new
        })
    }

    fn write(&self, out: &mut Writer) -> fmt::Result {
        let new = Lamb::new();
        out.unless_default("beta1", Number(self.beta1), Number(new.beta1))?;
        out.unless_default("beta2", Number(self.beta2), Number(new.beta2))?;
        out.unless_default("epsilon", Number(self.epsilon), Number(new.epsilon))
    }

    fn validate(&self) -> Result<()> {
        check("lamb", "beta1", self.beta1, fading(self.beta1))?;
        check("lamb", "beta2", self.beta2, fading(self.beta2))?;
        check_epsilon("lamb", self.epsilon)?;
        check_has_decay("lamb", self.weight_decay)
    }
}
