//! Which layer of a file is which of a network.

use super::config;
use super::unit::{Kind, Unit, kind, told};
use checkpoint::Tensors;
use layers::Step;
use serde_json::Value;
use std::collections::HashMap;

/// Layers that are matched as one: a convolution with its normalization, or a single one.
type Group = Vec<usize>;

/// The shapes of a layer's tensors.
type Shapes<'a> = Vec<&'a [usize]>;

/// The tensors of the steps, or the first thing that differs.
pub(super) fn assign(
    units: &[Unit],
    ordered: bool,
    config: Option<&Value>,
    steps: &[Step],
) -> Result<Tensors, String> {
    let own: Vec<&Step> = steps.iter().filter(|step| !step.params.is_empty()).collect();
    let taken = places(&own, units, ordered)?;
    if let Some(config) = config {
        let is_convolution = |k: &usize| kind(shapes(own[*k]).into_iter()) == Some(Kind::Convolution);
        let mut convolutions: Vec<usize> = (0..own.len()).filter(is_convolution).collect();
        convolutions.sort_by_key(|&k| taken[k]);
        let convolutions: Vec<&Step> = convolutions.into_iter().map(|k| own[k]).collect();
        config::compare(config, steps, &convolutions)?;
    }
    let mut tensors = Tensors::new();
    for (step, &unit) in own.iter().zip(&taken) {
        for (spec, array) in step.params.iter().zip(&units[unit].arrays) {
            let name = format!("{}/{}", step.name, spec.name);
            let inserted = tensors.insert(name, spec.shape.clone(), array.read()?);
            inserted.map_err(|error| error.to_string())?;
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

fn shapes(step: &Step) -> Shapes<'_> {
    step.params.iter().map(|spec| spec.shape.as_slice()).collect()
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
