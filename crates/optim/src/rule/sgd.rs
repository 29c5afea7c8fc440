use super::{Rule, WeightDecay, check_lengths, fading};
use crate::Result;
use crate::number::Number;
use crate::text::{NUMBER, Options, SWITCH, Style, Writer, check};
use core::fmt;

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
/// use towers_optim::Sgd;
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

    /// One step at learning rate `lr`, in place. `velocity` starts at 0; with a momentum of 0 it may be empty.
    ///
    /// ```
    /// use towers_optim::Sgd;
    ///
    /// let (sgd, mut params, mut velocity) = (Sgd::keras().momentum(0.5), [1.0, 2.0], [0.0; 2]);
    /// for _ in 0..2 {
    ///     sgd.step(0.5, &mut params, &[1.0, -1.0], &mut velocity);
    /// }
    /// assert_eq!((params, velocity), ([-0.25, 3.25], [-0.75, 0.75]));
    /// ```
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline(always)]
    pub fn step(&self, lr: f32, params: &mut [f32], grads: &[f32], velocity: &mut [f32]) {
        let decay = self.weight_decay.at(lr);
        if self.momentum == 0.0 {
            check_lengths(params, [grads]);
            for (p, &g) in params.iter_mut().zip(grads) {
                *p = *p * decay.keep - lr * (g + decay.penalty * *p);
            }
            return;
        }
        check_lengths(params, [grads, velocity]);
        // All conventions as one formula: `v = m v + into g`, then `p += out (of_v v + of_g g)`.
        // The learning rate enters the velocity (Keras) or leaves with it (PyTorch).
        let (into, out) = match self.velocity {
            Velocity::Keras => (-lr, 1.0),
            Velocity::PyTorch => (1.0, -lr),
        };
        // Nesterov looks one step ahead: `m v + into g` in place of `v`.
        let (of_v, of_g) = if self.nesterov { (self.momentum, into) } else { (1.0, 0.0) };
        for ((p, &g), v) in params.iter_mut().zip(grads).zip(velocity) {
            let g = g + decay.penalty * *p;
            *v = self.momentum * *v + into * g;
            *p = *p * decay.keep + out * (of_v * *v + of_g * g);
        }
    }
}

/// Whose velocity it is.
impl Style for Velocity {
    const ALL: &[(&str, Self)] = &[("keras", Velocity::Keras), ("pytorch", Velocity::PyTorch)];
}

impl Rule for Sgd {
    const COUNTS_STEPS: bool = false;

    fn state(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 { &[] } else { &["velocity"] }
    }

    #[inline(always)]
    fn step_over(&self, lr: f32, _: u64, params: &mut [f32], grads: &[f32], [velocity, _]: [&mut [f32]; 2]) {
        self.step(lr, params, grads, velocity);
    }

    fn constants(&self) -> Vec<f32> {
        let is_keras = self.velocity == Velocity::Keras;
        vec![self.momentum, is_keras.into(), self.nesterov.into()]
    }

    fn read(_: &str, options: &mut Options) -> Result<Self> {
        Ok(Sgd {
            momentum: options.or("momentum", NUMBER, 0.0)?,
            nesterov: options.or("nesterov", SWITCH, false)?,
            velocity: options.style("velocity", "keras or pytorch")?,
            weight_decay: WeightDecay::None,
        })
    }

    fn write(&self, out: &mut Writer) -> fmt::Result {
        out.unless_default("momentum", Number(self.momentum), Number(0.0))?;
        out.unless_default("nesterov", self.nesterov, false)?;
        if self.velocity == Velocity::PyTorch { out.option("velocity", "pytorch") } else { Ok(()) }
    }

    fn validate(&self) -> Result<()> {
        check("sgd", "momentum", self.momentum, fading(self.momentum))
    }
}
