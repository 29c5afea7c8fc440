//! What a misspelt name was meant to be.

/// `; did you mean ...?` for the known name that is closest to `name`, if one is close enough.
pub(crate) fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let near = known.into_iter().min_by_key(|known| distance(name, known));
    let near = near.filter(|near| distance(name, near) <= near.len().min(name.len()).div_ceil(2).min(4));
    near.map_or(String::new(), |near| format!("; did you mean `{near}`?"))
}

/// How many letters have to be changed, added or left out to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ch) in a.chars().enumerate() {
        let mut diagonal = core::mem::replace(&mut row[0], i + 1);
        for j in 0..b.len() {
            let changed = diagonal + usize::from(b[j] != ch);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
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
