//! The keys of a configuration, for errors: which flag stands for which, and what a key takes.

use crate::recipe_file::{TABLES, begun, blank, options};
use crate::spelling::hint;
use serde_json::Value;

/// Flags whose names are not those of their keys.
const RENAMED: [(&str, &str); 12] = [
    ("--checkpoint-path", "model_checkpoint.path"),
    ("--csv-append", "csv_log.append"),
    ("--csv-log", "csv_log.path"),
    ("--csv-separator", "csv_log.separator"),
    ("--mode", "model_checkpoint.mode"),
    ("--monitor", "model_checkpoint.monitor"),
    ("--param-group", "param_groups"),
    ("--save-every", "checkpoints.every_epochs"),
    ("--tensorboard", "tensorboard.path"),
    ("--tensorboard-images", "tensorboard.images"),
    ("--warmup-epochs", "lr_scaling.warmup_epochs"),
    ("--momentum", "optimizer"),
];

/// What serde calls a type, and what people call it.
const TYPES: [(&str, &str); 14] = [
    ("f32", "a number"),
    ("f64", "a number"),
    ("a boolean", "true or false"),
    ("a string", "a text in quotes"),
    ("a character", "one character in quotes"),
    ("path string", "a path in quotes"),
    ("a map", "a table of options"),
    ("an array of length 2", "a list of 2 numbers"),
    ("a tuple of size 2", "a list of 2 numbers"),
    ("u8", WHOLE),
    ("u32", WHOLE),
    ("u64", WHOLE),
    ("usize", WHOLE),
    ("i64", WHOLE),
];

const WHOLE: &str = "a whole number";

/// The text with keys in the place of the flags that stand for them.
pub(crate) fn in_keys(text: &str) -> String {
    let mut parts = text.split("--");
    let mut told = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|ch: char| !ch.is_ascii_lowercase() && ch != '-').unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        let flag = format!("--{name}");
        told += &key(&flag).map_or(flag, |key| format!("`{key}`"));
        told += rest;
    }
    told
}

/// The key that a flag stands for.
fn key(flag: &str) -> Option<String> {
    if let Some((_, key)) = RENAMED.iter().find(|(renamed, _)| *renamed == flag) {
        return Some((*key).to_owned());
    }
    let name = flag.trim_start_matches("--").replace('-', "_");
    let all = options(&blank().ok()?);
    if all.contains_key(&name) {
        return Some(name);
    }
    let holds = |table: &&str| {
        let own = if all[*table].is_null() { &begun(table) } else { &all[*table] };
        own.get(&name).is_some()
    };
    TABLES.into_iter().find(holds).map(|table| format!("{table}.{name}"))
}

/// What would be accepted instead of `value`, as far as serde's error says so: a type, or names.
pub(crate) fn accepted(error: &str, value: &Value, refuses_zero: impl FnOnce() -> bool) -> Option<String> {
    // From the check of an option, which begins with its flag.
    if let Some((_, accepted)) = error.split_once(", but must be ").filter(|_| error.starts_with("--")) {
        return Some(in_keys(accepted));
    }
    let (_, expected) = error.rsplit_once(", expected ")?;
    if expected.contains('`') {
        // The names that there are.
        let near = hint(value.as_str().unwrap_or_default(), expected.split('`').skip(1).step_by(2));
        return Some(format!("{expected}{near}"));
    }
    if expected == "a sequence" {
        let one = if value.is_string() { format!("[{value}]") } else { "[0, 1]".to_owned() };
        return Some(format!("a list, as in {one}"));
    }
    if expected.starts_with("struct ") {
        return Some("a table of options".to_owned());
    }
    let (_, own) = TYPES.iter().find(|(name, _)| *name == expected)?;
    let least = match *own {
        WHOLE if value.is_number() || value.is_string() => {
            if refuses_zero() {
                ", 1 or more"
            } else {
                ", 0 or more"
            }
        }
        WHOLE => ", 0 or more",
        _ => "",
    };
    let list = if value.is_array() && *own != "a list of 2 numbers" { "a list, each value " } else { "" };
    Some(format!("{list}{own}{least}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_told_as_keys() {
        for (flags, keys) in [
            ("--batch-size is 0", "`batch_size` is 0"),
            ("left out with --precision fp16, --x", "left out with `devices.precision` fp16, --x"),
            ("--monitor, --save-freq", "`model_checkpoint.monitor`, `model_checkpoint.save_freq`"),
            ("a--b -- c --", "a--b -- c --"),
            ("é--lr", "é`lr`"),
        ] {
            assert_eq!(in_keys(flags), keys);
        }
        let all = options(&blank().unwrap());
        for (flag, key) in RENAMED {
            let (table, name) = key.split_once('.').unwrap_or((key, ""));
            let own = if all[table].is_null() { &begun(table) } else { &all[table] };
            assert!(!TABLES.contains(&table) || own.get(name).is_some(), "{flag}");
        }
    }
}
