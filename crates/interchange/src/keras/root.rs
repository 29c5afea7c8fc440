//! Where a whole model is in a file of weights.

use super::layer::Layer;
use super::unit::Unit;

/// Where the layers of a model are in a file of weights, which may be of that model or of one around it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Root {
    /// As in [`Place::names`](super::place::Place::names), without the layer's own.
    pub(super) names: Vec<String>,
    /// As in [`Place::numbered`](super::place::Place::numbered), with a slash at its end.
    pub(super) numbered: String,
}

impl Root {
    /// The place of the `layers` of a model, which is the layer `wrapper` of a model that `multi_gpu_model` made, or stands alone.
    /// `named` tells whether the file has the names of layers, or numbers.
    pub(super) fn of(units: &[Unit], named: bool, wrapper: Option<&Layer<'_>>, layers: &[Layer<'_>]) -> Root {
        let described = wrapper.map_or_else(Root::default, |wrapper| Root {
            names: vec![wrapper.name.to_owned()],
            numbered: format!("{}/", towers_layers::keras_name(wrapper.class)),
        });
        let around = around(units, named);
        let is_wrapper = |around: &str| match named {
            true => described.names.iter().any(|name| name == around),
            false => described.numbered.trim_end_matches('/') == around,
        };
        let is_inside = |around: &str| {
            layers.iter().any(|layer| match named {
                true => layer.name == around,
                false => towers_layers::keras_name(layer.class) == around,
            })
        };
        match around {
            // There are no weights at all.
            None if units.is_empty() => described,
            None => Root::default(),
            Some(around) if !is_wrapper(around) && is_inside(around) => Root::default(),
            Some(around) if named => Root { names: vec![around.to_owned()], ..Root::default() },
            Some(around) => Root { numbered: format!("{around}/"), ..described },
        }
    }
}

/// The model that has all layers of a file inside of it: its name where the file has names, or else its class.
pub(super) fn around(units: &[Unit], named: bool) -> Option<&str> {
    fn outer(unit: &Unit, named: bool) -> Option<&str> {
        let first = || unit.path.split_once('/').map(|(outer, _)| outer);
        if named { Some(&unit.group) } else { first() }
    }
    let first = outer(units.first()?, named)?;
    let is_inside =
        |unit: &Unit| !named || unit.path != first && !unit.path.starts_with(&format!("{first}/"));
    let is_around = units.iter().all(|unit| outer(unit, named) == Some(first)) && units.iter().any(is_inside);
    is_around.then_some(first)
}
