use crate::number::Number;
use crate::text::{NUMBER, SWITCH, Writer, check, parse};
use crate::{Clip, Error, Result};
use core::fmt::{self, Display, Formatter};
use core::str::FromStr;

/// Sharpness-aware minimization: an optimizer steps by the gradient at `w + e`, where the loss is about the highest within the
/// distance `rho` of the weights `w`. So it looks for minima whose surroundings are as low.
///
/// With the gradient `g` at `w`, and norms over all parameters:
///
/// | form | `e` | the usual `rho` | from |
/// | --- | --- | --- | --- |
/// | SAM | `rho g / (\|g\| + 1e-12)` | 0.05 | P. Foret et al., "Sharpness-aware minimization for efficiently improving generalization" (2021) |
/// | adaptive, which scaling the weights does not change | `rho w^2 g / (\|w g\| + 1e-12)` | 0.5 to 2 | J. Kwon et al., "ASAM: adaptive sharpness-aware minimization for scale-invariant learning of deep neural networks" (2021) |
///
/// The constant 1e-12 is that of David Samuel's `sam.py` for PyTorch. A step takes two passes over a batch:
///
/// ```
/// use towers_optim::{Sam, Sgd};
///
/// let (mut params, sgd) = ([1.0_f32, 1.0], Sgd::keras());
/// let gradient = |params: &[f32; 2]| params.map(|p| 4.0 * p * p * p); // of the sum of fourth powers
/// let weights = params;
/// Sam::new(0.5).ascend(&mut [&mut params], &[&gradient(&weights)]);
/// assert!((params[0] - 1.3535534).abs() < 1e-6);
/// let sharp = gradient(&params);
/// params = weights;
/// sgd.step(0.01, &mut params, &sharp, &mut []);
/// assert!((params[0] - 0.90080583).abs() < 1e-6);
/// ```
///
/// # Compact form
/// [`FromStr`] reads `0.05` and `2,adaptive`. [`Display`] writes `rho=0.05` and `rho=2,adaptive=true`, which are read too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sam {
    /// The distance; in the adaptive form of weights that are divided by their sizes.
    pub rho: f32,
    /// Whether the distance adapts to the size of each weight.
    pub adaptive: bool,
}

impl Sam {
    /// The plain form.
    pub const fn new(rho: f32) -> Self {
        Sam { rho, adaptive: false }
    }

    /// The adaptive form.
    pub const fn adaptive(self) -> Self {
        Sam { adaptive: true, ..self }
    }

    /// Adds `e` to the parameters in place, by their gradients: a slice of each for each parameter.
    ///
    /// # Panics
    /// If the two slices of a parameter differ in length.
    pub fn ascend(&self, params: &mut [&mut [f32]], grads: &[&[f32]]) {
        let all: f64 = params.iter().zip(grads).map(|(params, grads)| self.squares(params, grads)).sum();
        let factor = self.factor(all.sqrt() as f32);
        params.iter_mut().zip(grads).for_each(|(params, grads)| self.add(factor, params, grads));
    }

    /// The sum of the squares whose root is the norm, in f64 and in a fixed order, with the instruction set of the function that
    /// calls it.
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline(always)]
    pub fn squares(&self, params: &[f32], grads: &[f32]) -> f64 {
        const LANES: usize = 16;
        assert_eq!(params.len(), grads.len(), "a gradient for each parameter");
        if !self.adaptive {
            return Clip::squares(grads);
        }
        let product = |(&p, &g): (&f32, &f32)| f64::from(p) * f64::from(g);
        let ((params, last_params), (grads, last_grads)) =
            (params.as_chunks::<LANES>(), grads.as_chunks::<LANES>());
        let mut lanes = [0.0_f64; LANES];
        for (params, grads) in params.iter().zip(grads) {
            for (lane, pair) in lanes.iter_mut().zip(params.iter().zip(grads)) {
                *lane += product(pair) * product(pair);
            }
        }
        let rest = last_params.iter().zip(last_grads).map(|pair| product(pair) * product(pair));
        lanes.into_iter().chain(rest).sum()
    }

    /// The factor of a gradient, by the norm over all parameters.
    pub fn factor(&self, norm: f32) -> f32 {
        self.rho / (norm + Self::EPSILON)
    }

    /// Keeps the quotient finite where all gradients are 0.
    pub const EPSILON: f32 = 1e-12;

    /// Adds one parameter's part of `e`, with the instruction set of the function that calls it.
    #[inline(always)]
    pub fn add(&self, factor: f32, params: &mut [f32], grads: &[f32]) {
        if self.adaptive {
            params.iter_mut().zip(grads).for_each(|(p, &g)| *p += *p * *p * g * factor);
        } else {
            params.iter_mut().zip(grads).for_each(|(p, &g)| *p += g * factor);
        }
    }

    /// Checks the options. Parsing does so by itself.
    ///
    /// # Errors
    /// If `rho` is not a positive number.
    pub fn validate(&self) -> Result<()> {
        let is_distance = self.rho.is_finite() && self.rho > 0.0;
        check("sam", "rho", Number(self.rho), (is_distance, "a positive number"))
    }
}

impl FromStr for Sam {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let first = text.split(',').next().unwrap_or_default();
        // A number alone is the distance.
        let key = if first.trim().parse::<f32>().is_ok() { "rho=" } else { "" };
        let text = format!("sam:{key}{text}");
        let (_, mut options) = parse(&text)?;
        let rho = options.need("rho", NUMBER)?;
        let sam = Sam { rho, adaptive: options.or("adaptive", SWITCH, false)? };
        options.finish()?;
        sam.validate()?;
        Ok(sam)
    }
}

impl Display for Sam {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let mut out = Writer::bare(f);
        out.option("rho", Number(self.rho))?;
        out.unless_default("adaptive", self.adaptive, false)
    }
}
