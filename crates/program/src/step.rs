use crate::Span;

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
    /// Where it lies in the arenas.
    pub at: Span,
    /// What the step's learning rate is multiplied with; 1 changes no bit.
    pub lr_multiplier: f32,
    /// Takes the place of the step's.
    pub weight_decay: WeightDecay,
}

/// One step of stochastic gradient descent with momentum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdStep {
    /// The learning rate of this step.
    pub lr: f32,
    /// The momentum, `m`; 0 for none.
    pub momentum: f32,
    /// Nesterov's form.
    pub nesterov: bool,
    /// Whose convention the velocity follows.
    pub velocity: Velocity,
    /// Weight decay.
    pub weight_decay: WeightDecay,
}

impl SgdStep {
    /// All of `at` alike.
    pub fn whole(&self, at: Span) -> ParamRun {
        ParamRun { at, lr_multiplier: 1.0, weight_decay: self.weight_decay }
    }

    /// The step on one run: its learning rate multiplied, its weight decay replaced.
    pub fn on(&self, run: &ParamRun) -> SgdStep {
        SgdStep { lr: self.lr * run.lr_multiplier, weight_decay: run.weight_decay, ..*self }
    }
}

/// One step of RMSprop: `a = rho * a + (1 - rho) * g^2`, then `p -= lr * g / (sqrt(a) + epsilon)`, or with
/// `epsilon_inside_root` `p -= lr * g / sqrt(a + epsilon)`.
///
/// Keras 2 and PyTorch add epsilon outside of the root, Keras 3 inside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmspropStep {
    /// The learning rate of this step.
    pub lr: f32,
    /// The decay of the mean square.
    pub rho: f32,
    /// Keeps the quotient finite.
    pub epsilon: f32,
    /// Keras 3's form.
    pub epsilon_inside_root: bool,
    /// Weight decay.
    pub weight_decay: WeightDecay,
}

impl RmspropStep {
    /// All of `at` alike.
    pub fn whole(&self, at: Span) -> ParamRun {
        ParamRun { at, lr_multiplier: 1.0, weight_decay: self.weight_decay }
    }

    /// The step on one run: its learning rate multiplied, its weight decay replaced.
    pub fn on(&self, run: &ParamRun) -> RmspropStep {
        RmspropStep { lr: self.lr * run.lr_multiplier, weight_decay: run.weight_decay, ..*self }
    }
}

/// One step of Adam, from D. Kingma and J. Ba, "Adam: a method for stochastic optimization" (2015): the mean
/// `m = beta1 * m + (1 - beta1) * g` and the mean square `a = beta2 * a + (1 - beta2) * g^2` start at 0, so in the `t`-th step they
/// fall short by `c1 = 1 - beta1^t` and `c2 = 1 - beta2^t`; `p -= lr * (m / c1) / (sqrt(a / c2) + epsilon)`, or with `epsilon_hat`
/// `p -= lr * (m / c1) / ((sqrt(a) + epsilon) / sqrt(c2))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamStep {
    /// The learning rate of this step.
    pub lr: f32,
    /// The decay of the mean.
    pub beta1: f64,
    /// The decay of the mean square.
    pub beta2: f64,
    /// Keeps the quotient finite.
    pub epsilon: f32,
    /// Keras' form, by the paper's name for this epsilon: it is corrected with the root. PyTorch adds epsilon afterwards.
    pub epsilon_hat: bool,
    /// Weight decay.
    pub weight_decay: WeightDecay,
}

impl AdamStep {
    /// The step on one run: its learning rate multiplied, its weight decay replaced.
    pub fn on(&self, run: &ParamRun) -> AdamStep {
        AdamStep { lr: self.lr * run.lr_multiplier, weight_decay: run.weight_decay, ..*self }
    }

    /// The `t`-th step as `p -= rate * m / (sqrt(a) + epsilon)`: its rate and epsilon.
    pub fn corrected(&self, t: f64) -> (f64, f64) {
        let (c1, c2) = (1.0 - self.beta1.powf(t), 1.0 - self.beta2.powf(t));
        let (root, epsilon) = (c2.sqrt(), f64::from(self.epsilon));
        (f64::from(self.lr) * root / c1, if self.epsilon_hat { epsilon } else { epsilon * root })
    }
}

/// A step of an optimizer, with what it remembers from one to the next: arenas that are laid out as the parameters.
#[derive(Debug)]
pub enum OptimizerStep<'a, B> {
    /// With the velocities. With a momentum of 0 they are not touched.
    Sgd(SgdStep, &'a mut B),
    /// With the mean squares.
    Rmsprop(RmspropStep, &'a mut B),
    /// With the moments.
    Adam(AdamStep, Moments<'a, B>),
}

/// What Adam remembers.
#[derive(Debug)]
pub struct Moments<'a, B> {
    /// The mean of each gradient.
    pub mean: &'a mut B,
    /// The mean of its square.
    pub mean_square: &'a mut B,
    /// In 1 element how many steps were taken: each call counts one, if there is a run to step over.
    pub steps: &'a mut B,
}
