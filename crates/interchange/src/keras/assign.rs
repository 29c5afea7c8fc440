//! Which layer of a file is which of a network.

use super::place::Place;
use super::root::around;
use super::unit::{Array, Kind, Unit, has_order, kind, number, told};
use crate::text::shortened;
use std::collections::{HashMap, HashSet};
use towers_checkpoint::Tensors;
use towers_layers::{ParamSpec, Role, Step};

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
    let (mut tensors, mut taken) = (Tensors::new(), HashMap::new());
    for step in steps {
        let place = places.iter().find(|place| place.layer == step.name);
        let Some(place) = place.filter(|_| !is_given(step)) else {
            insert(&mut tensors, step, None)?;
            continue;
        };
        let unit = place.find(units, named)?;
        insert(&mut tensors, step, Some((&units[unit], &place.own_name())))?;
        if let Some(other) = taken.insert(unit, place.own_name()) {
            let own = place.own_name();
            return Err(format!(
                "nothing tells which weights are of its layer `{other}`, and which of `{own}`"
            ));
        }
    }
    match (0..units.len()).find(|k| !taken.contains_key(k)) {
        Some(k) => Err(format!("it has weights of `{}`, which its configuration has not", units[k].told())),
        None => Ok(tensors),
    }
}

/// Adds the tensors of a layer: those of a layer in the file, with its name there. The file lacks a gamma of `scale=False`, and
/// the numbers of a `Rescaling`.
fn insert(tensors: &mut Tensors, step: &Step, own: Option<(&Unit, &str)>) -> Result<(), String> {
    let mut stored = 0;
    for spec in &step.params {
        let name = format!("{}/{}", step.name, spec.name);
        let data = match own.filter(|_| spec.role != Role::Frozen) {
            None => spec.init.values(0, &name, &spec.shape),
            Some((unit, layer)) => {
                stored += 1;
                let found = unit.array(spec.name, stored - 1);
                let fits = found.filter(|array| is_alike(&array.shape, &spec.shape));
                fits.ok_or_else(|| unlike(layer, spec, found))?.read()?
            }
        };
        tensors.insert(name, spec.shape.clone(), data).map_err(|error| error.to_string())?;
    }
    match own.filter(|(unit, _)| unit.arrays.len() > stored) {
        None => Ok(()),
        Some((unit, layer)) => {
            let is_own =
                |array: &&Array| step.params.iter().any(|spec| array.parameter.as_deref() == Some(spec.name));
            let more = unit.arrays.iter().rfind(|array| !is_own(array)).or(unit.arrays.last());
            let more = more.map_or("", |array| &array.name);
            Err(format!("its layer `{layer}` has `{}`, which its configuration has not", shortened(more)))
        }
    }
}

/// Whether a tensor of the file has the numbers of one of the network: a dense layer on an image is a convolution of single pixels
/// here, and a slope for each channel has axes of rows and columns there.
fn is_alike(theirs: &[usize], own: &[usize]) -> bool {
    let is_of_pixels = own.strip_prefix(&[1, 1]).is_some_and(|own| own.len() == 2 && own == theirs);
    theirs == own || is_of_pixels || theirs.strip_prefix(&[1, 1]) == Some(own)
}

fn unlike(layer: &str, spec: &ParamSpec, found: Option<&Array>) -> String {
    let needs = told(std::iter::once(&spec.shape[..]));
    let is = found.map_or_else(|| "nothing".to_owned(), |array| told(std::iter::once(&array.shape[..])));
    format!("its layer `{layer}` has {is} where the {} of {needs} belongs", spec.name)
}

/// Whether the layers are those of the steps, by their kinds and shapes.
pub(super) fn fits(units: &[Unit], steps: &[Step]) -> bool {
    let own: Vec<&Step> = steps.iter().filter(|step| !is_given(step)).collect();
    by_order(&own, units, None).is_ok()
}

/// The tensors of the steps by the names of layers, or else by kinds, shapes and order; or the first thing that differs.
pub(super) fn undescribed(units: &[Unit], named: bool, steps: &[Step]) -> Result<Tensors, String> {
    let own: Vec<&Step> = steps.iter().filter(|step| !is_given(step)).collect();
    let by_names = if named { by_names(&own, units) } else { None };
    let taken = match by_names {
        Some(taken) => taken,
        None => {
            let taken = by_order(&own, units, Some(named))?;
            contradicted(&own, units, &taken).map_or(Ok(taken), Err)?
        }
    };
    let mut tensors = Tensors::new();
    for step in steps {
        let place = own.iter().position(|own| own.name == step.name);
        let unit = place.map(|place| &units[taken[place]]);
        let layer = unit.map(Unit::told).unwrap_or_default();
        insert(&mut tensors, step, unit.map(|unit| (unit, layer.as_str())))?;
    }
    Ok(tensors)
}

/// For each layer of the network, which one of the file has its name, if all have the names and the shapes of one. A layer of an inner
/// model has the names of both here, and in the file at least its own.
fn by_names(own: &[&Step], units: &[Unit]) -> Option<Vec<usize>> {
    let joined = |name: &str| name.replace('/', "_");
    // The network may be the inner model of the file's.
    let is_inner = around(units, true).is_some();
    let mut members: HashMap<&str, usize> = HashMap::new();
    units.iter().for_each(|unit| *members.entry(&unit.group).or_default() += 1);
    let names: Vec<[String; 2]> =
        units.iter().map(|unit| [joined(&unit.group) + "_", joined(&unit.path)]).collect();
    // How much of the layer's name, `joined`, is that of a layer in the file.
    let likeness = |k: usize, step: &Step, own: &str| {
        if units[k].group == step.name && members[units[k].group.as_str()] == 1 {
            return Some(usize::MAX);
        }
        let [around, path] = &names[k];
        if is_inner && own == path {
            return Some(usize::MAX);
        }
        let between = own.strip_prefix(around)?.strip_suffix(path)?;
        (between.is_empty() || between.ends_with('_')).then_some(path.len())
    };
    let mut taken = HashSet::new();
    let of = |step: &&Step| {
        let name = joined(&step.name);
        let (_, unit) = (0..units.len()).filter_map(|k| Some((likeness(k, step, &name)?, k))).max()?;
        (shapes(step) == units[unit].shapes().collect::<Vec<_>>() && taken.insert(unit)).then_some(unit)
    };
    let found: Option<Vec<usize>> = own.iter().map(of).collect();
    found.filter(|found| found.len() == units.len())
}

/// A layer of the network that the file has under the same name, where the order gives it the weights of another one. Names that
/// Keras gives don't count, since they depend on the models that a session made before.
fn contradicted(own: &[&Step], units: &[Unit], taken: &[usize]) -> Option<String> {
    let is_own = |unit: &Unit| {
        kind(unit.shapes())
            .is_none_or(|kind| kind.keras_names().iter().all(|own| number(&unit.name).0 != *own))
    };
    own.iter().zip(taken).find_map(|(step, &unit)| {
        let same = units.iter().position(|unit| unit.group == step.name && is_own(unit))?;
        (same != unit).then(|| {
            format!(
                "the network's `{}` would get the weights of its `{}` by the order of layers, but it has an `{}` too",
                shortened(&step.name),
                units[unit].told(),
                units[same].told()
            )
        })
    })
}

/// For each layer of the network, which one of the file it is, by kinds, shapes and order. `named` tells whether the file has
/// names; `None` passes over an unknown order.
fn by_order(own: &[&Step], units: &[Unit], named: Option<bool>) -> Result<Vec<usize>, String> {
    let wanted: Vec<Shapes> = own.iter().map(|step| shapes(step)).collect();
    let given: Vec<Shapes> = units.iter().map(|unit| unit.shapes().collect()).collect();
    check_kinds(own, units)?;
    count(&wanted, &given)?;
    let is_ordered = |named| units.iter().all(|unit| has_order(unit, &units[0], named) && !unit.is_loose);
    let paired = groups(&wanted).zip(groups(&given)).filter(|_| named.is_none_or(is_ordered));
    let (wanted_groups, given_groups) = paired.unwrap_or_else(|| (singles(&wanted), singles(&given)));
    let signature = |all: &[Shapes], group: &Group| {
        group.iter().map(|&k| told(all[k].iter().copied())).collect::<Vec<_>>()
    };
    let mut there: HashMap<Vec<String>, Vec<&Group>> = HashMap::new();
    // From behind, so that the first is taken first.
    for group in given_groups.iter().rev() {
        there.entry(signature(&given, group)).or_default().push(group);
    }
    for alike in there.values().filter(|_| named.is_some()) {
        check_order(units, alike, named.unwrap_or_default())?;
    }
    let mut taken = vec![0; own.len()];
    for group in &wanted_groups {
        let shapes = signature(&wanted, group);
        let Some(found) = there.get_mut(&shapes).and_then(Vec::pop) else {
            let names: Vec<String> = group.iter().map(|&k| shortened(&own[k].name)).collect();
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

/// Refuses layers of the same shapes in an unknown order.
fn check_order(units: &[Unit], alike: &[&Group], named: bool) -> Result<(), String> {
    let firsts = || alike.iter().rev().map(|group| &units[group[0]]);
    let pairs = firsts().enumerate().flat_map(|(k, a)| firsts().skip(k + 1).map(move |b| (a, b)));
    match pairs.into_iter().find(|(a, b)| !has_order(a, b, named)) {
        None => Ok(()),
        Some((a, b)) => Err(format!(
            "its layers `{}` and `{}` have the same shapes, and nothing says which comes first; save the whole model by \
             model.save, or give its layers by model.to_json() as the model, with this file as its weights",
            a.told(),
            b.told()
        )),
    }
}

/// Refuses layers that Keras' files don't have, or the networks here.
fn check_kinds(own: &[&Step], units: &[Unit]) -> Result<(), String> {
    if let Some(unit) = units.iter().find(|unit| unit.kind().is_none()) {
        let (name, shapes) = (unit.told(), told(unit.shapes()));
        return Err(format!("its layer `{name}` has weights of {shapes}, as no layer of these networks has"));
    }
    match own.iter().find(|step| kind(shapes(step).into_iter()).is_none()) {
        Some(step) => {
            Err(format!("the network's `{}` is nothing that Keras has weights for", shortened(&step.name)))
        }
        None => Ok(()),
    }
}

/// Of what files have: not of a gamma of `scale=False`.
fn shapes(step: &Step) -> Shapes<'_> {
    let stored = step.params.iter().filter(|spec| spec.role != Role::Frozen);
    stored.map(|spec| spec.shape.as_slice()).collect()
}

/// Refuses a file with more or fewer layers of a kind than the network.
fn count(wanted: &[Shapes], given: &[Shapes]) -> Result<(), String> {
    for each in Kind::ALL {
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
    let convolutions = of_kinds(all, &[Kind::Convolution, Kind::SeparableConvolution]);
    let norms = of_kinds(all, &[Kind::BatchNormalization, Kind::GroupNormalization]);
    // Of a depthwise convolution the outputs are the last two numbers together.
    let fits = |(conv, norm): (&usize, &usize)| {
        let kernel = all[*conv].iter().rfind(|shape| shape.len() == 4);
        let sizes = kernel.and_then(|kernel| kernel.last_chunk());
        sizes.is_some_and(|&[c, k]| [k, c.saturating_mul(k)].contains(&all[*norm][0][0]))
    };
    if convolutions.len() != norms.len() || !convolutions.iter().zip(&norms).all(fits) {
        return None;
    }
    let pairs = convolutions.into_iter().zip(norms).map(|(conv, norm)| vec![conv, norm]);
    Some(pairs.chain(of_kinds(all, &[Kind::Dense]).into_iter().map(|k| vec![k])).collect())
}
