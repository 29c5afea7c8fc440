//! Which terms are one layer.
//!
//! A new activation of several nodes is a line in [`activation`].

use super::term::{Kind, Term};
use program::Activation;
use std::borrow::Cow;
use std::sync::Arc;

/// Functions that are only parts of others.
const PARTS: [&str; 3] = ["erf", "reciprocal", "sqrt"];

fn near(x: f64, to: f64) -> bool {
    (x - to).abs() <= 2e-6 * to.abs().max(1.0)
}

/// A factor of a term, and the term without it.
pub(super) fn scaled(term: &Arc<Term>) -> (f64, &Arc<Term>) {
    match line(term) {
        (scale, 0.0, of) => (scale, of),
        _ => (1.0, term),
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
pub(super) fn activation(term: &Arc<Term>) -> Option<(Cow<'static, str>, &Arc<Term>)> {
    let (factor, of) = scaled(term);
    match &of.kind {
        Kind::Function(name, x) if factor == 1.0 && !PARTS.contains(name) => Some(((*name).into(), x)),
        Kind::Clip(0.0, most, x) if factor == 1.0 && *most >= f64::from(f32::MAX) => Some(("relu".into(), x)),
        Kind::Clip(0.0, most, line_of) => match hard_sigmoid(of) {
            Some((own, x)) if near(own * factor, 1.0) => Some(("hard_sigmoid".into(), x)),
            _ => match line(line_of) {
                (slope, offset, x) if near(factor * most, 1.0) && near(offset / most, 0.5) && slope > 0.0 => {
                    Some((Activation::HardSigmoid((slope / most) as f32).to_string().into(), x))
                }
                _ if factor == 1.0 => {
                    Some((Activation::BoundedRelu(*most as f32).to_string().into(), line_of))
                }
                _ => None,
            },
        },
        Kind::Product(a, b) => {
            let found = product(factor, a, b).or_else(|| product(factor, b, a));
            found.map(|(name, x)| (name.into(), x))
        }
        _ => None,
    }
}

/// The activation `factor * x * gate`.
fn product<'t>(factor: f64, x: &'t Arc<Term>, gate: &Arc<Term>) -> Option<(&'static str, &'t Arc<Term>)> {
    let reads = |of: &Arc<Term>| of == x;
    if let Some((own, of)) = hard_sigmoid(gate) {
        return (reads(of) && near(own * factor, 1.0)).then_some(("hard_silu", x));
    }
    match &gate.kind {
        Kind::Function("sigmoid", of) if reads(of) && factor == 1.0 => Some(("silu", x)),
        Kind::Function("tanh", of) if factor == 1.0 => match &of.kind {
            Kind::Function("softplus", of) if reads(of) => Some(("mish", x)),
            _ => None,
        },
        // x * (1 + erf(x / sqrt(2))) / 2.
        Kind::Affine { .. } => match line(gate) {
            (scale, offset, erf) if near(scale * factor, 0.5) && near(offset * factor, 0.5) => {
                match &erf.kind {
                    Kind::Function("erf", of) => {
                        let (root, of) = scaled(of);
                        (near(root, core::f64::consts::FRAC_1_SQRT_2) && reads(of)).then_some(("gelu", x))
                    }
                    _ => None,
                }
            }
            _ => None,
        },
        _ => None,
    }
}

/// A part of a hard sigmoid, `(x + 3) / 6` between 0 and 1, in whatever scale: the factor that it needs to be one, and `x`.
fn hard_sigmoid(term: &Arc<Term>) -> Option<(f64, &Arc<Term>)> {
    let Kind::Clip(least, most, of) = &term.kind else { return None };
    let (scale, offset, x) = line(of);
    let fits = *least == 0.0 && *most > 0.0 && near(scale / most, 1.0 / 6.0) && near(offset / most, 0.5);
    fits.then_some((1.0 / most, x))
}

/// A layer normalization over the channels without its weights: the difference from the mean, divided by the root of the mean of its
/// squares and epsilon.
pub(super) fn normalized(term: &Term) -> Option<Kind> {
    let (difference, root) = match &term.kind {
        Kind::Quotient(a, b) => (a, b),
        Kind::Product(a, b) => match (&a.kind, &b.kind) {
            (_, Kind::Function("reciprocal", root)) => (a, root),
            (Kind::Function("reciprocal", root), _) => (b, root),
            _ => return None,
        },
        _ => return None,
    };
    let Kind::Function("sqrt", variance) = &root.kind else { return None };
    let (1.0, epsilon, mean) = line(variance) else { return None };
    let Kind::Mean(squares) = &mean.kind else { return None };
    let Kind::Product(a, b) = &squares.kind else { return None };
    let Kind::Sum(x, less) = &difference.kind else { return None };
    let (-1.0, mean) = scaled(less) else { return None };
    let Kind::Mean(of) = &mean.kind else { return None };
    let fits = a == difference && b == difference && of == x && epsilon > 0.0;
    fits.then(|| Kind::Normalized(epsilon as f32, Arc::clone(x)))
}
