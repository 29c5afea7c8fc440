use super::{check_weight_decay, fading};
use crate::Result;
use crate::text::check;
use tensor::{SgdStep, Velocity, WeightDecay};

/// Stochastic gradient descent, with momentum `m`, at learning rate `lr`, for a gradient `g`:
///
/// | | Keras 2 and 3 | PyTorch |
/// | --- | --- | --- |
/// | velocity | `v = m v - lr g` | `v = m v + g` |
/// | step | `p += v` | `p -= lr v` |
/// | with Nesterov | `p += m v - lr g` | `p -= lr (g + m v)` |
/// | weight decay `w` | Keras 3: first `p -= lr w p`; Keras 2: none | first `g += w p` |
///
/// As long as the rate stays, both give the same weights. When it drops, Keras' velocity still carries the old rate and
/// PyTorch's takes the new one at once. At a momentum of 0.9 and a steady gradient, a drop to a tenth makes the next step
/// of Keras 9.1 times as long as PyTorch's, an excess that fades by a factor of 0.9 a step. A weight decay acts the
/// same without momentum; with it, PyTorch's also runs through the velocity.
///
/// ```
/// use optim::Sgd;
///
/// // The MiniGoogLeNet tutorial: `SGD(lr=INIT_LR, momentum=0.9)`.
/// let sgd = Sgd::keras().momentum(0.9);
/// assert!(!sgd.nesterov);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// The momentum, `m`; 0 for none, which then needs no state.
    pub momentum: f32,
    /// Nesterov's form. Without momentum it changes nothing.
    pub nesterov: bool,
    /// Whose convention the velocity follows.
    pub velocity: Velocity,
    /// Weight decay.
    pub weight_decay: WeightDecay,
}

impl Sgd {
    /// Keras' convention and defaults, alike in Keras 2.3 and 3: no momentum. (Keras' default rate is 0.01.)
    pub const fn keras() -> Self {
        Sgd { momentum: 0.0, nesterov: false, velocity: Velocity::Keras, weight_decay: WeightDecay::None }
    }

    /// PyTorch's convention and defaults: no momentum. (PyTorch's default rate is 0.001; its dampening is 0, here always.)
    pub const fn pytorch() -> Self {
        Sgd { velocity: Velocity::PyTorch, ..Sgd::keras() }
    }

    /// The same with another momentum.
    pub fn momentum(self, momentum: f32) -> Self {
        Sgd { momentum, ..self }
    }

    /// The same in Nesterov's form.
    pub fn nesterov(self) -> Self {
        Sgd { nesterov: true, ..self }
    }

    /// The same with a weight decay.
    pub fn weight_decay(self, weight_decay: WeightDecay) -> Self {
        Sgd { weight_decay, ..self }
    }

    /// The op's operands for one step.
    pub(crate) fn at(&self, lr: f32) -> SgdStep {
        let Sgd { momentum, nesterov, velocity, weight_decay } = *self;
        SgdStep { lr, momentum, nesterov, velocity, weight_decay }
    }

    pub(super) fn validate(&self) -> Result<()> {
        check("sgd", "momentum", self.momentum, fading(self.momentum))?;
        check_weight_decay("sgd", self.weight_decay)
    }
}
