use super::{check_weight_decay, fading};
use crate::Result;
use crate::text::check;
use tensor::{AdamStep, WeightDecay};

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
/// In the first step Keras' epsilon weighs 32 times as much, so gradients of about 1e-5 move a parameter by a quarter less than
/// with PyTorch's of the same size. From D. Kingma and J. Ba, "Adam: a method for stochastic optimization" (2015), which calls
/// Keras' "epsilon hat"; AdamW is I. Loshchilov and F. Hutter, "Decoupled weight decay regularization" (2019).
///
/// ```
/// use optim::{Adam, WeightDecay};
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

    /// The op's operands for one step.
    pub(crate) fn at(&self, lr: f32) -> AdamStep {
        let Adam { beta1, beta2, epsilon, epsilon_hat, weight_decay } = *self;
        AdamStep { lr, beta1, beta2, epsilon, epsilon_hat, weight_decay }
    }

    pub(super) fn validate(&self) -> Result<()> {
        let positive = self.epsilon.is_finite() && self.epsilon > 0.0;
        check("adam", "beta1", self.beta1, fading(self.beta1))?;
        check("adam", "beta2", self.beta2, fading(self.beta2))?;
        check("adam", "epsilon", self.epsilon, (positive, "a positive number"))?;
        check_weight_decay("adam", self.weight_decay)
    }
}
