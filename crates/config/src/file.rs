//! Recipes as TOML, for `towers recipes NAME` and `--recipe FILE.toml`; and runs as recipes.
//!
//! A file has the keys of the table of options. It is read key by key, so that an error names the line, the
//! key and the accepted values.

use crate::recipe::{RECIPES, built_in, names};
use crate::{Config, Placement, table, tables};
use crate::{Devices, Error, Result};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};
use towers_options::{Table, hint};

/// The keys of a recipe that is not `like` another one. They are always written, and first.
const NEEDED: [&str; 8] =
    ["model", "epochs", "batch_size", "lr", "schedule", "optimizer", "preprocessing", "drop_last"];

/// The built-in recipes, each with a sentence about it.
pub fn recipes() -> Vec<(&'static str, String)> {
    RECIPES.into_iter().map(|(name, text)| (name, about(text).unwrap_or_default())).collect()
}

/// The built-in recipe called `name`.
///
/// # Errors
/// [`Error::Option`] for a name that is not among [`RECIPES`].
pub fn recipe(name: &str) -> Result<Config> {
    let unknown = || {
        let (names, hint) = (names().join(", "), hint(name, names()));
        let accepted = format!("one of {names}, a file FILE.toml, or the folder of a run{hint}");
        Error::option("recipe", format!("`{name}`"), accepted)
    };
    let (name, text) = built_in(name).ok_or_else(unknown)?;
    read(text, name)
}

/// The recipe with this name; of a file, if the name ends with `.toml`; or of a run, if it is a run's folder
/// or `config.json`.
///
/// A relative `dataset` or `weights` of a file is next to the file or, if there is none, in the current folder.
/// The outputs of a file (`csv_log`, `tensorboard`, `mlflow`, `plot`) are relative to the current folder, as on the
/// command line.
///
/// The recipe of a run has its options, replicas and data, so that it trains the same network again. The
/// devices are not taken over, and neither are outputs outside of the run's folder, nor a command after every epoch.
///
/// # Errors
/// [`Error::Option`] for a name that is not among [`RECIPES`], [`Error::Recipe`] for an invalid file;
/// [`Error::File`] if the file can't be read.
pub fn find_recipe(name: &str) -> Result<Config> {
    let path = Path::new(name);
    let ends_with = |ending: &str| path.extension().is_some_and(|own| own == ending);
    if path.is_dir() && path.join("config.json").is_file() {
        return of_run(&path.join("config.json"));
    }
    if ends_with("json") {
        return of_run(path);
    }
    if !ends_with("toml") {
        return recipe(name);
    }
    let text = towers_files::read_text(path)?;
    let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let read = || {
        let refuse = |reason| Error::Recipe { name: stem.clone(), reason };
        let mut config = read(&text, &stem)?;
        beside(path, &text, &mut config).map_err(refuse)?;
        check(&config).map_err(refuse)?;
        Ok(config)
    };
    read().map_err(|error| match error {
        Error::Recipe { reason, .. } => Error::Recipe { name: name.to_owned(), reason },
        other => other,
    })
}

/// The recipe of a run from its `config.json`.
fn of_run(path: &Path) -> Result<Config> {
    let refuse = |reason: String| Error::Recipe { name: path.display().to_string(), reason };
    let text = towers_files::read_text(path)?;
    let mut config: Config = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
    let run = config.clone();
    let Devices { replicas, pipeline_stages, split_at, .. } = config.placement.devices;
    let devices = Devices { replicas, pipeline_stages, split_at, ..Devices::default() };
    config.placement = Placement { devices, ..config.placement };
    config.outputs.forget_outside();
    config.outputs.take_command();
    // It still differs so from the recipe that the run is based on.
    let kept = |key: &String| config.get(key) == run.get(key);
    config.changed = run.changed.iter().filter(|key| kept(key)).cloned().collect();
    check(&config).map_err(refuse)?;
    Ok(config)
}

/// Resolves a folder of pictures, and files of layers and of weights, relative to the recipe's file with this
/// text, if they exist there. A preprocessing in the text holds, whatever the network seems to expect.
fn beside(recipe: &Path, text: &str, config: &mut Config) -> Result<(), String> {
    let folder = recipe.parent().unwrap_or(Path::new(""));
    if folder.join(&config.training.model).is_file() {
        let named = config.training.preprocessing;
        config.read_layers(folder, true).map_err(|error| error.to_string())?;
        if parse(text)?.contains_key("preprocessing") {
            config.training.preprocessing = named;
        }
    }
    if let Some(weights) = &mut config.training.weights
        && let Some(beside) = recipe.parent().map(|folder| folder.join(&*weights))
    {
        let found = if beside.exists() { &beside } else { &*weights };
        *weights = std::path::absolute(found).unwrap_or_else(|_| found.clone());
    }
    let data = &mut config.training.data;
    let beside = recipe.parent().map(|folder| folder.join(&data.dataset)).filter(|path| path.exists());
    if let Some(path) = beside.filter(|_| !data.is_named())
        && let Ok(absolute) = std::path::absolute(path)
    {
        data.dataset = text_of(absolute)?;
    }
    for (_, path) in data.paths() {
        if let Some(path) = path
            && let Some(beside) =
                recipe.parent().map(|folder| folder.join(&*path)).filter(|path| path.exists())
        {
            *path = std::path::absolute(&beside).unwrap_or(beside);
        }
    }
    Ok(())
}

/// A path as a string of a configuration.
fn text_of(path: PathBuf) -> Result<String, String> {
    path.into_os_string().into_string().map_err(|path| {
        format!("its pictures are in {}, a path that is not UTF-8; rename it", path.display())
    })
}

/// Reads a recipe in TOML. Its name is `name` if the text has none. Missing keys are those of the recipe that
/// it is `like`.
///
/// ```
/// let config = towers_config::read_recipe("like = 'resnet18'\nepochs = 15\n[augmentation]\nvertical_flip = true", "short")?;
/// assert_eq!((config.recipe.as_str(), config.training.model.as_str(), config.training.epochs), ("short", "resnet18", 15));
/// let error = towers_config::read_recipe("like = 'resnet18'\nepoch = 15", "short").unwrap_err().to_string();
/// assert!(error.contains("line 2: there is no key `epoch`") && error.ends_with("did you mean `epochs`?"), "{error}");
/// # Ok::<(), towers_config::Error>(())
/// ```
///
/// # Errors
/// [`Error::Recipe`] with the line, the key, its value and the reason.
pub fn read_recipe(text: &str, name: &str) -> Result<Config> {
    let config = read(text, name)?;
    check(&config).map_err(|reason| Error::Recipe { name: name.to_owned(), reason })?;
    Ok(config)
}

/// As [`read_recipe`], without checks of options against each other.
fn read(text: &str, name: &str) -> Result<Config> {
    let refuse = |reason: String| Error::Recipe { name: name.to_owned(), reason };
    let mut file = parse(text).map_err(refuse)?;
    file.remove("about");
    let mut config = match file.remove("like") {
        Some(like) => {
            like.as_str().and_then(built_in).map(|(known, text)| read(text, known)).unwrap_or_else(|| {
                let near = hint(like.as_str().unwrap_or_default(), names());
                let names = names().join(", ");
                Err(refuse(format!(
                    "{}`like` is {like}, but must be one of {names}{near}",
                    line(text, &["like"])
                )))
            })?
        }
        None => {
            let own = |key: &str| key == "model" && file.contains_key("layer");
            if let Some(missing) = NEEDED.into_iter().find(|key| !file.contains_key(*key) && !own(key)) {
                return Err(refuse(format!(
                    "`{missing}` is missing; give it, or the recipe that this one is `like`"
                )));
            }
            Config::default()
        }
    };
    config.recipe = name.to_owned();
    if file.contains_key("layer") {
        config.training.model = name.to_owned();
    }
    for (key, value) in file {
        let set = |config: &mut Config, path: &[&str], value: &Value| {
            let with_line = |error: Error| refuse(format!("{}{error}", line(text, path)));
            config.set(&path.join("."), value).map_err(with_line)
        };
        match table(&key).zip(value.as_object()) {
            Some((table, own)) => {
                begin(&mut config, table);
                own.iter().try_for_each(|(option, value)| set(&mut config, &[&key, option], value))?;
            }
            None if table(&key).is_some() && !is_option(&key) => {
                let message =
                    format!("{}`{key}` is {value}, but must be a table of options", line(text, &[&key]));
                return Err(refuse(message));
            }
            None => set(&mut config, &[&key], &value)?,
        }
    }
    match config.outputs.take_command() {
        None => Ok(config),
        Some(_) => Err(refuse(format!(
            "{}`epoch_command` is for the command line and for Rust alone: a file must not choose a program to run",
            line(text, &["epoch_command"])
        ))),
    }
}

/// The recipe's description of itself.
fn about(text: &str) -> Option<String> {
    parse(text).ok()?.get("about")?.as_str().map(str::to_owned)
}

fn parse(text: &str) -> Result<Map<String, Value>, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start);
        format!("line {}: {}", line_of(text, at), error.message().replace('\n', ", "))
    })?;
    match serde_json::to_value(table) {
        Ok(Value::Object(file)) => Ok(file),
        _ => Err("it is not a table of keys and values".to_owned()),
    }
}

/// The line number of a position in a text, from 1.
fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

/// `line N: ` for the line of a key.
fn line(text: &str, path: &[&str]) -> String {
    let of = |table: &DeTable<'_>| {
        let (last, tables) = path.split_last()?;
        let mut table = table;
        for key in tables {
            let DeValue::Table(below) = table.get(*key)?.get_ref() else { return None };
            table = below;
        }
        let (key, _) = table.iter().find(|(key, _)| key.get_ref() == last)?;
        Some(format!("line {}: ", line_of(text, key.span().start)))
    };
    DeTable::parse(text).ok().and_then(|table| of(table.get_ref())).unwrap_or_default()
}

/// Whether an option at the top level has this key, such as the compact form of a table.
fn is_option(key: &str) -> bool {
    let top = tables().iter().filter(|table| table.key.is_empty());
    top.flat_map(|table| table.options).any(|option| option.name == key)
}

/// Adds the table of a callback, if it is absent.
fn begin(config: &mut Config, table: &Table) {
    if let Some(begins) = table.begins.filter(|_| config.get(table.key).is_null()) {
        let mut all = Map::from(config.clone());
        all.insert(table.key.to_owned(), begins());
        if let Ok(with_table) = Config::try_from(all) {
            *config = with_table;
        }
    }
}

/// Checks options against each other.
fn check(config: &Config) -> Result<(), String> {
    if config.training.data.dataset.is_empty() {
        return Err(
            "`data.dataset` is empty; name a data set or a folder of pictures, or leave it out".to_owned()
        );
    }
    // The name becomes a part of a path.
    let plain = |ch: char| ch.is_ascii_alphanumeric() || "-_.".contains(ch);
    if config.recipe.is_empty() || config.recipe.starts_with('.') || !config.recipe.chars().all(plain) {
        return Err(
            "its name must be of letters, digits, `-`, `_` and dots inside, since it names the run's folder"
                .to_owned(),
        );
    }
    config.check().map_err(|error| error.to_string())
}

fn without_command(config: &Config) -> Config {
    config.with(|config| _ = config.outputs.take_command())
}

/// A recipe as TOML, without a command after every epoch. [`read_recipe`] reads it back as the same recipe, and so the same run bit for bit.
///
/// # Errors
/// [`Error::Recipe`] if a value can't be written.
pub fn write_recipe(config: &Config) -> Result<String> {
    let refuse =
        |error: toml::ser::Error| Error::Recipe { name: config.recipe.clone(), reason: error.to_string() };
    let line = |key: &str, value: &Value| -> Result<String> {
        Ok(format!("{key} = {}\n", toml::Value::try_from(value).map_err(refuse)?))
    };
    let json = |config: &Config| serde_json::to_value(config).unwrap_or_default();
    let (own, blank) = (json(&without_command(config)), json(&Config::default()));
    let mut text = line("recipe", &config.recipe.as_str().into())?;
    for key in NEEDED {
        text += &line(key, &own[key])?;
    }
    let is_table = |key: &str| table(key).is_some();
    for option in tables().iter().filter(|table| table.key.is_empty()).flat_map(|table| table.options) {
        let (key, value) = (option.name, &own[option.name]);
        let is_written =
            NEEDED.contains(&key) || ["recipe", "changed", "layer"].contains(&key) || is_table(key);
        if !is_written && !value.is_null() && *value != blank[key] {
            text += &line(key, value)?;
        }
    }
    let mut written = Vec::new();
    for Table { key, begins, .. } in tables().iter().filter(|table| !table.key.is_empty()) {
        let Some(own) = own[key].as_object().filter(|_| !written.contains(key)) else { continue };
        written.push(*key);
        let defaults = begins.filter(|_| blank[key].is_null()).map(|begins| begins());
        let blank = defaults.as_ref().unwrap_or(&blank[key]);
        let differs: Vec<_> =
            own.iter().filter(|(name, value)| !value.is_null() && blank[name.as_str()] != **value).collect();
        // A callback with default options is written too.
        if defaults.is_some() || !differs.is_empty() {
            text += &format!("\n[{key}]\n");
        }
        for (name, value) in differs {
            text += &line(name, value)?;
        }
    }
    for layer in own["layer"].as_array().into_iter().flatten().filter_map(Value::as_object) {
        text += "\n[[layer]]\n";
        let first = ["class", "name", "inputs"].map(|key| layer.get_key_value(key));
        let others = layer.iter().filter(|(key, _)| !["class", "name", "inputs"].contains(&key.as_str()));
        for (key, value) in first.into_iter().flatten().chain(others) {
            text += &line(key, value)?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EarlyStop, ReduceLrOnPlateau};
    use towers_callbacks::SaveFreq;

    #[test]
    fn every_recipe_comes_back_from_its_file() {
        for (name, _) in RECIPES {
            let config = recipe(name).unwrap();
            config.check().unwrap();
            let text = write_recipe(&config).unwrap();
            assert_eq!(read_recipe(&text, "another").unwrap(), config, "{text}");
        }
    }

    #[test]
    fn layers_of_ones_own_come_back() {
        let text = "like = 'quick'\nepochs = 1\n[[layer]]\nclass = 'Conv2D'\nfilters = 4\nkernel_size = [3, 1]\n\
                    [[layer]]\nclass = 'Flatten'\ninputs = ['conv2d']\n[[layer]]\nclass = 'Dense'\nname = 'scores'\n";
        let config = read_recipe(text, "mine").unwrap();
        assert_eq!((config.training.model.as_str(), config.training.layer.layers.len()), ("mine", 3));
        let model = config.network([9, 8, 3], 7).unwrap();
        assert_eq!(model.summary().trainable, 3 * 3 * 4 + 4 + 7 * 8 * 4 * 7 + 7);
        let written = write_recipe(&config).unwrap();
        assert_eq!(read_recipe(&written, "another").unwrap(), config, "{written}");
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config);
        for (text, says) in [
            (
                text.replace("'Dense'", "'Dence'"),
                "layer scores: there is no layer `Dence` here; there are Activation",
            ),
            (
                text.replace("[[layer]]\nclass = 'Conv2D'", "[[layer]]\nkind = 'Conv2D'"),
                "`layer` is {\"filters\":4,",
            ),
            (text.replace("epochs = 1", "model = 'a\nb'"), "line"),
            (text.replace("like = 'quick'", ""), "`batch_size` is missing"),
        ] {
            let told = read_recipe(&text, "mine").unwrap_err().to_string();
            assert!(told.contains(says), "{told}");
        }
    }

    #[test]
    fn whatever_a_run_is_told_comes_back() {
        let text = "recipe = 'all.of-it'\nlike = 'resnet18'\nmodel = 'small_cnn'\nepochs = 3\nbatch_size = 7\nglobal_batch_size = 21\n\
                    drop_last = true\nlr = 0.30000000000000004\nschedule = 'step:every=2'\noptimizer = 'rmsprop:style=keras3'\n\
                    param_groups = ['*/beta:lr-multiplier=64,l2=2e-5', 'dense/*:epochs=3']\n\
                    ema = 'momentum=0.9'\nlabel_smoothing = 0.1\npreprocessing = 'divide-by-255'\nseed = 12\nvirtual_replicas = 2\nsync_batch_norm = true\n\
                    terminate_on_nan = true\n\
                    [devices]\nreplicas = 2\nprecision = 'bf16'\n[checkpoints]\nevery_epochs = 2\nevery_steps = 7\nsave_best = 'val_acc'\n\
                    [data]\ndataset = 'cifar100'\n[early_stop]\nmonitor = 'val_loss'\nmin_delta = 0.0\npatience = 9\n\
                    [augmentation]\nrotation_range = 15.5\nfill_mode = 'reflect'\nhorizontal_flip = false\n\
                    [reduce_lr_on_plateau]\nfactor = 0.5\n[model_checkpoint]\npath = 'w-{epoch:02d}.safetensors'\n\
                    save_freq = 100\ninitial_value_threshold = 0.5\n";
        let config = read_recipe(text, "file").unwrap();
        assert_eq!(
            (config.recipe.as_str(), config.training.global_batch_size, config.training.lr),
            ("all.of-it", Some(21), 0.1 + 0.2)
        );
        assert_eq!(
            (config.placement.devices.replicas, config.training.augmentation.rotation_range),
            (2, 15.5)
        );
        assert!(
            config.training.augmentation.random_crop == 4 && !config.training.augmentation.horizontal_flip,
            "the rest is resnet18's"
        );
        assert_eq!(config.outputs.early_stop.as_ref().map(|stop| stop.patience), Some(9));
        assert_eq!(
            (config.training.ema.map(|ema| (ema.momentum, ema.every)), config.training.param_groups.len()),
            (Some((0.9, 1)), 2)
        );
        // What a table does not say is the default.
        let plateau = ReduceLrOnPlateau { factor: 0.5, ..ReduceLrOnPlateau::default() };
        assert_eq!(config.training.reduce_lr_on_plateau, Some(plateau));
        let files = config.outputs.model_checkpoint.as_ref();
        assert_eq!(files.map(|files| files.save_freq), Some(SaveFreq::Batches(100)));
        assert_eq!(
            read_recipe("like = 'quick'\n[early_stop]", "file").unwrap().outputs.early_stop,
            Some(EarlyStop::default())
        );
        let written = write_recipe(&config).unwrap();
        assert_eq!(read_recipe(&written, "file").unwrap(), config, "{written}");
    }

    #[test]
    fn pictures_lie_beside_the_recipe() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mine.toml");
        let of = |dataset: &str| {
            std::fs::write(&path, format!("like = 'quick'\n[data]\ndataset = '{dataset}'")).unwrap();
            find_recipe(path.to_str().unwrap()).unwrap().training.data.dataset
        };
        std::fs::create_dir(dir.path().join("pets")).unwrap();
        std::fs::create_dir(dir.path().join("synthetic")).unwrap();
        assert_eq!(Path::new(&of("pets")), std::path::absolute(dir.path().join("pets")).unwrap());
        assert_eq!((of("elsewhere"), of("synthetic")), ("elsewhere".to_owned(), "synthetic".to_owned()));
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_no_text_is_not_garbled() {
        use std::os::unix::ffi::OsStringExt as _;
        let path = PathBuf::from(std::ffi::OsString::from_vec(b"/data/caf\xe9".to_vec()));
        let error = text_of(path).unwrap_err();
        assert!(error.ends_with("a path that is not UTF-8; rename it"), "{error}");
        assert_eq!(text_of("/data/café".into()).as_deref(), Ok("/data/café"));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (text, says) in [
            ("like = 'resnet'", "did you mean `resnet18`?"),
            ("like = 3", "`like` is 3, but must be one of minigooglenet, "),
            (
                "like = 'file.toml'",
                "the recipe file: line 1: `like` is \"file.toml\", but must be one of minigooglenet, ",
            ),
            ("like = 'quick'\nepoch = 1", "did you mean `epochs`?"),
            ("like = 'quick'\nepochs = '1'", "`epochs` is \"1\", but must be a whole number, 1 or more"),
            ("like = 'quick'\nepochs = -1", "`epochs` is -1, but must be a whole number, 1 or more"),
            (
                "like = 'quick'\nepochs = 0",
                "the recipe file: line 2: `epochs` is 0, but must be a whole number, 1 or more",
            ),
            ("like = 'quick'\nlr = 'fast'", "`lr` is \"fast\", but must be a number"),
            (
                "like = 'quick'\n[data]\nlimit_train = 0",
                "line 3: `data.limit_train` is 0, but must be a whole number, 1 or more",
            ),
            (
                "like = 'quick'\n[devices]\ngpus = ['a']",
                "`devices.gpus` is [\"a\"], but must be a number of GPUs, as in 3, or a list of their ids",
            ),
            (
                "like = 'quick'\n[augmentation]\nrotation_range = -1.0",
                "the recipe file: `augmentation.rotation_range` is -1, but it must be a finite number",
            ),
            ("like = 'quick'\noptimizer = 'sgd:lr=0.1'", "; give the learning rate by `lr`"),
            (
                "like = 'quick'\ndevice_weights = 'fast'",
                "`device_weights` is \"fast\", but must be auto, even",
            ),
            (
                "like = 'quick'\noptimizer = 'adafactor'",
                "line 2: `optimizer`: the optimizer `adafactor` is unknown",
            ),
            ("like = 'quick'\nparam_groups = ['*/bias:lr=2']", "option `lr` is unknown; there are lr-multi"),
            ("like = 'quick'\nparam_groups = ['bias']", "the parameter group `bias` takes no parameter"),
            ("like = 'quick'\npreprocessing = 'nothing'", "but must be one of none, divide-by-255"),
            ("like = 'quick'\nmodel = 'resnet81'", "did you mean `resnet18`?"),
            ("like = 'quick'\n[devices]\ndevice = 'cdua'", "did you mean `cuda`?"),
            ("like = 'quick'\n[augmentation]\nhorizontal_flop = true", "did you mean `horizontal_flip`?"),
            (
                "like = 'quick'\n[augmentation]\nhorizontal_flip = 3",
                "`augmentation.horizontal_flip` is 3, but must be true or false",
            ),
            ("like = 'quick'\naugmentation = 3", "`augmentation` is 3, but must be a table of options"),
            ("like = 'quick'\n[data]\ndataset = ''", "`data.dataset` is empty; name a data set or a folder"),
            ("like = 'quick'\nrecipe = '../x'", "its name must be of letters"),
            ("epochs = 3", "`model` is missing"),
            ("like = 'quick'\nepochs = ", "line 2: "),
            ("like = 'quick'\n[early_stop]\npatient = 3", "there is no key `early_stop.patient`"),
            (
                "like = 'quick'\n[epoch_command]\ncommand = 'true'",
                "line 2: `epoch_command` is for the command line",
            ),
            (
                "like = 'quick'\n[reduce_lr_on_plateau]\nfactor = 2.0",
                "line 3: `reduce_lr_on_plateau.factor` is 2.0, but must be a number from 0 to below 1",
            ),
            (
                "like = 'quick'\n[model_checkpoint]\nsave_freq = 0",
                "`model_checkpoint.save_freq` is 0, but must be epoch or a number",
            ),
        ] {
            let error = read_recipe(text, "file").unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
