//! The keys of a configuration, for errors: which flag stands for which, and what a key takes.

use crate::Config;
use crate::recipe_file::{TABLES, begun, blank, options, written};
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

/// The `option` that would change a configuration, and from what to what as far as that is known. It may name several flags, of which
/// the first counts, or none: then it is a flag of the augmentation, which is found.
pub fn describe_change(option: &str, from: &Config, to: &Config) -> (String, String) {
    let flag = option.split([' ', ',']).next().filter(|word| word.starts_with("--"));
    let key = flag.map_or_else(|| Some("augmentation".to_owned()), key).unwrap_or_default();
    let at = |config| {
        let all = Value::Object(written(config));
        key.split('.').fold(all, |all, key| all.get(key).cloned().unwrap_or_default())
    };
    let (mut option, mut values) = (option.to_owned(), [at(from), at(to)]);
    if let (None, [Value::Object(own), Value::Object(other)]) = (flag, &values)
        && let Some((name, value)) = own.iter().find(|(name, value)| other.get(*name) != Some(*value))
    {
        option = format!("--{}", name.replace('_', "-"));
        values = [value.clone(), other.get(name).cloned().unwrap_or_default()];
    }
    let [from, to] = values;
    if from == to {
        return (option, String::new());
    }
    let shown = |value: Value| match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text,
        other => other.to_string(),
    };
    (option, format!(", from {} to {}", shown(from), shown(to)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe;

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

    #[test]
    fn a_change_is_told_with_what_was_and_what_would_be() {
        let told = |option: &str, to: &Config| describe_change(option, &recipe("quick").unwrap(), to);
        let mut other = recipe("quick").unwrap();
        other.optimizer = "adam".parse().unwrap();
        other.augmentation.rotation_range = 15.0;
        let (option, change) = told("--optimizer or --momentum", &other);
        assert_eq!(option, "--optimizer or --momentum");
        assert_eq!(change, ", from sgd:momentum=0.9,nesterov=true to adam");
        let turned = ("--rotation-range".to_owned(), ", from 0.0 to 15.0".to_owned());
        assert_eq!(told("a flag of the augmentation", &other), turned);
        assert_eq!(told("--recipe", &other), ("--recipe".to_owned(), String::new()));
    }
}
