use crate::{Unit, named};
use std::borrow::Cow;

/// The description of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct About {
    /// Its title, such as `Top-5 accuracy`.
    pub title: String,
    /// The unit of its values.
    pub unit: Unit,
    /// Whether a higher value is better.
    pub higher_is_better: bool,
}

/// Describes a metric by its name, on training or validation data. A name that is not [known](crate::names) is its own title; as in Keras, more is
/// better if it has "acc" in it.
///
/// ```
/// use towers_metrics::{Unit, about};
///
/// let loss = about("val_loss");
/// assert_eq!((loss.title.as_str(), loss.unit, loss.higher_is_better), ("Loss", Unit::None, false));
/// assert_eq!(about("val_top5_acc").title, "Top-5 accuracy");
/// ```
pub fn about(name: &str) -> About {
    let name = canonical(name);
    let name = name.strip_prefix(VALIDATION).unwrap_or(&name);
    if let Some(metric) = named(name) {
        let (title, unit, higher_is_better) = (metric.title(), metric.unit(), metric.higher_is_better());
        return About { title, unit, higher_is_better };
    }
    let (title, unit) = match name {
        "loss" => ("Loss", Unit::None),
        "acc" => ("Accuracy", Unit::Share),
        other => (other, Unit::None),
    };
    About { title: title.to_owned(), unit, higher_is_better: name.contains("acc") }
}

/// A metric, and its names on training and on validation data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group<'a> {
    /// Its description.
    pub about: About,
    /// Its name on training data.
    pub training: Option<&'a str>,
    /// Its name on validation data.
    pub validation: Option<&'a str>,
}

/// Groups the names of metrics, so that a chart can show those of training and validation side by side. Groups have the
/// order of their first names.
///
/// ```
/// let groups = towers_metrics::grouped(["loss", "acc", "val_loss", "val_acc", "val_f1"]);
/// let loss = &groups[0];
/// assert_eq!((loss.training, loss.validation), (Some("loss"), Some("val_loss")));
/// assert_eq!((groups[2].about.title.as_str(), groups[2].training), ("Macro F1", None));
/// ```
pub fn grouped<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Group<'a>> {
    let mut groups: Vec<(&str, Group<'_>)> = Vec::new();
    for name in names {
        let (base, is_validation) = name.strip_prefix(VALIDATION).map_or((name, false), |base| (base, true));
        let place = groups.iter().position(|(known, _)| *known == base).unwrap_or_else(|| {
            groups.push((base, Group { about: about(base), training: None, validation: None }));
            groups.len() - 1
        });
        let group = &mut groups[place].1;
        *(if is_validation { &mut group.validation } else { &mut group.training }) = Some(name);
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The beginning of a metric's name if it is of the validation data.
const VALIDATION: &str = "val_";

/// The names that Keras' users write, and ours.
const KERAS: [(&str, &str); 2] = [("accuracy", "acc"), ("top_k_categorical_accuracy", "top5_acc")];

/// A metric's own name, where Keras has another one.
///
/// ```
/// assert_eq!(["val_accuracy", "val_acc", "f1"].map(|name| towers_metrics::canonical(name).into_owned()), ["val_acc", "val_acc", "f1"]);
/// ```
pub fn canonical(name: &str) -> Cow<'_, str> {
    renamed(name, |(keras, own)| (keras, own))
}

/// The name of a metric in Keras' files.
///
/// ```
/// assert_eq!(["loss", "val_acc"].map(|name| towers_metrics::keras_name(name).into_owned()), ["loss", "val_accuracy"]);
/// ```
pub fn keras_name(name: &str) -> Cow<'_, str> {
    renamed(name, |(keras, own)| (own, keras))
}

fn renamed(
    name: &str,
    pair: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) -> Cow<'_, str> {
    let (start, rest) = name.strip_prefix(VALIDATION).map_or(("", name), |rest| (VALIDATION, rest));
    let other = KERAS.map(pair).into_iter().find(|(from, _)| *from == rest);
    other.map_or(Cow::Borrowed(name), |(_, to)| Cow::Owned(format!("{start}{to}")))
}
