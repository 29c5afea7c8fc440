//! What a misspelt name was meant to be.

use strsim::levenshtein;

/// `; did you mean ...?` for the known name that is closest to `name`, if one is close enough.
pub(crate) fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let near = known.into_iter().min_by_key(|known| levenshtein(name, known));
    let near = near.filter(|near| levenshtein(name, near) <= near.len().min(name.len()).div_ceil(2).min(4));
    near.map_or(String::new(), |near| format!("; did you mean `{near}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
