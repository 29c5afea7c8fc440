use super::{Rule, WeightDecay, check_epsilon, check_has_decay, check_lengths, fading, trust_ratio};
use crate::number::Number;
use crate::text::{NUMBER, Options, SWITCH, Writer, check};
use crate::{Clip, Result};
use core::fmt;

/// LARS, SGD with momentum `m` whose steps have about the same size beside each parameter tensor. For a tensor `p` with the
/// gradient `g` and the weight decay `w`:
/// `r = trust |p| / (|g| + w |p| + epsilon)`, `v = m v + r (g + w p)`, `p -= lr v`, or with Nesterov
/// `p -= lr (r (g + w p) + m v)`. The ratio `r` is 1 where a norm is 0, and for tensors without a weight decay.
///
/// The conventions and defaults are timm's. A weight decay is a part of the gradient, [coupled](WeightDecay::Coupled) or not.
/// From Y. You, I. Gitman and B. Ginsburg, "Large batch training of convolutional networks" (2017).
///
/// ```
/// use towers_optim::{Lars, WeightDecay};
///
/// let lars = Lars::new().weight_decay(WeightDecay::Coupled(0.5));
/// let mut params = [3.0, 4.0];
/// lars.step(1.0, &mut params, &[0.0, 1.0], &mut []);
/// assert_eq!(params, [3.0 - 1.5 * 0.005 / 3.5, 4.0 - 3.0 * 0.005 / 3.5]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lars {
    /// The momentum, `m`; 0 for none, which then needs no state.
    pub momentum: f32,
    /// Nesterov's form. Without momentum it changes nothing.
    pub nesterov: bool,
    /// The trust coefficient: the size of a step beside its parameter, at a rate of 1.
    pub trust: f32,
    /// Keeps the quotient finite.
    pub epsilon: f32,
    /// Weight decay.
    pub weight_decay: WeightDecay,
}

impl Lars {
    /// timm's defaults: no momentum and no weight decay. (Its default rate is 1.)
    pub const fn new() -> Self {
        Lars { momentum: 0.0, nesterov: false, trust: 0.001, epsilon: 1e-8, weight_decay: WeightDecay::None }
    }

    /// The same with another momentum.
    pub fn momentum(self, momentum: f32) -> Self {
        Lars { momentum, ..self }
    }

    /// The same in Nesterov's form.
    pub fn nesterov(self) -> Self {
        Lars { nesterov: true, ..self }
    }

    /// The same with another trust coefficient.
    pub fn trust(self, trust: f32) -> Self {
        Lars { trust, ..self }
    }

    /// The same with another epsilon.
    pub fn epsilon(self, epsilon: f32) -> Self {
        Lars { epsilon, ..self }
    }

    /// The same with a weight decay.
    pub fn weight_decay(self, weight_decay: WeightDecay) -> Self {
        Lars { weight_decay, ..self }
    }

    /// One step of a whole tensor at learning rate `lr`, in place. `velocity` starts at 0; with a momentum of 0 it may be
    /// empty.
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline(always)]
    pub fn step(&self, lr: f32, params: &mut [f32], grads: &[f32], velocity: &mut [f32]) {
        let squares = self.measure(1, params, grads, [velocity, &mut []]);
        self.scaled_step(lr, 1, self.ratio(squares), params, grads, [velocity, &mut []]);
    }
}

impl Default for Lars {
    fn default() -> Self {
        Lars::new()
    }
}

impl Rule for Lars {
    const COUNTS_STEPS: bool = false;
    const OF_TENSORS: bool = true;

    fn state(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 { &[] } else { &["velocity"] }
    }

    #[inline(always)]
    fn measure(&self, _: u64, params: &[f32], grads: &[f32], _: [&mut [f32]; 2]) -> [f64; 2] {
        [params, grads].map(Clip::squares)
    }

    fn ratio(&self, squares: [f64; 2]) -> f32 {
        let w = self.weight_decay.strength();
        let [p, g] = squares.map(f64::sqrt);
        let ratio = f64::from(self.trust) * p / (g + f64::from(w) * p + f64::from(self.epsilon));
        trust_ratio(w, [p, g], ratio)
    }

    #[inline(always)]
    fn scaled_step(
        &self,
        lr: f32,
        _: u64,
        ratio: f32,
        params: &mut [f32],
        grads: &[f32],
        [velocity, _]: [&mut [f32]; 2],
    ) {
        let w = self.weight_decay.strength();
        if self.momentum == 0.0 {
            check_lengths(params, [grads]);
            for (p, &g) in params.iter_mut().zip(grads) {
                *p -= lr * (ratio * (g + w * *p));
            }
            return;
        }
        check_lengths(params, [grads, velocity]);
        let (of_v, of_g) = if self.nesterov { (self.momentum, 1.0) } else { (1.0, 0.0) };
        for ((p, &g), v) in params.iter_mut().zip(grads).zip(velocity) {
            let g = ratio * (g + w * *p);
            *v = self.momentum * *v + g;
            *p -= lr * (of_v * *v + of_g * g);
        }
    }

    fn constants(&self) -> Vec<f32> {
        vec![self.momentum, self.nesterov.into(), self.trust, self.epsilon]
    }

    fn read(_: &str, options: &mut Options) -> Result<Self> {
        let new = Lars::new();
        Ok(Lars {
            momentum: options.or("momentum", NUMBER, new.momentum)?,
            nesterov: options.or("nesterov", SWITCH, new.nesterov)?,
            trust: options.or("trust", NUMBER, new.trust)?,
            epsilon: options.or("epsilon", NUMBER, new.epsilon)?,
            ..new
        })
    }

    fn write(&self, out: &mut Writer) -> fmt::Result {
        let new = Lars::new();
        out.unless_default("momentum", Number(self.momentum), Number(new.momentum))?;
        out.unless_default("nesterov", self.nesterov, new.nesterov)?;
        out.unless_default("trust", Number(self.trust), Number(new.trust))?;
        out.unless_default("epsilon", Number(self.epsilon), Number(new.epsilon))
    }

    fn validate(&self) -> Result<()> {
        check("lars", "momentum", self.momentum, fading(self.momentum))?;
        check(
            "lars",
            "trust",
            self.trust,
            (self.trust.is_finite() && self.trust > 0.0, "a positive number"),
        )?;
        check_epsilon("lars", self.epsilon)?;
        check_has_decay("lars", self.weight_decay)
    }
}
