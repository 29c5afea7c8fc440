use crate::{Span, Storage};

/// How a weight decay of strength `w` acts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum WeightDecay {
    /// Not at all.
    #[default]
    None,
    /// As an L2 penalty: the gradient becomes `g + w * p` (PyTorch's SGD and RMSprop).
    Coupled(f32),
    /// Beside the gradient: `p` first becomes `p - lr * w * p` (Keras 3, AdamW).
    Decoupled(f32),
}

/// Where the learning rate enters the velocity of SGD with momentum `m`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Velocity {
    /// Keras: `v = m * v - lr * g`; `p += v`, or with Nesterov `p += m * v - lr * g`.
    #[default]
    Keras,
    /// PyTorch: `v = m * v + g`; `p -= lr * v`, or with Nesterov `p -= lr * (g + m * v)`.
    ///
    /// With a constant rate and a velocity that starts at 0 both give the same weights; when the rate
    /// changes, Keras' velocity still carries the old rate.
    PyTorch,
}

/// A run of parameters that a step treats alike: PyTorch's parameter group, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParamRun {
    /// Its place in the arenas.
    pub at: Span,
    /// The factor of the step's learning rate; 1 changes no bit.
    pub lr_multiplier: f32,
    /// Takes the place of the optimizer's.
    pub weight_decay: WeightDecay,
}

impl ParamRun {
    /// A run that keeps the learning rate.
    pub const fn new(at: Span, weight_decay: WeightDecay) -> Self {
        ParamRun { at, lr_multiplier: 1.0, weight_decay }
    }
}

/// Stochastic gradient descent, with momentum `m`, at learning rate `lr`, for a gradient `g`:
///
/// | | Keras 2 and 3 | PyTorch |
/// | --- | --- | --- |
/// | velocity | `v = m v - lr g` | `v = m v + g` |
/// | step | `p += v` | `p -= lr v` |
/// | with Nesterov | `p += m v - lr g` | `p -= lr (g + m v)` |
/// | weight decay `w` | Keras 3: first `p -= lr w p`; Keras 2: none | first `g += w p` |
///
/// As long as the rate stays, both give the same weights. When it drops, Keras' velocity still carries the
/// old rate and PyTorch's takes the new one at once. At a momentum of 0.9 and a steady gradient, a drop to a
/// tenth makes the next step of Keras 9.1 times as long as PyTorch's. The excess fades by a factor of 0.9 a
/// step. Weight decay acts the same without momentum. With it, PyTorch's also runs through the velocity.
///
/// ```
/// use program::Sgd;
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
    /// The framework whose convention the velocity follows.
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
}

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
/// use program::Rmsprop;
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
}

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
/// use program::{Adam, WeightDecay};
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

    /// The `t`-th step at learning rate `lr` as `p -= rate * m / (sqrt(a) + epsilon)`: its rate and epsilon.
    pub fn corrected(&self, lr: f32, t: f64) -> (f64, f64) {
        let (c1, c2) = (1.0 - self.beta1.powf(t), 1.0 - self.beta2.powf(t));
        let (root, epsilon) = (c2.sqrt(), f64::from(self.epsilon));
        (f64::from(lr) * root / c1, if self.epsilon_hat { epsilon } else { epsilon * root })
    }
}

/// A rule for one step, with its state: arenas with the layout of the parameters.
#[derive(Debug)]
pub enum OptimizerStep<'a> {
    /// With the velocities. With a momentum of 0 they are not touched.
    Sgd(Sgd, &'a mut Storage),
    /// With the mean squares.
    Rmsprop(Rmsprop, &'a mut Storage),
    /// With the moments.
    Adam(Adam, Moments<'a>),
}

/// What Adam remembers.
#[derive(Debug)]
pub struct Moments<'a> {
    /// The mean of each gradient.
    pub mean: &'a mut Storage,
    /// The mean of its square.
    pub mean_square: &'a mut Storage,
    /// In 1 element how many steps were taken: each call counts one, if there is a run to step over.
    pub steps: &'a mut Storage,
}
