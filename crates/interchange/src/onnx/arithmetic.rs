//! Functions of constants, value by value.

use super::constants::{Constant, MOST_NUMBERS, Values};
use super::extent::Extent;

/// The most floats that all nodes of a graph may make of constants.
pub(super) const MOST_FOLDED: usize = 1 << 29;

/// Values at these places, in this shape.
pub(super) fn picked(
    x: &Constant,
    shape: Vec<usize>,
    places: impl Iterator<Item = usize>,
) -> Option<Constant> {
    let values = match &x.values {
        Values::Numbers(numbers) => {
            let picked: Vec<Extent> = places.take(MOST_NUMBERS + 1).map(|at| numbers[at].clone()).collect();
            Values::Numbers(Some(picked).filter(|all| all.len() <= MOST_NUMBERS)?)
        }
        Values::Floats(_) | Values::Raw(..) => {
            let floats = x.as_floats()?;
            Values::Floats(places.map(|at| floats[at]).collect())
        }
        Values::Other => return None,
    };
    Some(Constant { shape, values, ..x.clone() })
}

/// How far neighbors along each axis are apart.
pub(super) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for k in (1..shape.len()).rev() {
        strides[k - 1] = strides[k] * shape[k];
    }
    strides
}

/// The places of all values of a shape, with these distances along its axes.
pub(super) fn places<'s>(shape: &'s [usize], strides: &'s [usize]) -> impl Iterator<Item = usize> + 's {
    // Rows of the last axis, one after the other.
    let rest = shape.len().saturating_sub(1);
    let (len, step) = shape.get(rest).zip(strides.get(rest)).map_or((1, 0), |(&len, &step)| (len, step));
    let (mut index, mut next) = (vec![0; rest], 0);
    let rows = (0..shape[..rest].iter().product()).map(move |_| {
        let at = next;
        for (k, index) in index.iter_mut().enumerate().rev() {
            *index += 1;
            next += strides[k];
            if *index < shape[k] {
                break;
            }
            next -= *index * strides[k];
            *index = 0;
        }
        at
    });
    rows.flat_map(move |row| (0..len).map(move |k| row + k * step))
}

/// The shape of a sum of two tensors.
pub(super) fn beside(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let extent = |of: &[usize], k: usize| (k + of.len()).checked_sub(rank).map_or(1, |k| of[k]);
    let both = |k: usize| match (extent(a, k), extent(b, k)) {
        (a, b) if a == b || b == 1 => Some(a),
        (1, b) => Some(b),
        _ => None,
    };
    let shape: Vec<usize> = (0..rank).map(both).collect::<Option<_>>()?;
    let len = shape.iter().try_fold(1_usize, |len, &n| len.checked_mul(n))?;
    (len <= MOST_FOLDED).then_some(shape)
}

/// The values in a shape that they fit.
pub(super) fn spread(x: &Constant, shape: &[usize]) -> Option<Constant> {
    if x.shape == shape {
        return Some(x.clone());
    }
    let before = shape.len() - x.shape.len();
    let own = strides(&x.shape);
    let stride = |k: usize| match k.checked_sub(before) {
        Some(k) if x.shape[k] > 1 => own[k],
        _ => 0,
    };
    let strides: Vec<usize> = (0..shape.len()).map(stride).collect();
    picked(x, shape.to_vec(), places(shape, &strides))
}

/// A function of each value.
pub(super) fn mapped(op: &str, x: &Constant) -> Option<Constant> {
    let values = match &x.values {
        Values::Numbers(_) => {
            let of: fn(i64) -> Option<i64> = match op {
                "Neg" => i64::checked_neg,
                "Abs" => i64::checked_abs,
                "Not" => |x| Some(i64::from(x == 0)),
                _ => return None,
            };
            let numbers = x.known_numbers()?.into_iter().map(of);
            Values::Numbers(numbers.map(|x| x.map(Extent::number)).collect::<Option<_>>()?)
        }
        _ => {
            let of: fn(f32) -> f32 = match op {
                "Neg" => |x| -x,
                "Abs" => f32::abs,
                "Sqrt" => f32::sqrt,
                "Reciprocal" => |x| 1.0 / x,
                "Exp" => f32::exp,
                "Log" => f32::ln,
                "Floor" => f32::floor,
                "Ceil" => f32::ceil,
                "Relu" => |x| x.max(0.0),
                "Tanh" => f32::tanh,
                "Sigmoid" => |x| 1.0 / (1.0 + (-x).exp()),
                _ => return None,
            };
            Values::Floats(x.as_floats()?.iter().map(|&x| of(x)).collect())
        }
    };
    Some(Constant { values, ..x.clone() })
}

/// A function of two values each.
pub(super) fn joined(op: &str, a: &Constant, b: &Constant) -> Option<Constant> {
    let shape = beside(&a.shape, &b.shape)?;
    let (a, b) = (spread(a, &shape)?, spread(b, &shape)?);
    let values = match (a.as_numbers(), b.as_numbers()) {
        (Some(x), Some(y)) => {
            Values::Numbers(x.iter().zip(y).map(|(x, y)| number(op, x, y)).collect::<Option<_>>()?)
        }
        (None, None) => {
            let of: fn(f32, f32) -> f32 = match op {
                "Add" => |x, y| x + y,
                "Sub" => |x, y| x - y,
                "Mul" => |x, y| x * y,
                "Div" => |x, y| x / y,
                "Max" => f32::max,
                "Min" => f32::min,
                "Pow" => f32::powf,
                _ => return None,
            };
            let (x, y) = (a.as_floats()?, b.as_floats()?);
            Values::Floats(x.iter().zip(&y[..]).map(|(&x, &y)| of(x, y)).collect())
        }
        _ => return None,
    };
    Some(Constant { shape, values, ..a })
}

fn number(op: &str, x: &Extent, y: &Extent) -> Option<Extent> {
    let of: fn(i64, i64) -> Option<i64> = match op {
        "Add" => i64::checked_add,
        "Sub" => i64::checked_sub,
        "Mul" if [x, y].iter().all(|x| x.known().is_none_or(|x| x > 0)) => return x.times(y),
        "Mul" => i64::checked_mul,
        "Div" if y.known().is_none() || x.known().is_none() => return x.over(y),
        // Towards zero, as in C.
        "Div" => i64::checked_div,
        "Mod" => |x, y| x.checked_rem_euclid(y).filter(|_| y > 0),
        "Max" => |x, y| Some(x.max(y)),
        "Min" => |x, y| Some(x.min(y)),
        "Equal" => |x, y| Some(i64::from(x == y)),
        "Greater" => |x, y| Some(i64::from(x > y)),
        "Less" => |x, y| Some(i64::from(x < y)),
        "And" => |x, y| Some(i64::from(x != 0 && y != 0)),
        "Or" => |x, y| Some(i64::from(x != 0 || y != 0)),
        _ => return None,
    };
    of(x.known()?, y.known()?).map(Extent::number)
}
