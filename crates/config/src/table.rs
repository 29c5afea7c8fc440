use crate::{placement, training};
use serde_json::{Map, Value};
use std::sync::LazyLock;
use towers_options::{Error, Kind, Opt, Table};

/// The options that decide nothing.
const OWN: &[Opt] = &[
    Opt::new("recipe", Kind::Text, "The name of the recipe, which names the run's folder"),
    Opt::new("changed", Kind::Any, "The keys that differ from the recipe"),
];

static ALL: LazyLock<Vec<Table>> = LazyLock::new(|| {
    let own = Table { key: "", options: OWN, begins: None };
    let parts = [training::TABLES.as_slice(), &placement::TABLES, &towers_callbacks::TABLES];
    [own].into_iter().chain(parts.into_iter().flatten().copied()).collect()
});

/// Options of earlier versions that no run needs any more. Configurations may still have them.
const RETIRED: [&str; 1] = ["devices.deterministic"];

/// The table of options: every key of a configuration, with its flag, kind and help. The command line,
/// recipes, `config.json`, the reference page and all errors use it.
pub fn tables() -> &'static [Table] {
    &ALL
}

/// Whether a key decides the bits of a run: a resume and all ranks must then have the same value.
pub(crate) fn is_training(key: &str) -> bool {
    key != "epochs" && towers_options::find(&training::TABLES, key).is_some()
}

/// The table of this key, if there is one below the top level.
pub fn table(key: &str) -> Option<&'static Table> {
    tables().iter().find(|table| table.key == key && !key.is_empty())
}

/// Refuses unknown keys.
pub(crate) fn check_keys(all: &Map<String, Value>) -> Result<(), Error> {
    let is_known = |key: &str| towers_options::find(tables(), key).is_some() || RETIRED.contains(&key);
    for (key, value) in all {
        match value {
            Value::Object(own) if table(key).is_some() => {
                let unknown = own.keys().map(|name| format!("{key}.{name}")).find(|key| !is_known(key));
                unknown.map_or(Ok(()), |key| Err(towers_options::unknown(tables(), &key)))?;
            }
            Value::Null if table(key).is_some() => {}
            _ if is_known(key) => {}
            _ => return Err(towers_options::unknown(tables(), key)),
        }
    }
    Ok(())
}

/// The keys of a list that are still options.
pub(crate) fn known(keys: &Value) -> Vec<String> {
    let keys = keys.as_array().into_iter().flatten().filter_map(Value::as_str);
    keys.filter(|key| towers_options::find(tables(), key).is_some()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use std::collections::BTreeSet;

    /// The keys of a JSON object, one level of tables deep.
    fn keys(all: &Value) -> BTreeSet<String> {
        let mut keys = BTreeSet::new();
        for (key, value) in all.as_object().unwrap() {
            match value.as_object().filter(|_| table(key).is_some()) {
                Some(table) => keys.extend(table.keys().map(|name| format!("{key}.{name}"))),
                None => {
                    keys.insert(key.clone());
                }
            }
        }
        keys
    }

    #[test]
    fn every_key_of_a_configuration_is_an_option_once() {
        let mut config = Config::default();
        let optional: Vec<&Table> = tables().iter().filter(|table| table.begins.is_some()).collect();
        let mut all = serde_json::to_value(&config).unwrap();
        for table in &optional {
            all[table.key] = table.begins.unwrap()();
        }
        config = serde_json::from_value(all.clone()).unwrap();
        assert!(config.outputs.early_stop.is_some() && config.outputs.tensorboard.is_some());
        let declared: Vec<String> = tables()
            .iter()
            .flat_map(|table| table.options.iter().map(|option| table.key_of(option)))
            .collect();
        let known: BTreeSet<String> = declared.iter().cloned().collect();
        assert_eq!(known.len(), declared.len(), "each once");
        let named = |table: &&Table| known.contains(table.key);
        let tables_that_are_options =
            optional.iter().filter(|table| named(table)).map(|table| table.key.to_owned());
        let found: BTreeSet<String> = keys(&all).into_iter().chain(tables_that_are_options).collect();
        assert_eq!(found, known);
    }

    #[test]
    fn configurations_of_earlier_versions_are_read() {
        let mut all = serde_json::to_value(Config::default()).unwrap();
        all["devices"]["deterministic"] = true.into();
        all["changed"] = serde_json::json!(["devices.deterministic"]);
        assert_eq!(serde_json::from_value::<Config>(all.clone()).unwrap(), Config::default());
        all["devices"]["determined"] = true.into();
        let error = serde_json::from_value::<Config>(all).unwrap_err().to_string();
        assert!(error.starts_with("there is no key `devices.determined`"), "{error}");
    }

    #[test]
    fn no_two_options_have_the_same_flag() {
        let flags: Vec<&str> =
            tables().iter().flat_map(|table| table.options).filter_map(|option| option.flag()).collect();
        assert_eq!(flags.iter().collect::<BTreeSet<_>>().len(), flags.len(), "{flags:?}");
        assert!(flags.len() > 60 && flags.iter().all(|flag| flag.starts_with("--")));
    }
}
