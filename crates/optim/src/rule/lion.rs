use super::{Rule, WeightDecay, check_lengths, fading};
use crate::Result;
use crate::number::Number;
use crate::text::{NUMBER, Options, Writer, check};
use core::fmt;

/// Lion, at learning rate `lr`, for a gradient `g`: a step of the size `lr` in the direction of the sign,
/// `p -= lr sign(beta1 m + (1 - beta1) g)`. After that the mean follows: `m = beta2 m + (1 - beta2) g`.
///
/// | | Keras 3 | PyTorch |
/// | --- | --- | --- |
/// | beta1, beta2 | 0.9, 0.99 | has no Lion |
/// | weight decay `w` | first `p -= lr w p` | |
///
/// Every parameter with a gradient moves by `lr`. So the paper takes a rate 3 to 10 times smaller than AdamW's, and a weight decay
/// larger by as much. From X. Chen et al., "Symbolic discovery of optimization algorithms" (2023).
///
/// ```
/// use towers_optim::Lion;
///
/// let (lion, mut params, mut mean) = (Lion::keras(), [1.0, 2.0, 3.0], [0.0; 3]);
/// lion.step(0.5, &mut params, &[1e-3, 0.0, -70.0], &mut mean);
/// assert_eq!(params, [0.5, 2.0, 3.5]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lion {
    /// The share of the mean in the direction of a step.
    pub beta1: f64,
    /// The decay of the mean.
    pub beta2: f64,
    /// Weight decay.
    pub weight_decay: WeightDecay,
}

impl Lion {
    /// As in Keras 3. (Its default rate is 0.001.)
    pub const fn keras() -> Self {
        Lion { beta1: 0.9, beta2: 0.99, weight_decay: WeightDecay::None }
    }

    /// The same with another share, and another decay, of the mean.
    pub fn betas(self, beta1: f64, beta2: f64) -> Self {
        Lion { beta1, beta2, ..self }
    }

    /// The same with a weight decay.
    pub fn weight_decay(self, weight_decay: WeightDecay) -> Self {
        Lion { weight_decay, ..self }
    }

    /// One step at learning rate `lr`, in place. `mean` starts at 0. The sign of 0 is 0, that of NaN is NaN.
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline(always)]
    pub fn step(&self, lr: f32, params: &mut [f32], grads: &[f32], mean: &mut [f32]) {
        check_lengths(params, [grads, mean]);
        let [keep1, keep2] = [self.beta1, self.beta2].map(|beta| beta as f32);
        let [take1, take2] = [self.beta1, self.beta2].map(|beta| (1.0 - beta) as f32);
        let decay = self.weight_decay.at(lr);
        for ((p, &g), m) in params.iter_mut().zip(grads).zip(mean) {
            let g = g + decay.penalty * *p;
            let c = keep1 * *m + take1 * g;
            let sign = if c == 0.0 { 0.0 } else { c.signum() };
            *m = keep2 * *m + take2 * g;
            *p = *p * decay.keep - lr * sign;
        }
    }
}

impl Rule for Lion {
    const COUNTS_STEPS: bool = false;

    fn state(&self) -> &'static [&'static str] {
        &["mean"]
    }

    #[inline(always)]
    fn step_over(&self, lr: f32, _: u64, params: &mut [f32], grads: &[f32], [mean, _]: [&mut [f32]; 2]) {
        self.step(lr, params, grads, mean);
    }

    fn constants(&self) -> Vec<f32> {
        [self.beta1, self.beta2].into_iter().flat_map(|beta| [beta as f32, (1.0 - beta) as f32]).collect()
    }

    fn read(_: &str, options: &mut Options) -> Result<Self> {
        let Lion { beta1, beta2, weight_decay } = Lion::keras();
        Ok(Lion {
            beta1: options.or("beta1", NUMBER, beta1)?,
            beta2: options.or("beta2", NUMBER, beta2)?,
            weight_decay,
        })
    }

    fn write(&self, out: &mut Writer) -> fmt::Result {
        let usual = Lion::keras();
        out.unless_default("beta1", Number(self.beta1), Number(usual.beta1))?;
        out.unless_default("beta2", Number(self.beta2), Number(usual.beta2))
    }

    fn validate(&self) -> Result<()> {
        check("lion", "beta1", self.beta1, fading(self.beta1))?;
        check("lion", "beta2", self.beta2, fading(self.beta2))
    }
}
