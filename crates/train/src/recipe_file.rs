//! Recipes as TOML: what `towers recipes NAME` prints and `--recipe FILE.toml` reads.
//!
//! A file has the keys of `config.json`, so whatever a run can be told a recipe can hold. Optimizer, schedule and average have the
//! compact form of the command line. Files are read key by key, so that an error has a name and a line of its own.

use crate::keys::{self, in_keys};
use crate::spelling::{hint, spelled};
use crate::{
    Config, CsvLogOptions, DataOptions, EarlyStop, Error, ModelCheckpointOptions, RECIPES, ReduceLrOnPlateau,
    Result, TensorBoardOptions, recipe,
};
use augment::ImageDataGenerator;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// What a recipe that is not `like` another one must have. These keys are written first, and always.
const NEEDED: [&str; 8] =
    ["model", "epochs", "batch_size", "lr", "schedule", "optimizer", "preprocessing", "drop_last"];

/// Keys that hold options of their own, each of which may be left out.
pub(crate) const TABLES: [&str; 9] = [
    "augmentation",
    "checkpoints",
    "csv_log",
    "data",
    "devices",
    "early_stop",
    "model_checkpoint",
    "reduce_lr_on_plateau",
    "tensorboard",
];

type Options = Map<String, Value>;

/// The recipe of this name, or of the file, if it ends with `.toml`. What a file's recipe reads may lie beside it: a relative `dataset` is
/// a folder there, or else of the current folder. What it writes (`csv_log`, `tensorboard`, `plot`, `model_checkpoint`) is of the current
/// folder, as on the command line.
///
/// # Errors
/// [`Error::Option`] for a name that is not among [`RECIPES`], [`Error::Recipe`] for a file that makes no sense; [`Error::Io`] if there is
/// no such file.
pub fn find_recipe(name: &str) -> Result<Config> {
    let path = Path::new(name);
    if path.extension().is_none_or(|ending| ending != "toml") {
        return recipe(name);
    }
    let text = checkpoint::read_text(path).map_err(Error::io("read", path))?;
    let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let read = || {
        let mut config = read_recipe(&text, &stem)?;
        beside(path, &mut config.data).map_err(|reason| Error::Recipe { name: stem.clone(), reason })?;
        Ok(config)
    };
    read().map_err(|error| match error {
        Error::Recipe { reason, .. } => Error::Recipe { name: name.to_owned(), reason },
        other => other,
    })
}

/// A folder of pictures that a recipe's file names is meant beside that file, if there is one.
fn beside(recipe: &Path, data: &mut DataOptions) -> std::result::Result<(), String> {
    let folder = recipe.parent().map(|folder| folder.join(&data.dataset)).filter(|folder| folder.is_dir());
    if let Some(folder) = folder.filter(|_| !data.is_named())
        && let Ok(absolute) = std::path::absolute(folder)
    {
        data.dataset = text_of(absolute)?;
    }
    Ok(())
}

/// A path as a configuration has it.
fn text_of(path: PathBuf) -> std::result::Result<String, String> {
    path.into_os_string().into_string().map_err(|path| {
        format!("its pictures are in {}, a path that is not UTF-8; rename the folder", path.display())
    })
}

/// Reads a recipe in TOML, which is called `name` where it doesn't say. What it leaves out is as in the recipe that it is `like`.
///
/// ```
/// let config = train::read_recipe("like = 'resnet18'\nepochs = 15\n[augmentation]\nvertical_flip = true", "short")?;
/// assert_eq!((config.recipe.as_str(), config.model.as_str(), config.epochs), ("short", "resnet18", 15));
/// let error = train::read_recipe("like = 'resnet18'\nepoch = 15", "short").unwrap_err().to_string();
/// assert!(error.ends_with("did you mean `epochs`?"), "{error}");
/// # Ok::<(), train::Error>(())
/// ```
///
/// # Errors
/// [`Error::Recipe`] naming the key, its value and what is wrong with it.
pub fn read_recipe(text: &str, name: &str) -> Result<Config> {
    let refuse = |reason: String| Error::Recipe { name: name.to_owned(), reason };
    let table: toml::Table = text.parse().map_err(|error| refuse(no_toml(text, &error)))?;
    let Ok(Value::Object(mut file)) = serde_json::to_value(table) else {
        return Err(refuse("it is no table of keys and values".to_owned()));
    };
    let mut config = match file.remove("like") {
        Some(like) => recipe(like.as_str().unwrap_or_default()).map_err(|_| {
            let names = RECIPES.map(|(name, _)| name);
            let near = hint(like.as_str().unwrap_or_default(), names);
            refuse(format!("`like` is {like}, but must be one of {}{near}", names.join(", ")))
        })?,
        None => {
            if let Some(missing) = NEEDED.into_iter().find(|key| !file.contains_key(*key)) {
                return Err(refuse(format!(
                    "`{missing}` is missing; give it, or the recipe that this one is `like`"
                )));
            }
            blank()?
        }
    };
    config.recipe = name.to_owned();
    for (key, value) in file {
        match value {
            Value::Object(own) if TABLES.contains(&key.as_str()) => {
                if options(&config)[&key].is_null() {
                    config = with(&config, &[&key], begun(&key)).map_err(refuse)?;
                }
                for (option, value) in own {
                    config = with(&config, &[&key, &option], value).map_err(refuse)?;
                }
            }
            value => config = with(&config, &[&key], value).map_err(refuse)?,
        }
    }
    if config.data.dataset.is_empty() {
        let reason = "`data.dataset` is empty; name a data set or a folder of pictures, or leave it out";
        return Err(refuse(reason.to_owned()));
    }
    // It becomes a part of a path.
    let plain = |ch: char| ch.is_ascii_alphanumeric() || "-_.".contains(ch);
    if config.recipe.is_empty() || config.recipe.starts_with('.') || !config.recipe.chars().all(plain) {
        let reason =
            "its name must be of letters, digits, `-`, `_` and dots inside, since it names the run's folder";
        return Err(refuse(reason.to_owned()));
    }
    match config.check() {
        Ok(()) => Ok(config),
        Err(Error::Augment(error)) => Err(refuse(format!("augmentation: {error}"))),
        Err(error) => Err(refuse(in_keys(&error.to_string()))),
    }
}

/// What is no TOML at all.
fn no_toml(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
    format!("line {line} is no TOML: {}", error.message().replace('\n', ", "))
}

/// The configuration with one key, or one option of a table, set; or what is wrong with that.
fn with(config: &Config, path: &[&str], value: Value) -> std::result::Result<Config, String> {
    let name = path.join(".");
    let shown = format!("`{name} = {value}`");
    // Read here too, for a hint to what was meant.
    let read = match (path, value.as_str()) {
        (["optimizer"], Some(text)) => text.parse::<optim::Optimizer>().err(),
        (["schedule"], Some(text)) => text.parse::<optim::Schedule>().err(),
        (["ema"], Some(text)) => text.parse::<optim::Ema>().err(),
        _ => None,
    };
    if let Some(error) = read {
        return Err(format!("{shown}: {}", in_keys(&spelled(&error))));
    }
    let mut all = Value::Object(options(config));
    let Some((last, tables)) = path.split_last() else { return Ok(config.clone()) };
    let table = tables.iter().try_fold(&mut all, |table, key| table.get_mut(*key));
    let Some(table) = table.and_then(Value::as_object_mut) else {
        return Err(format!("{shown}: no such table"));
    };
    if !table.contains_key(*last) {
        let known: Vec<&str> = table.keys().map(String::as_str).collect();
        let meant = hint(last, known.iter().copied());
        return Err(format!("there is no key `{name}`; there are {}{meant}", known.join(", ")));
    }
    table.insert((*last).to_owned(), value.clone());
    Config::deserialize(all).map_err(|error| {
        let error = error.to_string();
        // Where only the value is wrong, it is known whether it may be 0.
        let refuses_zero = || {
            let zero = with(config, path, 0.into());
            config.check().is_ok() && zero.is_ok_and(|config| config.check().is_err())
        };
        match keys::accepted(&error, &value, refuses_zero) {
            Some(accepted) => format!("`{name}` is {value}, but must be {accepted}"),
            None => format!("{shown} does not fit: {}", in_keys(&error)),
        }
    })
}

/// The options of a callback that the recipe has not had so far.
pub(crate) fn begun(table: &str) -> Value {
    Value::Object(match table {
        "csv_log" => options(&CsvLogOptions::default()),
        "early_stop" => options(&EarlyStop::default()),
        "model_checkpoint" => options(&ModelCheckpointOptions::default()),
        "reduce_lr_on_plateau" => options(&ReduceLrOnPlateau::default()),
        "tensorboard" => options(&TensorBoardOptions::default()),
        _ => Options::new(),
    })
}

pub(crate) fn options(of: &impl Serialize) -> Options {
    match serde_json::to_value(of) {
        Ok(Value::Object(options)) => options,
        _ => Options::new(),
    }
}

/// What a recipe says nothing of: Keras' defaults, and no augmentation.
pub(crate) fn blank() -> Result<Config> {
    Ok(Config { augmentation: ImageDataGenerator::new(), ..recipe(RECIPES[0].0)? })
}

/// A recipe as TOML. Given back to [`read_recipe`] it is the same recipe, and so the same run bit for bit.
///
/// # Errors
/// [`Error::Recipe`] if a value can't be written.
pub fn write_recipe(config: &Config) -> Result<String> {
    let refuse =
        |error: toml::ser::Error| Error::Recipe { name: config.recipe.clone(), reason: error.to_string() };
    let line = |key: &str, value: &Value| -> Result<String> {
        Ok(format!("{key} = {}\n", toml::Value::try_from(value).map_err(refuse)?))
    };
    let own = options(config);
    let blank = options(&blank()?);
    let told = |own: &Options, blank: &Options| -> Vec<(String, Value)> {
        let differs = |(key, value): &(&String, &Value)| !value.is_null() && blank.get(*key) != Some(*value);
        own.iter().filter(differs).map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let mut text = line("recipe", &config.recipe.as_str().into())?;
    for key in NEEDED {
        text += &line(key, &own[key])?;
    }
    for (key, value) in told(&own, &blank) {
        if !NEEDED.contains(&key.as_str()) && !TABLES.contains(&key.as_str()) && key != "recipe" {
            text += &line(&key, &value)?;
        }
    }
    for table in TABLES {
        let Some(own) = own[table].as_object() else { continue };
        // A callback with its defaults is one as well.
        let begins = blank[table].is_null();
        let blank = if begins { &begun(table) } else { &blank[table] };
        let told = blank.as_object().map_or_else(Vec::new, |blank| told(own, blank));
        if begins || !told.is_empty() {
            text += &format!("\n[{table}]\n");
        }
        for (option, value) in told {
            text += &line(&option, &value)?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SaveFreq;

    #[test]
    fn every_recipe_comes_back_from_its_file() {
        for (name, _) in RECIPES {
            let config = recipe(name).unwrap();
            let text = write_recipe(&config).unwrap();
            assert_eq!(read_recipe(&text, "another").unwrap(), config, "{text}");
        }
    }

    #[test]
    fn whatever_a_run_is_told_comes_back() {
        let text = "recipe = 'all.of-it'\nlike = 'resnet18'\nmodel = 'small_cnn'\nepochs = 3\nbatch_size = 7\nglobal_batch_size = 21\n\
                    drop_last = true\nlr = 0.30000000000000004\nschedule = 'step:every=2'\noptimizer = 'rmsprop:style=keras3'\n\
                    param_groups = ['*/beta:lr-multiplier=64,l2=2e-5', 'dense/*:epochs=3']\n\
                    ema = 'momentum=0.9'\nlabel_smoothing = 0.1\npreprocessing = 'divide-by-255'\nseed = 12\nvirtual_replicas = 2\nsync_batch_norm = true\n\
                    [devices]\nreplicas = 2\nprecision = 'bf16'\n[checkpoints]\nevery_epochs = 2\nsave_best = 'val_acc'\n\
                    [data]\ndataset = 'cifar100'\n[early_stop]\nmonitor = 'val_loss'\nmin_delta = 0.0\npatience = 9\n\
                    [augmentation]\nrotation_range = 15.5\nfill_mode = 'reflect'\nhorizontal_flip = false\n";
        let config = read_recipe(text, "file").unwrap();
        assert_eq!(
            (config.recipe.as_str(), config.global_batch_size, config.lr),
            ("all.of-it", Some(21), 0.1 + 0.2)
        );
        assert_eq!((config.devices.replicas, config.augmentation.rotation_range), (2, 15.5));
        assert!(
            config.augmentation.random_crop == 4 && !config.augmentation.horizontal_flip,
            "the rest is resnet18's"
        );
        assert_eq!(config.early_stop.as_ref().map(|stop| stop.patience), Some(9));
        assert_eq!(
            (config.ema.map(|ema| (ema.momentum, ema.every)), config.param_groups.len()),
            (Some((0.9, 1)), 2)
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
            find_recipe(path.to_str().unwrap()).unwrap().data.dataset
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
        let told = text_of(path).unwrap_err();
        assert!(told.ends_with("a path that is not UTF-8; rename the folder"), "{told}");
        assert_eq!(text_of("/data/café".into()).as_deref(), Ok("/data/café"));
    }

    #[test]
    fn callbacks_come_back_with_defaults_and_without() {
        let text = "like = 'quick'\nterminate_on_nan = true\n[early_stop]\n[reduce_lr_on_plateau]\nfactor = 0.5\n\
                    [model_checkpoint]\npath = 'w-{epoch:02d}.safetensors'\nsave_freq = 100\ninitial_value_threshold = 0.5\n\
                    [checkpoints]\nevery_steps = 7";
        let config = read_recipe(text, "file").unwrap();
        assert_eq!(config.early_stop, Some(EarlyStop::default()));
        let plateau = ReduceLrOnPlateau { factor: 0.5, ..ReduceLrOnPlateau::default() };
        assert_eq!(config.reduce_lr_on_plateau, Some(plateau));
        let save_freq = config.model_checkpoint.as_ref().map(|files| files.save_freq);
        assert_eq!((save_freq, config.checkpoints.every_steps), (Some(SaveFreq::Batches(100)), 7));
        let written = write_recipe(&config).unwrap();
        assert_eq!(read_recipe(&written, "file").unwrap(), config, "{written}");
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (text, says) in [
            ("like = 'resnet'", "did you mean `resnet18`?"),
            ("like = 3", "`like` is 3, but must be one of minigooglenet, "),
            (
                "like = 'file.toml'",
                "the recipe file: `like` is \"file.toml\", but must be one of minigooglenet, ",
            ),
            ("like = 'quick'\nepoch = 1", "there is no key `epoch`; there are augmentation, "),
            ("like = 'quick'\nepoch = 1", "did you mean `epochs`?"),
            ("like = 'quick'\nepochs = '1'", "`epochs` is \"1\", but must be a whole number, 1 or more"),
            ("like = 'quick'\nepochs = -1", "`epochs` is -1, but must be a whole number, 1 or more"),
            ("like = 'quick'\nseed = -1", "`seed` is -1, but must be a whole number, 0 or more"),
            ("like = 'quick'\nepochs = 0", "the recipe file: `epochs` is 0, but must be at least 1"),
            ("like = 'quick'\nlr = 'fast'", "`lr` is \"fast\", but must be a number"),
            ("like = 'quick'\n[data]\nlimit_train = 0", "`data.limit_train` is 0, but must be at least 1"),
            ("like = 'quick'\n[devices]\ngpus = 3", "`devices.gpus` is 3, but must be a list, as in [0, 1]"),
            (
                "like = 'quick'\n[devices]\ngpus = ['a']",
                "`devices.gpus` is [\"a\"], but must be a list, each value a whole number, 0 or more",
            ),
            (
                "like = 'quick'\n[augmentation]\nrotation_range = -1.0",
                "the recipe file: augmentation: `rotation_range` is -1, but it must be a finite number",
            ),
            ("like = 'quick'\noptimizer = 'sgd:lr=0.1'", "; give the learning rate by `lr`"),
            (
                "like = 'quick'\ndevice_weights = 'fast'",
                "`device_weights` is \"fast\", but must be auto, even",
            ),
            ("like = 'quick'\nmodel = 'resnet81'", "the model is `resnet81`, but must be one of"),
            ("like = 'quick'\noptimizer = 'lion'", "`optimizer = \"lion\"`: "),
            (
                "like = 'quick'\nparam_groups = ['*/bias:lr=2']",
                "option `lr` is unknown; there are lr-multiplier",
            ),
            ("like = 'quick'\nparam_groups = ['bias']", "the parameter group `bias` takes no parameter"),
            ("like = 'quick'\nema = 'momentum=1'", "ema: momentum is 1"),
            ("like = 'quick'\npreprocessing = 'none'", "but must be one of `divide-by-255`"),
            ("like = 'quick'\npreprocessing = 'standardise'", "did you mean `standardize`?"),
            ("like = 'quick'\noptimizer = 'sdg'", "did you mean `sgd`?"),
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
            ("like = 'quick'\nepochs = ", "line 2 is no TOML"),
            ("like = 'quick'\n[early_stop]\npatient = 3", "there is no key `early_stop.patient`"),
            ("like = 'quick'\n[early_stop]\nmonitor = 'val_los'", "did you mean `val_loss`?"),
            ("like = 'quick'\n[reduce_lr_on_plateau]\nfactor = 2.0", "`reduce_lr_on_plateau`: factor is 2"),
            (
                "like = 'quick'\n[model_checkpoint]\nsave_best_only = true",
                "`model_checkpoint.path` is ``, but must be",
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
