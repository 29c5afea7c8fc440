//! What a misspelt name was meant to be.

use crate::Error;
use strsim::osa_distance;

/// Other programs' words, and ours.
const SYNONYMS: [(&str, &str); 4] =
    [("gpu", "cuda"), ("edge", "nearest"), ("replicate", "nearest"), ("symmetric", "reflect")];

/// The known name that is closest to `name`, if one is close enough: another program's word for it, one that begins so, or one with few
/// other letters. Two letters in the wrong order are one mistake; capital letters are none.
///
/// ```
/// assert_eq!(train::nearest("gpu", ["cpu", "cuda"]), Some("cuda"));
/// assert_eq!(train::nearest("lr", ["l2", "lr-multiplier"]), Some("lr-multiplier"));
/// assert_eq!(train::nearest("CIFAR10", ["auto", "cifar10"]), Some("cifar10"));
/// ```
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<&str> = known.into_iter().collect();
    let name = name.to_lowercase();
    let synonym = SYNONYMS.iter().find(|(other, own)| *other == name && known.contains(own));
    let begins = || known.iter().find(|known| !name.is_empty() && known.starts_with(&name));
    // A name of a megabyte is far from all, and takes long to be compared.
    let length = name.chars().count();
    let distance = |known: &&str| match known.chars().count().abs_diff(length) {
        0..=4 => osa_distance(&name, known),
        far => far,
    };
    let close = || {
        let near = known.iter().copied().min_by_key(distance)?;
        (distance(&near) <= near.len().min(name.len()).div_ceil(2).min(4)).then_some(near)
    };
    synonym.map(|(_, own)| *own).or_else(|| begins().copied()).or_else(close)
}

/// `; did you mean ...?` for the [`nearest`] known name, if there is one.
///
/// ```
/// assert_eq!(train::did_you_mean("nearst", ["constant", "nearest"]), "; did you mean `nearest`?");
/// assert_eq!(train::did_you_mean("mirror", ["constant", "nearest"]), "");
/// ```
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map_or(String::new(), |near| format!("; did you mean `{near}`?"))
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
        optim::Error::UnknownOption { option, accepted, .. }
            if ["lr", "learning-rate", "learning_rate"].contains(&option.as_str())
                && !accepted.contains("lr-multiplier") =>
        {
            "; give the learning rate by --lr".to_owned()
        }
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
        for told in [optimizer("sgd:lr=0.1"), schedule("poly:learning-rate=0.1")] {
            assert!(told.ends_with("; give the learning rate by --lr"), "{told}");
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
