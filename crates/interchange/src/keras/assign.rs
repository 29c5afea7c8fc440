//! Which layer of a file is which of a network.

use super::place::Place;
use super::unit::{Array, Kind, Unit, kind, told};
use checkpoint::Tensors;
use layers::{ParamSpec, Role, Step};
use std::collections::{HashMap, HashSet};

/// Layers that are matched as one: a convolution with its normalization, or a single one.
type Group = Vec<usize>;

/// The shapes of a layer's tensors.
type Shapes<'a> = Vec<&'a [usize]>;

/// Whether all layers with weights are among those of the configuration.
pub(super) fn has(places: &[Place], steps: &[Step]) -> bool {
    steps.iter().all(|step| is_given(step) || places.iter().any(|place| place.layer == step.name))
}

/// Whether a layer's options say all its numbers, as a scale's, so that no file has weights of it.
fn is_given(step: &Step) -> bool {
    step.params.iter().all(|spec| spec.role == Role::Frozen)
}

/// The tensors of a network that was built from the file's configuration, by the places of its layers.
pub(super) fn described(
    units: &[Unit],
    named: bool,
    places: &[Place],
    steps: &[Step],
) -> Result<Tensors, String> {
    let (mut tensors, mut taken) = (Tensors::new(), HashSet::new());
    for step in steps.iter().filter(|step| !step.params.is_empty()) {
        let place = places.iter().find(|place| place.layer == step.name);
        let unit = place.map(|place| place.find(units, named)).transpose()?;
        let mut arrays = unit.map(|k| units[k].arrays.iter()).unwrap_or_default();
        for spec in &step.params {
            let name = format!("{}/{}", step.name, spec.name);
            // What is not trained is not in the file: a gamma of `scale=False`, or a scale that was given.
            let data = match spec.role {
                Role::Frozen => spec.init.values(0, &name, &spec.shape),
                _ => match arrays.next() {
                    Some(array) if array.shape == spec.shape => array.read()?,
                    found => {
                        let found = found.map(|array| array.shape.as_slice());
                        let (is, needs) = (told(found.into_iter()), told(std::iter::once(&spec.shape[..])));
                        let is = if is.is_empty() { "nothing".to_owned() } else { is };
                        return Err(format!("its layer `{}` has {is} where {needs} belongs", step.name));
                    }
                },
            };
            tensors.insert(name, spec.shape.clone(), data).map_err(|error| error.to_string())?;
        }
        if let Some(more) = arrays.next() {
            return Err(format!(
                "its layer `{}` has `{}`, which its configuration has not",
                step.name, more.name
            ));
        }
        taken.extend(unit);
    }
    match (0..units.len()).find(|k| !taken.contains(k)) {
        Some(k) => Err(format!("it has weights of `{}`, which its configuration has not", units[k].name)),
        None => Ok(tensors),
    }
}

/// Whether the layers are those of the steps, by their kinds and shapes.
pub(super) fn fits(units: &[Unit], ordered: bool, steps: &[Step]) -> bool {
    let own: Vec<&Step> = steps.iter().filter(|step| !is_given(step)).collect();
    places(&own, units, ordered).is_ok()
}

/// The tensors of the steps by kinds, shapes and order, or the first thing that differs.
pub(super) fn by_shape(units: &[Unit], ordered: bool, steps: &[Step]) -> Result<Tensors, String> {
    let (given, own): (Vec<&Step>, _) = steps.iter().partition(|step| is_given(step));
    let taken = places(&own, units, ordered)?;
    let mut tensors = Tensors::new();
    let mut insert = |step: &Step, spec: &ParamSpec, values: Option<Vec<f32>>| {
        let name = format!("{}/{}", step.name, spec.name);
        let values = values.unwrap_or_else(|| spec.init.values(0, &name, &spec.shape));
        tensors.insert(name, spec.shape.clone(), values).map_err(|error| error.to_string())
    };
    for step in given {
        step.params.iter().try_for_each(|spec| insert(step, spec, None))?;
    }
    for (step, &unit) in own.iter().zip(&taken) {
        let mut arrays = units[unit].arrays.iter();
        for spec in &step.params {
            let array = if spec.role == Role::Frozen { None } else { arrays.next() };
            insert(step, spec, array.map(Array::read).transpose()?)?;
        }
    }
    Ok(tensors)
}

/// For each layer of the network, which one of the file it is.
fn places(own: &[&Step], units: &[Unit], ordered: bool) -> Result<Vec<usize>, String> {
    let wanted: Vec<Shapes> = own.iter().map(|step| shapes(step)).collect();
    let given: Vec<Shapes> = units.iter().map(|unit| unit.shapes().collect()).collect();
    if let Some(unit) = units.iter().find(|unit| unit.kind().is_none()) {
        let shapes = told(unit.shapes());
        return Err(format!(
            "its layer `{}` has weights of {shapes}, as no layer of these networks has",
            unit.name
        ));
    }
    if let Some(step) = own.iter().find(|step| kind(shapes(step).into_iter()).is_none()) {
        return Err(format!("the network's `{}` is nothing that Keras has weights for", step.name));
    }
    count(&wanted, &given)?;
    let paired = groups(&wanted).zip(groups(&given));
    let (wanted_groups, given_groups) = paired.unwrap_or_else(|| (singles(&wanted), singles(&given)));
    let signature = |all: &[Shapes], group: &Group| {
        group.iter().map(|&k| told(all[k].iter().copied())).collect::<Vec<_>>()
    };
    let mut there: HashMap<Vec<String>, Vec<&Group>> = HashMap::new();
    // From behind, so that the first is taken first.
    for group in given_groups.iter().rev() {
        there.entry(signature(&given, group)).or_default().push(group);
    }
    if let Some(alike) = there.values().find(|alike| !ordered && alike.len() > 1) {
        let [a, b] = [alike[1][0], alike[0][0]].map(|unit| &units[unit].name);
        return Err(format!(
            "its layers `{a}` and `{b}` have the same shapes, and nothing says which comes first; save the whole \
             model as .h5 (model.save), or give layers no names of your own"
        ));
    }
    let mut taken = vec![0; own.len()];
    for group in &wanted_groups {
        let shapes = signature(&wanted, group);
        let Some(found) = there.get_mut(&shapes).and_then(Vec::pop) else {
            let names: Vec<&str> = group.iter().map(|&k| own[k].name.as_str()).collect();
            return Err(format!(
                "no layer of it is left for the network's `{}` with weights of {}",
                names.join("` and `"),
                shapes.join(", ")
            ));
        };
        group.iter().zip(found).for_each(|(&k, &unit)| taken[k] = unit);
    }
    Ok(taken)
}

/// Of what files have: not of a gamma of `scale=False`.
fn shapes(step: &Step) -> Shapes<'_> {
    let stored = step.params.iter().filter(|spec| spec.role != Role::Frozen);
    stored.map(|spec| spec.shape.as_slice()).collect()
}

/// Refuses a file with more or fewer layers of a kind than the network.
fn count(wanted: &[Shapes], given: &[Shapes]) -> Result<(), String> {
    for each in [Kind::Convolution, Kind::BatchNormalization, Kind::GroupNormalization, Kind::Dense] {
        let [own, theirs] = [wanted, given].map(|all| of_kinds(all, &[each]).len());
        if own != theirs {
            let plural = |n: usize| if n == 1 { "" } else { "s" };
            return Err(format!("it has {theirs} {each}{}, but the network has {own}", plural(theirs)));
        }
    }
    Ok(())
}

fn of_kinds(all: &[Shapes], wanted: &[Kind]) -> Vec<usize> {
    let is_wanted = |k: &usize| kind(all[*k].iter().copied()).is_some_and(|kind| wanted.contains(&kind));
    (0..all.len()).filter(is_wanted).collect()
}

/// Every layer by itself.
fn singles(all: &[Shapes]) -> Vec<Group> {
    (0..all.len()).map(|k| vec![k]).collect()
}

/// Every convolution with its normalization, where each has one: the first with the first, and so on, since Keras numbers and
/// orders both alike. A normalization alone doesn't tell by its shape which of a block's it is.
fn groups(all: &[Shapes]) -> Option<Vec<Group>> {
    let convolutions = of_kinds(all, &[Kind::Convolution]);
    let norms = of_kinds(all, &[Kind::BatchNormalization, Kind::GroupNormalization]);
    let fits = |(conv, norm): (&usize, &usize)| all[*conv][0].last() == all[*norm][0].first();
    if convolutions.len() != norms.len() || !convolutions.iter().zip(&norms).all(fits) {
        return None;
    }
    let pairs = convolutions.into_iter().zip(norms).map(|(conv, norm)| vec![conv, norm]);
    Some(pairs.chain(of_kinds(all, &[Kind::Dense]).into_iter().map(|k| vec![k])).collect())
}
