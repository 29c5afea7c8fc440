//! What a misspelt name was meant to be.

use crate::Error;
use strsim::osa_distance;

/// `; did you mean ...?` for the known name that is closest to `name`, if one is close enough. Two letters in the wrong order are one
/// mistake.
///
/// ```
/// assert_eq!(train::did_you_mean("nearst", ["constant", "nearest"]), "; did you mean `nearest`?");
/// assert_eq!(train::did_you_mean("mirror", ["constant", "nearest"]), "");
/// ```
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    // A name of a megabyte is far from all, and takes long to be compared.
    let (length, most) = (name.chars().count(), 4);
    let known = known.into_iter().filter(|known| known.chars().count().abs_diff(length) <= most);
    let near = known.min_by_key(|known| osa_distance(name, known));
    let near =
        near.filter(|near| osa_distance(name, near) <= near.len().min(name.len()).div_ceil(2).min(most));
    near.map_or(String::new(), |near| format!("; did you mean `{near}`?"))
}

/// Refuses an `option` that names none of [`models::NAMES`].
pub(crate) fn unknown_network(option: &'static str, name: &str) -> Error {
    let accepted = format!("one of {}{}", models::NAMES.join(", "), hint(name, models::NAMES));
    Error::Option { option, value: format!("`{name}`"), accepted }
}

/// What an optimizer or a schedule refused, with the name that was probably meant.
///
/// ```
/// let error = "sdg:momentum=0.9".parse::<optim::Optimizer>().unwrap_err();
/// assert!(train::spelled(&error).ends_with("there are sgd, rmsprop, adam, adamw; did you mean `sgd`?"));
/// ```
pub fn spelled(error: &optim::Error) -> String {
    let meant = match error {
        optim::Error::UnknownName { name, accepted, .. } => hint(name, accepted.split(", ")),
        optim::Error::UnknownOption { option, accepted, .. } => hint(option, accepted.split(", ")),
        // Where words are accepted instead of numbers.
        optim::Error::Value { value, accepted, .. } if !accepted.contains("number") => {
            hint(value, accepted.split([',', ' ']).filter(|word| word.len() > 2))
        }
        _ => String::new(),
    };
    format!("{error}{meant}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optimizers_and_schedules_are_spelled() {
        let optimizer = |text: &str| spelled(&text.parse::<optim::Optimizer>().unwrap_err());
        let schedule = |text: &str| spelled(&text.parse::<optim::Schedule>().unwrap_err());
        for (told, meant) in [
            (optimizer("sdg"), "sgd"),
            (optimizer("rmsporp:rho=0.9"), "rmsprop"),
            (optimizer("sgd:momentun=0.9"), "momentum"),
            (optimizer("rmsprop:style=kears3"), "keras3"),
            (schedule("cosin"), "cosine"),
            (schedule("poly:powr=2"), "power"),
            (optimizer("nadam"), "adam"),
        ] {
            assert!(told.ends_with(&format!("; did you mean `{meant}`?")), "{told}");
        }
        for told in [optimizer("lion"), optimizer("sgd:momentum=much"), schedule("")] {
            assert!(!told.contains("did you mean"), "{told}");
        }
    }

    #[test]
    fn only_near_names_are_meant() {
        let known = ["minigooglenet", "keras-cnn", "resnet18"];
        assert_eq!(hint("resnet", known), "; did you mean `resnet18`?");
        assert_eq!(hint("keras_cnn", known), "; did you mean `keras-cnn`?");
        assert_eq!(
            (hint("vgg", known), hint("x", []), hint("", known)),
            (String::new(), String::new(), String::new())
        );
    }
}
