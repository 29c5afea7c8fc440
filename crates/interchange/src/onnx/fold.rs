//! Computes nodes whose operands are all constants.

use super::arithmetic::{MOST_FOLDED, beside, joined, mapped, picked, places, spread, strides};
use super::constants::{Constant, Float, MOST_NUMBERS, Values};
use super::extent::{Extent, reshaped};
use super::external::Files;
use super::node::Node;
use super::proto::{EXTERNAL, FLOAT, INT64, TensorProto};
use crate::layout::channels_first;
use half::{bf16, f16};
use std::path::Path;

/// Whether these nodes change numbers, and not their places, shape or type alone.
pub(super) fn is_arithmetic(op: &str) -> bool {
    let moves = ["Identity", "Cast", "Shape", "Squeeze", "Unsqueeze", "Flatten", "Reshape", "Transpose"];
    let picks = ["Gather", "Slice", "Concat", "ConstantOfShape", "Expand", "Range"];
    !moves.contains(&op) && !picks.contains(&op)
}

/// The result of a node with these operands; `None` if nothing here computes it.
pub(super) fn folded(
    node: &Node<'_>,
    all: &[&Constant],
    left: &mut usize,
) -> Result<Option<Constant>, String> {
    let made = computed(node, all)?;
    let Some(made) = made else { return Ok(None) };
    // Reading a node of a known form reads all of its operands.
    (0..node.names().len()).for_each(|k| _ = node.operand(k));
    *left = left
        .checked_sub(made.floats_len())
        .ok_or_else(|| node.refuse("makes more numbers than a network has"))?;
    Ok(Some(Constant { name: node.output().to_owned(), ..made }))
}

fn computed(node: &Node<'_>, all: &[&Constant]) -> Result<Option<Constant>, String> {
    let axes = |since: i64| -> Result<Option<Vec<i64>>, String> {
        match (node.since(since), all.get(1)) {
            (false, _) => Ok(node.ints("axes")?.map(<[i64]>::to_vec)),
            (true, given) => Ok(given.and_then(|given| given.known_numbers())),
        }
    };
    Ok(match (node.op(), all) {
        ("Identity", [x]) => Some((*x).clone()),
        ("Cast", [x]) => {
            node.int("saturate", 1)?;
            converted(x, node.int("to", 0)?)
        }
        ("Shape", [x]) => {
            let own: Vec<Extent> = x.shape.iter().map(|&n| Extent::number(n as i64)).collect();
            Some(Constant::numbers(part(node, &own)?))
        }
        ("Squeeze", [x, ..]) => axes(13)?.map_or_else(|| squeezed(x, None), |axes| squeezed(x, Some(&axes))),
        ("Unsqueeze", [x, ..]) => axes(13)?.and_then(|axes| unsqueezed(x, &axes)),
        ("Flatten", [x]) => {
            let axis = place(node.int("axis", 1)?, x.shape.len() + 1);
            axis.map(|axis| {
                let len = |of: &[usize]| of.iter().product();
                let shape = vec![len(&x.shape[..axis]), len(&x.shape[axis..])];
                (*x).clone().shaped(shape)
            })
        }
        ("Reshape", [x, ..]) => {
            let zero_copies = !node.flag("allowzero", false)?;
            let target = match (node.since(5), all.get(1)) {
                (true, Some(to)) => to.as_numbers().map(<[Extent]>::to_vec),
                (true, None) => None,
                (false, _) => node.ints("shape")?.map(|to| to.iter().map(|&n| Extent::number(n)).collect()),
            };
            target.and_then(|to| shaped(x, &to, zero_copies))
        }
        ("Transpose", [x]) => transposed(x, node.ints("perm")?),
        ("Gather", [x, at]) => gathered(x, at, node.int("axis", 0)?),
        ("Slice", [x, ..]) => slice(node, x, all)?,
        ("Concat", parts) => {
            let axis = if node.since(4) { node.given("axis")? } else { Some(node.int("axis", 1)?) };
            axis.and_then(|axis| concat(parts, axis))
        }
        ("ConstantOfShape", [shape]) => {
            let value = match node.tensor("value")? {
                Some(own) => in_graph(node, own.clone())?,
                None => Constant::of(vec![1], [0.0]),
            };
            filled(&value, shape)
        }
        ("Expand", [x, shape]) => expanded(x, shape),
        ("Range", [from, to, step]) => range(from, to, step),
        ("Where", [condition, a, b]) => chosen(condition, a, b),
        ("Clip", [x, bounds @ ..]) if node.since(11) && bounds.len() <= 2 => {
            // A bound is one number.
            let bound = |x: Option<Constant>, (op, bound): (&str, &&Constant)| {
                joined(op, &x?, bound).filter(|_| bound.len() == 1)
            };
            let made = ["Max", "Min"].into_iter().zip(bounds).fold(Some((*x).clone()), bound);
            made.map(|made| made.shaped(x.shape.clone()))
        }
        ("BatchNormalization", [x, scale, shift, mean, variance]) if node.since(9) => {
            node.float("momentum", 0.9)?;
            let statistics = if node.flag("training_mode", false)? { None } else { Some([*mean, *variance]) };
            normalized(x, [*scale, *shift], statistics, node.float("epsilon", 1e-5)?)
        }
        ("ReduceMean" | "ReduceSum" | "ReduceProd", [x, ..]) => {
            let over = axes(if node.op() == "ReduceSum" { 13 } else { 18 })?;
            node.only("noop_with_empty_axes", 0)?;
            reduced(x, over, node.flag("keepdims", true)?, node.op())
        }
        (op, [x]) => mapped(op, x),
        (op, [a, b]) if node.since(7) => joined(op, a, b),
        _ => None,
    })
}

/// The value of a `Constant`.
pub(super) fn given(node: &Node<'_>) -> Result<Constant, String> {
    let tensor = |data_type, dims, float_data, int64_data| TensorProto {
        data_type,
        dims,
        float_data,
        int64_data,
        ..TensorProto::default()
    };
    let value = if let Some(own) = node.tensor("value")? {
        own.clone()
    } else if let Some(own) = node.given_float("value_float")? {
        tensor(FLOAT, vec![], vec![own], vec![])
    } else if let Some(own) = node.given("value_int")? {
        tensor(INT64, vec![], vec![], vec![own])
    } else if let Some(own) = node.ints("value_ints")? {
        tensor(INT64, vec![own.len() as i64], vec![], own.to_vec())
    } else if let Some(own) = node.floats("value_floats")? {
        tensor(FLOAT, vec![own.len() as i64], own.to_vec(), vec![])
    } else {
        return Err(node.form("without a value that is read"));
    };
    Ok(Constant { name: node.output().to_owned(), ..in_graph(node, value)? })
}

/// A value of an attribute, which must be in the graph itself.
fn in_graph(node: &Node<'_>, value: TensorProto) -> Result<Constant, String> {
    if value.data_location == EXTERNAL {
        return Err(node.form("of a value in another file"));
    }
    Constant::read(value, &mut Files::of(Path::new("")))
}

/// The part of a shape that a `Shape` gives.
pub(super) fn part(node: &Node<'_>, all: &[Extent]) -> Result<Vec<Extent>, String> {
    let place = |key: &str, default: usize| {
        let at = node.int(key, default as i64)?;
        let at = if at < 0 { at.saturating_add(all.len() as i64) } else { at };
        Ok::<_, String>(at.clamp(0, all.len() as i64) as usize)
    };
    let (start, end) = (place("start", 0)?, place("end", all.len())?);
    Ok(all.get(start..end).unwrap_or_default().to_vec())
}

/// An axis or another place, from behind if it is negative.
pub(super) fn place(at: i64, len: usize) -> Option<usize> {
    let at = if at < 0 { at.checked_add(len as i64)? } else { at };
    usize::try_from(at).ok().filter(|&at| at < len)
}

/// A constant in another type.
fn converted(x: &Constant, to: i64) -> Option<Constant> {
    let is_number = [2, 3, 6, 7].contains(&to);
    let values = match (&x.values, Float::of(to)) {
        (Values::Floats(_) | Values::Raw(..), Some(Float::Single | Float::Double)) => x.values.clone(),
        (Values::Floats(_) | Values::Raw(..), Some(float)) => {
            let short = |x: &f32| {
                if float == Float::Half { f16::from_f32(*x).to_f32() } else { bf16::from_f32(*x).to_f32() }
            };
            Values::Floats(x.as_floats()?.iter().map(short).collect())
        }
        (Values::Floats(_) | Values::Raw(..), None) if is_number && x.len() <= MOST_NUMBERS => {
            let floats = x.as_floats()?;
            let sound = floats.iter().all(|x| x.is_finite() && x.abs() < 1e15);
            let numbers = floats.iter().map(|&x| Extent::number(x.trunc() as i64)).collect();
            Values::Numbers(sound.then_some(numbers)?)
        }
        (Values::Numbers(_), Some(_)) => {
            Values::Floats(x.known_numbers()?.into_iter().map(|number| number as f32).collect())
        }
        (Values::Numbers(_), None) if to == 9 => {
            let truth = |x: i64| Extent::number(i64::from(x != 0));
            Values::Numbers(x.known_numbers()?.into_iter().map(truth).collect())
        }
        (Values::Numbers(_), None) if [6, 7].contains(&to) => x.values.clone(),
        _ => return None,
    };
    Some(Constant { values, ..x.clone() })
}

fn squeezed(x: &Constant, axes: Option<&[i64]>) -> Option<Constant> {
    let rank = x.shape.len();
    let axes: Option<Vec<usize>> = axes
        .map(|axes| axes.iter().map(|&axis| place(axis, rank)).collect())
        .unwrap_or_else(|| Some((0..rank).filter(|&k| x.shape[k] == 1).collect()));
    let axes = axes.filter(|axes| axes.iter().all(|&axis| x.shape[axis] == 1))?;
    let shape = (0..rank).filter(|k| !axes.contains(k)).map(|k| x.shape[k]).collect();
    Some(x.clone().shaped(shape))
}

fn unsqueezed(x: &Constant, axes: &[i64]) -> Option<Constant> {
    let rank = x.shape.len() + axes.len();
    let mut axes: Vec<usize> = axes.iter().map(|&axis| place(axis, rank)).collect::<Option<_>>()?;
    axes.sort_unstable();
    let mut shape = x.shape.clone();
    for pair in axes.windows(2) {
        if pair[0] == pair[1] {
            return None;
        }
    }
    axes.into_iter().for_each(|axis| shape.insert(axis, 1));
    (shape.len() < 64).then(|| x.clone().shaped(shape))
}

fn shaped(x: &Constant, to: &[Extent], zero_copies: bool) -> Option<Constant> {
    let own: Vec<Extent> = x.shape.iter().map(|&n| Extent::number(n as i64)).collect();
    Some(x.clone().shaped(sizes(&reshaped(to, &own, zero_copies)?)?))
}

/// A shape of known extents, of no more numbers than there may be.
fn sizes(shape: &[Extent]) -> Option<Vec<usize>> {
    let sizes: Vec<usize> = shape.iter().map(|n| usize::try_from(n.known()?).ok()).collect::<Option<_>>()?;
    let len = sizes.iter().try_fold(1_usize, |len, &n| len.checked_mul(n))?;
    (len <= MOST_FOLDED && sizes.len() < 64).then_some(sizes)
}

fn transposed(x: &Constant, perm: Option<&[i64]>) -> Option<Constant> {
    let rank = x.shape.len();
    let order: Vec<usize> = match perm {
        None => (0..rank).rev().collect(),
        Some(perm) => perm.iter().map(|&k| place(k, rank)).collect::<Option<_>>()?,
    };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..rank) {
        return None;
    }
    if let (&[rows, columns], [1, 0]) = (&x.shape[..], &order[..])
        && let Some(floats) = x.as_floats()
    {
        let values = Values::Floats(channels_first(&floats, rows, columns).into());
        return Some(Constant { shape: vec![columns, rows], values, ..x.clone() });
    }
    let own = strides(&x.shape);
    let (shape, strides): (Vec<usize>, Vec<usize>) = order.into_iter().map(|k| (x.shape[k], own[k])).unzip();
    picked(x, shape.clone(), places(&shape, &strides))
}

fn gathered(x: &Constant, at: &Constant, axis: i64) -> Option<Constant> {
    let axis = place(axis, x.shape.len())?;
    let at_places: Vec<usize> =
        at.known_numbers()?.into_iter().map(|at| place(at, x.shape[axis])).collect::<Option<_>>()?;
    let (before, behind): (usize, usize) =
        (x.shape[..axis].iter().product(), x.shape[axis + 1..].iter().product());
    let shape = [&x.shape[..axis], &at.shape, &x.shape[axis + 1..]].concat();
    let extent = x.shape[axis];
    let places = (0..before).flat_map(|row| at_places.iter().map(move |at| (row * extent + at) * behind));
    picked(x, shape, places.flat_map(|from| from..from + behind))
}

/// An axis, the first element and the one behind the last, and the step.
type AxisRange = (usize, i64, i64, i64);

/// The ranges of a `Slice`: an axis with its start, end and step.
pub(super) fn ranges(
    node: &Node<'_>,
    all: &[Option<Vec<i64>>; 4],
    rank: usize,
) -> Result<Option<Vec<AxisRange>>, String> {
    let [starts, ends, axes, steps] = match node.since(10) {
        true => all.clone(),
        false => {
            let given = |key| Ok::<_, String>(node.ints(key)?.map(<[i64]>::to_vec));
            [given("starts")?, given("ends")?, given("axes")?, None]
        }
    };
    let (Some(starts), Some(ends)) = (starts, ends) else { return Ok(None) };
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Ok(None);
    }
    let one = |k: usize| Some((place(axes[k], rank)?, starts[k], ends[k], steps[k]));
    Ok((0..starts.len()).map(one).collect())
}

/// The places of a range along an axis of this extent, with a step from 1 on.
pub(super) fn range_of(extent: i64, start: i64, end: i64) -> (i64, i64) {
    let within = |at: i64| if at < 0 { at.saturating_add(extent) } else { at }.clamp(0, extent);
    let (start, end) = (within(start), within(end));
    (start, end.max(start))
}

fn slice(node: &Node<'_>, x: &Constant, all: &[&Constant]) -> Result<Option<Constant>, String> {
    let given = |k: usize| all.get(k).and_then(|own| own.known_numbers());
    let ranges = ranges(node, &[given(1), given(2), given(3), given(4)], x.shape.len())?;
    let Some(ranges) = ranges else { return Ok(None) };
    let mut made = x.clone();
    for (axis, start, end, step) in ranges {
        let Some(size) = usize::try_from(step.unsigned_abs()).ok().filter(|&size| size > 0) else {
            return Ok(None);
        };
        let extent = made.shape[axis] as i64;
        let at: Vec<Extent> = if step > 0 {
            let (start, end) = range_of(extent, start, end);
            (start..end).step_by(size).map(Extent::number).collect()
        } else {
            // Downwards the place before the first one is an end.
            let within = |at: i64| if at < 0 { at.saturating_add(extent) } else { at }.clamp(-1, extent - 1);
            (within(end) + 1..within(start) + 1).rev().step_by(size).map(Extent::number).collect()
        };
        let Some(part) = gathered(&made, &Constant::numbers(at), axis as i64) else { return Ok(None) };
        made = part;
    }
    Ok(Some(made))
}

/// A batch normalization of weights, whose channels are the second axis: by these means and variances, or by its own.
fn normalized(
    x: &Constant,
    scales: [&Constant; 2],
    statistics: Option<[&Constant; 2]>,
    epsilon: f32,
) -> Option<Constant> {
    let [outer, channels, inner @ ..] = &x.shape[..] else { return None };
    let (outer, channels, inner) = (*outer, *channels, inner.iter().product::<usize>());
    let vectors = scales.into_iter().chain(statistics.into_iter().flatten());
    let vectors: Vec<_> =
        vectors.map(|of| of.as_floats().filter(|_| of.shape == [channels])).collect::<Option<_>>()?;
    let mut floats = x.as_floats()?.to_vec();
    for channel in 0..channels {
        let places =
            || (0..outer).flat_map(|row| (0..inner).map(move |k| (row * channels + channel) * inner + k));
        let value = |k: usize| vectors.get(k).map(|own| f64::from(own[channel]));
        let mean_of = |of: &dyn Fn(f64) -> f64| {
            places().map(|at| of(f64::from(floats[at]))).sum::<f64>() / (outer * inner) as f64
        };
        let mean = value(2).unwrap_or_else(|| mean_of(&|x| x));
        let variance = value(3).unwrap_or_else(|| mean_of(&|x| (x - mean).powi(2)));
        let [scale, shift] = [value(0)?, value(1)?];
        let factor = scale / (variance + f64::from(epsilon)).sqrt();
        for at in places() {
            floats[at] = ((f64::from(floats[at]) - mean) * factor + shift) as f32;
        }
    }
    Some(Constant { values: Values::Floats(floats.into()), ..x.clone() })
}

fn concat(parts: &[&Constant], axis: i64) -> Option<Constant> {
    let first = parts.first()?;
    let axis = place(axis, first.shape.len())?;
    let mut shape = first.shape.clone();
    shape[axis] = 0;
    for part in parts {
        let own = |k: usize| k == axis || part.shape[k] == shape[k];
        if part.shape.len() != shape.len() || !(0..shape.len()).all(own) {
            return None;
        }
        shape[axis] += part.shape[axis];
    }
    let rows: usize = shape[..axis].iter().product();
    let behind: usize = shape[axis + 1..].iter().product();
    let runs = || {
        (0..rows).flat_map(|row| {
            parts
                .iter()
                .enumerate()
                .map(move |(k, part)| (k, row * part.shape[axis] * behind, part.shape[axis] * behind))
        })
    };
    let values = match parts.iter().map(|part| part.as_numbers()).collect::<Option<Vec<_>>>() {
        Some(all) => {
            let numbers: Vec<Extent> =
                runs().flat_map(|(k, from, len)| all[k][from..from + len].to_vec()).collect();
            Values::Numbers(Some(numbers).filter(|all| all.len() <= MOST_NUMBERS)?)
        }
        None => {
            let all = parts.iter().map(|part| part.as_floats()).collect::<Option<Vec<_>>>()?;
            Values::Floats(runs().flat_map(|(k, from, len)| all[k][from..from + len].to_vec()).collect())
        }
    };
    Some(Constant { shape, values, ..(*first).clone() })
}

/// A shape that is full of a number.
fn filled(value: &Constant, shape: &Constant) -> Option<Constant> {
    let shape = sizes(shape.as_numbers()?)?;
    let len: usize = shape.iter().product();
    if value.len() != 1 || (!value.is_float() && len > MOST_NUMBERS) {
        return None;
    }
    picked(value, shape, std::iter::repeat_n(0, len))
}

fn expanded(x: &Constant, to: &Constant) -> Option<Constant> {
    let to = sizes(to.as_numbers()?)?;
    spread(x, &beside(&x.shape, &to)?)
}

fn range(from: &Constant, to: &Constant, step: &Constant) -> Option<Constant> {
    let one = |of: &Constant| of.known_numbers().filter(|all| all.len() == 1).map(|all| all[0]);
    let (from, to, step) = (one(from)?, one(to)?, one(step)?);
    let len = usize::try_from((to.checked_sub(from)?).div_euclid(step.max(1))).ok()?;
    (step > 0 && len <= MOST_NUMBERS)
        .then(|| Constant::numbers((from..to).step_by(step as usize).map(Extent::number).collect()))
}

fn chosen(condition: &Constant, a: &Constant, b: &Constant) -> Option<Constant> {
    let shape = beside(&condition.shape, &beside(&a.shape, &b.shape)?)?;
    let (condition, a, b) = (spread(condition, &shape)?, spread(a, &shape)?, spread(b, &shape)?);
    let first = condition.known_numbers()?;
    let values = match (a.as_numbers(), b.as_numbers()) {
        (Some(a), Some(b)) => Values::Numbers(
            (0..first.len()).map(|k| if first[k] != 0 { &a[k] } else { &b[k] }.clone()).collect(),
        ),
        (None, None) => {
            let (a, b) = (a.as_floats()?, b.as_floats()?);
            Values::Floats((0..first.len()).map(|k| if first[k] != 0 { a[k] } else { b[k] }).collect())
        }
        _ => return None,
    };
    Some(Constant { shape, values, ..a })
}

fn reduced(x: &Constant, axes: Option<Vec<i64>>, keeps: bool, op: &str) -> Option<Constant> {
    let rank = x.shape.len();
    let axes: Vec<usize> = match axes.filter(|axes| !axes.is_empty()) {
        None => (0..rank).collect(),
        Some(axes) => axes.into_iter().map(|axis| place(axis, rank)).collect::<Option<_>>()?,
    };
    let own = strides(&x.shape);
    let split = |over: bool| {
        let kept = (0..rank).filter(|k| axes.contains(k) == over);
        kept.map(|k| (x.shape[k], own[k])).unzip::<_, _, Vec<_>, Vec<_>>()
    };
    let ((kept, kept_strides), (gone, gone_strides)) = (split(false), split(true));
    let shape = match keeps {
        true => (0..rank).map(|k| if axes.contains(&k) { 1 } else { x.shape[k] }).collect(),
        false => kept.clone(),
    };
    let groups = places(&kept, &kept_strides);
    let values = match &x.values {
        Values::Numbers(_) => {
            let numbers = x.known_numbers()?;
            let group = |from: usize| {
                let mut all = places(&gone, &gone_strides).map(|at| numbers[from + at]);
                match op {
                    "ReduceSum" => all.try_fold(0_i64, i64::checked_add),
                    "ReduceProd" => all.try_fold(1_i64, i64::checked_mul),
                    _ => None,
                }
            };
            Values::Numbers(groups.map(|from| group(from).map(Extent::number)).collect::<Option<_>>()?)
        }
        _ => {
            let floats = x.as_floats()?;
            let count = gone.iter().product::<usize>() as f64;
            let group = |from: usize| {
                let all = places(&gone, &gone_strides).map(|at| f64::from(floats[from + at]));
                match op {
                    "ReduceSum" => all.sum(),
                    "ReduceProd" => all.product(),
                    _ => all.sum::<f64>() / count,
                }
            };
            Values::Floats(groups.map(|from| group(from) as f32).collect())
        }
    };
    Some(Constant { shape, values, ..x.clone() })
}
