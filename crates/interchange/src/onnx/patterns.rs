//! Which terms are one layer.
//!
//! A new activation of several nodes is a line in [`activation`].

use super::term::{Kind, Term};
use std::sync::Arc;
use towers_program::Activation;

/// Functions that are only parts of others.
const PARTS: [&str; 3] = ["erf", "reciprocal", "sqrt"];

fn near(x: f64, to: f64) -> bool {
    (x - to).abs() <= 2e-6 * to.abs().max(1.0)
}

impl Term {
    /// A factor of a term, and the term without it.
    pub(super) fn scaled(self: &Arc<Self>) -> (f64, &Arc<Self>) {
        match line(self) {
            (scale, 0.0, of) => (scale, of),
            _ => (1.0, self),
        }
    }

    /// A layer normalization over the channels without its weights: the difference from the mean, divided by the root of the mean of its
    /// squares and epsilon.
    pub(super) fn normalized(&self) -> Option<Kind> {
        let (difference, root) = match &self.kind {
            Kind::Quotient(a, b) => (a, b),
            Kind::Product(a, b) => match (function(a, "reciprocal"), function(b, "reciprocal")) {
                (_, Some(root)) => (a, root),
                (Some(root), _) => (b, root),
                _ => return None,
            },
            _ => return None,
        };
        let variance = function(root, "sqrt")?;
        let (1.0, epsilon, mean) = line(variance) else { return None };
        let Kind::Mean(squares) = &mean.kind else { return None };
        let Kind::Product(a, b) = &squares.kind else { return None };
        let Kind::Sum(x, less) = &difference.kind else { return None };
        let (-1.0, mean) = less.scaled() else { return None };
        let Kind::Mean(of) = &mean.kind else { return None };
        let fits = a == difference && b == difference && of == x && epsilon > 0.0;
        fits.then(|| Kind::Normalized(epsilon as f32, Arc::clone(x)))
    }
}

/// `x * scale + offset` with one number for all channels: the numbers, and `x`.
fn line(term: &Arc<Term>) -> (f64, f64, &Arc<Term>) {
    match &term.kind {
        Kind::Affine { scale, offset, of, .. } if scale.len() == 1 && offset.len() == 1 => {
            (scale[0], offset[0], of)
        }
        _ => (1.0, 0.0, term),
    }
}

/// The activation that a term is, by Keras' name, and what it reads.
///
/// One with a number has it behind its name: `leaky_relu(0.1)`.
pub(super) fn activation(term: &Arc<Term>) -> Option<(String, &Arc<Term>)> {
    let (factor, of) = term.scaled();
    let (name, x) = match &of.kind {
        Kind::Function(name, x) if factor == 1.0 && !PARTS.contains(&name.as_str()) => (name.clone(), x),
        Kind::Clip(0.0, most, x) if factor == 1.0 && *most >= f64::from(f32::MAX) => ("relu".to_owned(), x),
        Kind::Clip(0.0, most, x) => match hard_sigmoid(of) {
            Some((own, slope, x)) if near(own * factor, 1.0) && near(slope, 1.0 / 6.0) => {
                ("hard_sigmoid".to_owned(), x)
            }
            Some((own, slope, x)) if near(own * factor, 1.0) => {
                (Activation::HardSigmoid(slope as f32).to_string(), x)
            }
            _ if factor == 1.0 => (Activation::BoundedRelu(*most as f32).to_string(), x),
            _ => return None,
        },
        Kind::Product(a, b) => {
            let (name, x) = product(factor, a, b).or_else(|| product(factor, b, a))?;
            (name.to_owned(), x)
        }
        _ => return None,
    };
    name.parse::<Activation>().is_ok().then_some((name, x))
}

/// The activation `factor * x * gate`.
fn product<'t>(factor: f64, x: &'t Arc<Term>, gate: &Arc<Term>) -> Option<(&'static str, &'t Arc<Term>)> {
    let reads = |of: &Arc<Term>| of == x;
    if let Some((own, slope, of)) = hard_sigmoid(gate) {
        let fits = reads(of) && near(own * factor, 1.0) && near(slope, 1.0 / 6.0);
        return fits.then_some(("hard_silu", x));
    }
    if factor == 1.0 {
        if function(gate, "sigmoid").is_some_and(reads) {
            return Some(("silu", x));
        }
        let soft = function(gate, "tanh").and_then(|of| function(of, "softplus"));
        if soft.is_some_and(reads) {
            return Some(("mish", x));
        }
    }
    match &gate.kind {
        // x * (1 + erf(x / sqrt(2))) / 2.
        Kind::Affine { .. } => match line(gate) {
            (scale, offset, erf) if near(scale * factor, 0.5) && near(offset * factor, 0.5) => {
                let (root, of) = function(erf, "erf")?.scaled();
                (near(root, core::f64::consts::FRAC_1_SQRT_2) && reads(of)).then_some(("gelu", x))
            }
            _ => None,
        },
        _ => None,
    }
}

/// What a function of this name reads.
fn function<'t>(term: &'t Term, name: &str) -> Option<&'t Arc<Term>> {
    match &term.kind {
        Kind::Function(own, of) if own == name => Some(of),
        _ => None,
    }
}

/// A part of a hard sigmoid, `slope * x + 1/2` between 0 and 1, in whatever scale: the factor that it needs to be one, the slope,
/// and `x`.
fn hard_sigmoid(term: &Arc<Term>) -> Option<(f64, f64, &Arc<Term>)> {
    let Kind::Clip(least, most, of) = &term.kind else { return None };
    let (scale, offset, x) = line(of);
    let fits = *least == 0.0 && *most > 0.0 && scale > 0.0 && near(offset / most, 0.5);
    fits.then_some((1.0 / most, scale / most, x))
}
