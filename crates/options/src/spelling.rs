//! Suggestions for misspelt names.

use strsim::osa_distance;

/// Names of other programs, and those of towers.
const SYNONYMS: [(&str, &str); 4] =
    [("gpu", "cuda"), ("edge", "nearest"), ("replicate", "nearest"), ("symmetric", "reflect")];

/// The known name that is closest to `name`, if one is close enough: a synonym, the shortest name with this prefix, or a
/// name with few different letters. Two swapped letters are one mistake; upper case is none.
///
/// ```
/// assert_eq!(towers_options::nearest("gpu", ["cpu", "cuda"]), Some("cuda"));
/// assert_eq!(towers_options::nearest("lr", ["l2", "lr-multiplier"]), Some("lr-multiplier"));
/// assert_eq!(towers_options::nearest("CIFAR10", ["auto", "cifar10"]), Some("cifar10"));
/// ```
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<&str> = known.into_iter().collect();
    let name = name.to_lowercase();
    let synonym = SYNONYMS.iter().find(|(other, own)| *other == name && known.contains(own));
    let longer = known.iter().filter(|known| !name.is_empty() && known.starts_with(&name));
    let begins = || longer.min_by_key(|known| known.len());
    // Very long names are similar to none, and slow to compare.
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
/// assert_eq!(towers_options::hint("nearst", ["constant", "nearest"]), "; did you mean `nearest`?");
/// assert_eq!(towers_options::hint("mirror", ["constant", "nearest"]), "");
/// ```
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map_or(String::new(), |near| format!("; did you mean `{near}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_names_are_meant() {
        let known = ["minigooglenet", "keras-cnn", "resnet18"];
        assert_eq!(hint("epoch", ["epoch_command", "epochs"]), "; did you mean `epochs`?");
        assert_eq!(hint("resnet", known), "; did you mean `resnet18`?");
        assert_eq!(hint("keras_cnn", known), "; did you mean `keras-cnn`?");
        for far in ["vgg", ""] {
            assert_eq!(hint(far, known), "");
        }
        assert_eq!(hint("x", []), "");
    }
}
