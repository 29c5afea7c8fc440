//! The flags of the table of options: one for each key, with its help, the same for every command that has
//! it.

use crate::error::usage;
use crate::spelling::flag_of;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use std::path::Path;
use towers_config::{Config, DeviceKind, tables};
use towers_options::{Kind, Opt, Refused, Table};

/// The groups of flags in the help, in their order.
const HEADINGS: [&str; 9] = [
    "",
    "Optimizer",
    "Fine-tuning",
    "Data",
    "Augmentation",
    "Several replicas",
    "Devices",
    "Output",
    "Callbacks",
];

/// The keys that a command has flags for.
pub trait Keys: Clone + std::fmt::Debug + Default + Send + Sync + 'static {
    /// Whether a key is one of them.
    fn has(key: &str) -> bool;
}

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident: [$($key:literal),+];)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default)]
        pub struct $name;

        impl Keys for $name {
            fn has(key: &str) -> bool {
                [$($key),+].contains(&key)
            }
        }
    )*};
}

keys! {
    /// Where the data are.
    Origin: ["data.dataset", "data.labels", "data.label_columns", "data.label_separator", "data.train_dir", "data.val_dir", "data.test_dir", "data.color_mode", "data.skip_unreadable", "data.data_dir", "data.data_url", "data.offline"];
    /// When pictures are decoded.
    Stream: ["data.stream"];
    /// The names of classes, and how pictures are resized.
    Names: ["data.class_names", "data.resize"];
    /// One device.
    Compute: ["devices.device", "devices.threads", "devices.precision", "devices.no_winograd", "devices.kernels"];
    /// The ways of a training step on a GPU.
    Ways: ["devices.no_graph", "devices.one_stream"];
    /// The number of test images.
    Limit: ["data.limit_test"];
    /// The number of devices.
    Count: ["devices.gpus", "devices.replicas"];
}

/// The keys of both.
impl<A: Keys, B: Keys> Keys for (A, B) {
    fn has(key: &str) -> bool {
        A::has(key) || B::has(key)
    }
}

/// The data.
pub type Source = (Origin, (Stream, Names));

/// The data to test on.
pub type TestData = (Source, Limit);

/// Several devices.
pub type Several = (Compute, (Count, Ways));

/// All options.
#[derive(Clone, Debug, Default)]
pub struct All;

impl Keys for All {
    fn has(_: &str) -> bool {
        true
    }
}

/// The options of `towers preview`.
#[derive(Clone, Debug, Default)]
pub struct Pictures;

impl Keys for Pictures {
    fn has(key: &str) -> bool {
        let of_data = Source::has(key) || matches!(key, "data.image_size" | "data.limit_train");
        of_data || (key.starts_with("augmentation.") && key != "augmentation.validation_split")
    }
}

/// The flags of a command for the options `K`, as they were given.
#[derive(Clone, Debug, Default)]
pub struct Flags<K> {
    /// Keys and texts, in the order of the table.
    given: Vec<(String, Vec<String>)>,
    keys: PhantomData<K>,
}

/// The options in `K` that have a flag.
fn options<K: Keys>() -> impl Iterator<Item = (&'static Table, &'static Opt, &'static str)> {
    let of = |table: &'static Table| table.options.iter().map(move |option| (table, option));
    let flagged =
        tables().iter().flat_map(of).filter_map(|(table, option)| Some((table, option, option.flag()?)));
    flagged.filter(|(table, option, _)| K::has(&table.key_of(option)))
}

/// The clap id of a flag.
fn id(flag: &'static str) -> &'static str {
    flag.trim_start_matches("--")
}

fn arg<K: Keys>(option: &'static Opt, flag: &'static str) -> Arg {
    let mut arg = Arg::new(id(flag)).long(id(flag)).help(option.help()).action(ArgAction::Append);
    if !option.heading.is_empty() {
        arg = arg.help_heading(option.heading);
    }
    arg = arg.value_name(option.value_name().unwrap_or("BOOL"));
    arg = match option.kind.bare() {
        Some(bare) => {
            // A switch in a sentence of flags: the next word is another flag.
            let joined = option.value_name().is_none();
            arg.num_args(0..=1).default_missing_value(bare).require_equals(joined)
        }
        None => arg.allow_hyphen_values(!matches!(option.kind, Kind::Text | Kind::OneOf(_))),
    };
    if let Some(letter) = option.short {
        arg = arg.short(letter);
    }
    if let Some(variable) = option.env {
        // An error of this parser names the variable.
        let kind = option.kind;
        let read = move |text: &str| match kind.parse(text) {
            Ok(_) => Ok(text.to_owned()),
            Err(Refused::MustBe(accepted)) => Err(format!("it must be {accepted}")),
            Err(Refused::Because(reason)) => Err(reason.to_string()),
        };
        arg = arg.env(variable).value_parser(read);
    }
    if let Some(alias) = option.alias {
        arg = arg.alias(alias);
    }
    let conflict =
        option.conflict.and_then(|key| options::<K>().find(|(table, other, _)| table.key_of(other) == key));
    if let Some((.., flag)) = conflict {
        arg = arg.conflicts_with(id(flag));
    }
    arg
}

/// Reads a choice by one of its names in files.
pub fn one_of<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| serde_json::from_value(name.into()))
}

impl<K: Keys> clap::Args for Flags<K> {
    fn augment_args(command: Command) -> Command {
        let mut all: Vec<_> = options::<K>().collect();
        all.sort_by_key(|(_, option, _)| HEADINGS.iter().position(|heading| *heading == option.heading));
        all.into_iter().fold(command, |command, (_, option, flag)| command.arg(arg::<K>(option, flag)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<K: Keys> clap::FromArgMatches for Flags<K> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = options::<K>().filter_map(|(table, option, flag)| {
            let texts: Vec<String> = matches.get_many::<String>(id(flag))?.cloned().collect();
            Some((table.key_of(option), texts))
        });
        Ok(Flags { given: given.collect(), keys: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<K: Keys> Flags<K> {
    /// The value of a key's flag, if it is given.
    pub fn get(&self, key: &str) -> Option<&str> {
        let (_, texts) = self.given.iter().find(|(given, _)| given == key)?;
        texts.last().map(String::as_str)
    }

    /// Whether the flag of a key is given.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// The key and the value of the flag that names the data.
    pub fn data(&self) -> Option<(&'static str, &str)> {
        ["data.labels", "data.train_dir", "data.dataset"]
            .into_iter()
            .find_map(|key| Some((key, self.get(key)?)))
    }

    /// Whether a flag names the data; it replaces all that named them before.
    pub fn names_data(&self) -> bool {
        self.data().is_some()
    }

    /// Whether the size of a batch is to be chosen once the data and the devices are known.
    pub fn has_auto_batch(&self) -> bool {
        self.get("batch_size") == Some("auto")
    }

    /// The same flags without the flag of a key.
    #[must_use]
    pub fn without(&self, key: &str) -> Self {
        let mut flags = self.clone();
        flags.given.retain(|(given, _)| given != key);
        flags
    }

    /// The configuration of a command that has no recipe.
    pub fn config(&self) -> anyhow::Result<Config> {
        let mut config = Config::default();
        self.apply(&mut config)?;
        Ok(config)
    }

    /// Overrides the options whose flags are given.
    pub fn apply(&self, config: &mut Config) -> anyhow::Result<()> {
        if self.names_data() {
            config.training.data.forget_source(self.has("data.labels"));
        }
        for (key, texts) in &self.given {
            if let Some(head) = absent_table(config, key) {
                let flag = flag_of(key);
                return Err(usage(format!("{flag} is given, but must be left out without {head}")));
            }
            if self.has_auto_batch() && key == "batch_size" {
                continue;
            }
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let least = towers_options::find(tables(), key).and_then(|(_, option)| option.least);
            let given = texts.last().and_then(|text| text.trim().parse::<u64>().ok());
            if let Some(least) = least.filter(|least| given.is_some_and(|given| given < *least)) {
                let (flag, given) = (flag_of(key), given.unwrap_or_default());
                return Err(usage(format!("{flag} is {given}, but must be at least {least}")));
            }
            config.set_text(key, &texts)?;
        }
        if self.has("batch_size") && !self.has_auto_batch() {
            config.training.global_batch_size = None;
        }
        if self.has("devices.gpus") {
            if self.get("devices.device") == Some("cpu") {
                return Err(usage(
                    "--gpus and --device cpu contradict each other; for replicas on the CPU use --replicas",
                ));
            }
            config.placement.devices.device = DeviceKind::Cuda;
        } else if self.get("devices.device") == Some("cpu") {
            // Those of a recipe, or of a resumed run.
            config.placement.devices.gpus = None;
        }
        self.find_data(config);
        Ok(())
    }

    /// Makes the paths of data, weights and names absolute: a run may be resumed or repeated from another folder.
    fn find_data(&self, config: &mut Config) {
        let data = &mut config.training.data;
        let path = Path::new(&data.dataset);
        if self.has("data.dataset")
            && (path.is_dir() || path.is_file() && !data.is_named())
            && let Ok(path) = std::path::absolute(path)
        {
            data.dataset = path.to_string_lossy().into_owned();
        }
        if K::has("data.data_dir") {
            let folder = config.placement.files.data_dir.get_or_insert_with(towers_config::default_data_dir);
            *folder = std::path::absolute(&*folder).unwrap_or_else(|_| folder.clone());
        }
        let training = &mut config.training;
        let mut class_names = training.data.class_names.take();
        let others = [("weights", &mut training.weights), ("data.class_names", &mut class_names)];
        for (key, file) in others.into_iter().chain(training.data.paths()) {
            if let Some(file) = file.as_mut().filter(|_| self.has(key)) {
                *file = std::path::absolute(&*file).unwrap_or_else(|_| file.clone());
            }
        }
        training.data.class_names = class_names;
    }
}

/// The flag (with its value) that starts the table of a key, if the configuration lacks that table and the
/// key does not start it: that of the table's name, or else of its first option.
fn absent_table(config: &Config, key: &str) -> Option<String> {
    let (name, option) = key.split_once('.')?;
    let table = towers_config::table(name).filter(|table| table.begins.is_some())?;
    let mut top = tables().iter().filter(|table| table.key.is_empty()).flat_map(|table| table.options);
    let head = top.find(|option| option.name == name).or(table.options.first())?;
    if !config.get(name).is_null() || option == head.name {
        return None;
    }
    Some(format!("{} {}", head.flag()?, head.value_name().unwrap_or_default()))
}
