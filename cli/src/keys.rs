//! Option keys as the command line shows them: as flags.

use train::{options, tables};

/// The flag of a key.
pub fn flag_of(key: &str) -> Option<&'static str> {
    match key {
        "lr_scaling.warmup_epochs" => Some("--warmup-epochs"),
        "recipe" => Some("--recipe"),
        "plot" => Some("--output"),
        _ => options::find(tables(), key)?.1.flag(),
    }
}

/// What comes before a value or a name in backticks: names of layers are the user's own, and may be those of keys.
const BEFORE_VALUES: [&str; 6] = [" is ", "mean ", "there are ", "option ", "behind ", "layer "];

/// Replaces the keys in backticks by their flags: `checkpoints.save_best` by `--save-best`. Values in
/// backticks stay.
pub fn in_flags(text: &str) -> String {
    let mut out = String::new();
    for (k, part) in text.split('`').enumerate() {
        let is_value = BEFORE_VALUES.iter().any(|before| out.ends_with(before));
        out += &match flag_or_table(part).filter(|_| k % 2 == 1 && !is_value) {
            Some(flag) => flag,
            None if k % 2 == 1 => format!("`{part}`"),
            None => part.to_owned(),
        };
    }
    out
}

/// The flag of a key, or of its table.
pub fn flag_or_table(key: &str) -> Option<String> {
    let own = || flag_of(key).or_else(|| flag_of(&format!("augmentation.{key}")));
    let of_table = || {
        let (table, option) = key.split_once('.')?;
        Some(format!("{}: {option}", flag_of(table)?))
    };
    own().map(str::to_owned).or_else(of_table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_as_flags_and_values_are_not() {
        for (text, expected) in [
            ("`batch_size` is 0, but must be at least 1", "--batch-size is 0, but must be at least 1"),
            (
                "`checkpoints.save_best` is `lr`; did you mean `lr`?",
                "--save-best is `lr`; did you mean `lr`?",
            ),
            ("left out with `devices.precision` fp16", "left out with --precision fp16"),
            ("`early_stop.min_delta` is x", "--early-stop: min_delta is x"),
            ("`random_crop` is 4, `std` is 2", "--random-crop is 4, `std` is 2"),
            ("the network can't be cut behind `rescale`", "the network can't be cut behind `rescale`"),
            ("the layer `lr` can't be written for ONNX", "the layer `lr` can't be written for ONNX"),
            ("`lr_scaling.warmup_epochs` is 3", "--warmup-epochs is 3"),
        ] {
            assert_eq!(in_flags(text), expected);
        }
    }
}
