use crate::config::value_of;
use crate::table::is_training;
use crate::{Config, DATA_SOURCE, table, tables};
use serde_json::Value;

/// An option in which two configurations differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Its key, such as `devices.replicas`.
    pub key: String,
    /// Its value in the first configuration.
    pub old: Value,
    /// Its value in the second configuration.
    pub new: Value,
}

impl Difference {
    /// Whether it decides the bits of a run.
    pub fn is_training(&self) -> bool {
        is_training(&self.key)
    }

    /// Both values as text.
    pub fn texts(&self) -> [String; 2] {
        [&self.old, &self.new].map(|value| match value {
            Value::Null => "none".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string().replace('"', ""),
        })
    }
}

/// The options in which two configurations differ, in the order of the tables.
pub fn differences(old: &Config, new: &Config) -> Vec<Difference> {
    let [old, new] = [old, new].map(|config| {
        let mut config = config.clone();
        // The default depends on the number of stages.
        config.training.micro_batches = Some(config.batch_parts());
        serde_json::to_value(config).unwrap_or_default()
    });
    let mut found = Vec::new();
    for table in tables() {
        let of = |all: &Value| if table.key.is_empty() { all.clone() } else { all[table.key].clone() };
        let (old, new) = (of(&old), of(&new));
        // A table that only one of them has counts as one option.
        if old.is_null() || new.is_null() {
            continue;
        }
        for option in table.options {
            let (key, old, new) = (table.key_of(option), &old[option.name], &new[option.name]);
            let is_table = old.is_object() && new.is_object() && self::table(&key).is_some();
            if old != new && !is_table && key != "changed" {
                found.push(Difference { key, old: old.clone(), new: new.clone() });
            }
        }
    }
    found
}

impl Config {
    /// Adds the keys that differ from `before` to [`changed`](Config::changed). Each machine has its own folder for
    /// data, which is no change.
    ///
    /// ```
    /// let recipe = towers_config::recipe("quick")?;
    /// let mut config = recipe.with(|config| config.training.epochs = 9);
    /// config.note_changes(&recipe);
    /// assert_eq!(config.changed, ["epochs"]);
    /// # Ok::<(), towers_config::Error>(())
    /// ```
    pub fn note_changes(&mut self, before: &Config) {
        for Difference { key, .. } in differences(before, self) {
            if key != "data.data_dir" && !self.changed.contains(&key) {
                self.changed.push(key);
            }
        }
    }
}

/// Training options that may differ between ranks, beside those that name the data: paths, whose contents are compared by their
/// digests.
const COMPARED_BY_DIGEST: [&str; 2] = ["weights", "weights_sha256"];

/// The options that all ranks must agree on, with their values: all that decide bits, except for paths.
pub fn agreed(config: &Config) -> Vec<(String, Value)> {
    let all = tables().iter().flat_map(|table| table.options.iter().map(|option| table.key_of(option)));
    let by_digest = |key: &str| COMPARED_BY_DIGEST.contains(&key) || DATA_SOURCE.contains(&key);
    let agreed = all.filter(|key| is_training(key) && !by_digest(key));
    let also = ["epochs", "device_weights", "max_steps", "terminate_on_nan"].map(str::to_owned);
    let values = serde_json::to_value(config).unwrap_or_default();
    agreed.chain(also).map(|key| (key.clone(), value_of(&values, &key).clone())).collect()
}

/// The options that decide the numbers of a run, for tables that compare runs: all that have a value at the
/// top level, and those of tables that are not the default.
pub fn hyperparameters(config: &Config, replicas: usize, global_batch: usize) -> Vec<(String, Value)> {
    let plain = serde_json::to_value(Config::default()).unwrap_or_default();
    let is_told = |key: &str, value: &Value| match value {
        Value::Array(items) => !items.is_empty(),
        Value::Null | Value::Object(_) => false,
        value => !key.contains('.') || value_of(&plain, key) != value,
    };
    let mut all = agreed(config);
    let is_own = |key: &str| ["global_batch_size", "device_weights", "terminate_on_nan"].contains(&key);
    all.retain(|(key, value)| !is_own(key) && is_told(key, value));
    let (recipe, dataset) = (config.recipe.clone().into(), config.training.data.source().1.into());
    let own = [
        ("recipe", recipe),
        ("data.dataset", dataset),
        ("replicas", replicas.into()),
        ("global_batch_size", global_batch.into()),
    ];
    all.extend(own.map(|(key, value)| (key.to_owned(), value)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe;

    #[test]
    fn hyperparameters_are_those_that_are_set() {
        let mut config = recipe("keras-cnn").unwrap();
        config.set_text("augmentation.rotation_range", &["15"]).unwrap();
        let all: std::collections::BTreeMap<_, _> = hyperparameters(&config, 3, 96).into_iter().collect();
        for (key, value) in [
            ("model", Value::from("keras_cnn")),
            ("recipe", "keras-cnn".into()),
            ("global_batch_size", 96.into()),
            ("augmentation.rotation_range", 15.0.into()),
            ("data.dataset", "auto".into()),
        ] {
            assert_eq!(all.get(key), Some(&value), "{key}");
        }
        assert!(!all.contains_key("augmentation.vertical_flip") && !all.contains_key("ema"), "{all:?}");
    }

    #[test]
    fn options_that_differ_are_named_with_both_values() {
        let old = recipe("quick").unwrap();
        let mut new = old.clone();
        assert_eq!(differences(&old, &new), []);
        for (key, text) in [("epochs", "9"), ("devices.threads", "2"), ("early_stop", "loss"), ("seed", "4")]
        {
            new.set_text(key, &[text]).unwrap();
        }
        let found = differences(&old, &new);
        let keys: Vec<(&str, bool)> =
            found.iter().map(|found| (found.key.as_str(), found.is_training())).collect();
        let expected = [("epochs", false), ("seed", true), ("devices.threads", false), ("early_stop", false)];
        assert_eq!(keys, expected);
        assert_eq!(found[1].texts(), ["1", "4"]);
        assert!(found[3].texts()[1].contains("patience:5"), "{:?}", found[3].texts());
    }

    /// `PartialEq` and the differences of the table agree.
    #[test]
    fn every_change_of_training_is_a_difference() {
        let old = recipe("quick").unwrap();
        for (key, text) in [
            ("augmentation.cutout", "3"),
            ("augmentation.compose", "random-invert"),
            ("data.limit_train", "7"),
            ("devices.no_winograd", "true"),
            ("reduce_lr_on_plateau", "loss"),
            ("param_groups", "*/bias:epochs=3"),
        ] {
            let mut new = old.clone();
            new.set_text(key, &[text]).unwrap();
            assert_ne!(old.training, new.training);
            assert!(differences(&old, &new).iter().any(Difference::is_training), "{key}");
        }
    }
}
