//! `--resume`: which run goes on, and what may change.

use crate::args::TrainArgs;
use crate::error::usage;
use crate::output::{Output, is_held, is_picture, newest_run};
use anyhow::Context;
use serde_json::Value;
use std::path::{Path, PathBuf};
use train::{Config, DeviceOptions, Process, Resume, find_recipe};

/// The settings that a resumed run may have otherwise, as keys of `config.json`. All others stay what they were.
const MAY_CHANGE: [&str; 22] = [
    "checkpoints.every_epochs",
    "checkpoints.every_steps",
    "checkpoints.keep_last",
    "checkpoints.save_best",
    "csv_log",
    "data.data_dir",
    "data.data_url",
    "data.limit_test",
    "data.offline",
    "device_weights",
    "devices.device",
    "devices.gpus",
    "devices.pipeline_stages",
    "devices.replicas",
    "devices.split_at",
    "devices.threads",
    "early_stop",
    "epochs",
    "model_checkpoint",
    "plot",
    "tensorboard",
    "terminate_on_nan",
];

/// The tables of `config.json` whose options are settings of their own.
const TABLES: [&str; 4] = ["augmentation", "checkpoints", "data", "devices"];

/// The value of a setting that is left out.
const NONE: &str = "none";

/// A setting in which two configurations differ.
struct Difference {
    /// Its key in `config.json`.
    key: String,
    old: String,
    new: String,
}

impl Difference {
    fn may_change(&self) -> bool {
        MAY_CHANGE.contains(&self.key.as_str())
    }

    /// The flag that sets it.
    fn option(&self, args: &TrainArgs) -> String {
        match self.key.as_str() {
            "lr_scaling" => "--lr-scaling or --warmup-epochs".to_owned(),
            "optimizer" => "--optimizer or --momentum".to_owned(),
            "param_groups" => "--param-group".to_owned(),
            "schedule" => "--schedule, --power or --decay".to_owned(),
            key if key.starts_with("augmentation.") && args.augmentation.no_augmentation => {
                "--no-augmentation".to_owned()
            }
            key => format!("--{}", key.rsplit('.').next().unwrap_or(key).replace('_', "-")),
        }
    }

    /// Refuses it; `source` is what asks for the new value.
    fn refuse(&self, name: &str, source: &str, left_out: &str) -> anyhow::Error {
        let Difference { old, new, .. } = self;
        usage(format!(
            "{name} can't change when a run is resumed: the run has {old}, {source} {new}; leave {left_out} out, or start a new run"
        ))
    }
}

fn differences(old: &Config, new: &Config) -> anyhow::Result<Vec<Difference>> {
    let pairs = settings(old)?.into_iter().zip(settings(new)?);
    let differs = pairs.filter(|((_, old), (_, new))| old != new);
    Ok(differs.map(|((key, old), (_, new))| Difference { key, old, new }).collect())
}

/// The keys of a configuration, which all have, and their values as text.
fn settings(config: &Config) -> anyhow::Result<Vec<(String, String)>> {
    let mut all = serde_json::to_value(config)?;
    all["micro_batches"] = config.micro_batches().into();
    all["optimizer"] = config.training.optimizer.to_string().into();
    all["schedule"] = config.training.schedule.to_string().into();
    let text = |value: Value| match value {
        Value::Null => NONE.to_owned(),
        Value::String(text) => text,
        other => other.to_string().replace('"', ""),
    };
    let mut settings = Vec::new();
    let Value::Object(all) = all else { return Ok(settings) };
    for (key, value) in all {
        match value {
            Value::Object(options) if TABLES.contains(&key.as_str()) => {
                settings.extend(
                    options.into_iter().map(|(option, value)| (format!("{key}.{option}"), text(value))),
                );
            }
            value => settings.push((key, text(value))),
        }
    }
    Ok(settings)
}

/// Whether a launcher or the cluster has started this job before.
fn is_restarted() -> anyhow::Result<bool> {
    Ok(train::cluster::is_restarted_here().map_err(train::Error::from)?)
}

/// What a run begins with.
pub struct Start {
    pub config: Config,
    pub output: Output,
    pub resume: Option<Resume>,
}

impl Start {
    /// The name of the checkpoint in the run's folder from which the run goes on.
    fn checkpoint(&self) -> Option<String> {
        let resume = self.resume.as_ref().filter(|_| self.output.goes_on)?;
        Some(resume.path.file_name()?.to_string_lossy().into_owned())
    }
}

impl TrainArgs {
    /// What the run begins with; `again` where what `--output` holds is this run's own.
    pub fn start(&self, again: bool) -> anyhow::Result<Start> {
        match self.resumed_run(again)? {
            Some((run, resume)) => self.going_on(run, resume),
            None => self.beginning(again),
        }
    }

    /// The same for one of several processes. Launchers may say to some alone that this is a restart, and not all may see the
    /// same checkpoints. So the first one hears what all know, and says where the run goes on.
    pub fn agree(&self, process: &mut Process, mut start: Start) -> anyhow::Result<Start> {
        let Some(output) = self.folder().filter(|_| self.keep.resume.is_none()) else { return Ok(start) };
        let own = self.goes_on()?;
        let again = process.any_restarted(own)?;
        if process.is_first() && again != own {
            start = self.start(again)?;
        }
        let own = start.checkpoint();
        let told = process.common_checkpoint(own.clone())?;
        if told != own {
            start = match told {
                None => self.beginning(again)?,
                Some(name) => {
                    let unseen = || {
                        let output = output.display();
                        format!("rank 0 goes on from {name}; all processes must see {output}")
                    };
                    self.going_on(output.clone(), Resume::checkpoint(output, &name).with_context(unseen)?)?
                }
            };
        }
        start.config.check_replicas(process.world())?;
        Ok(start)
    }

    fn going_on(&self, run: PathBuf, resume: Resume) -> anyhow::Result<Start> {
        let config = self.resumed_config(&resume)?;
        let output = Output { run, numbered: false, goes_on: true, restarted: false };
        Ok(Start { config, output, resume: Some(resume) })
    }

    fn beginning(&self, again: bool) -> anyhow::Result<Start> {
        let mut resume = self.keep.resume_from.as_deref().map(Resume::read).transpose()?;
        // Those of the run that the file is of.
        resume.iter_mut().for_each(|resume| resume.config.forget_outputs());
        let config = resume.as_ref().map_or_else(|| self.config(), |resume| self.resumed_config(resume))?;
        let new = Output::new(self.keep.output.as_deref(), &config.recipe);
        Ok(Start { config, output: Output { restarted: again, ..new }, resume })
    }

    /// The run's folder, if one is named.
    fn folder(&self) -> Option<&PathBuf> {
        self.keep.output.as_ref().filter(|output| !is_picture(output))
    }

    /// The run to go on with: the one `--resume` names, or `--output`, or the newest.
    fn resumed_run(&self, again: bool) -> anyhow::Result<Option<(PathBuf, Resume)>> {
        let run = match &self.keep.resume {
            None => return self.restarted_run(again),
            Some(Some(run)) => match self.folder().filter(|output| *output != run) {
                Some(_) => {
                    return Err(usage(
                        "a resumed run stays in its folder; leave --output out, or let it name a picture",
                    ));
                }
                None => run.clone(),
            },
            Some(None) => match self.folder() {
                Some(run) => run.clone(),
                None => newest_run(&[train::CHECKPOINTS])?,
            },
        };
        let resume = Resume::newest(&run).map_err(|error| match is_held(&run) {
            true => anyhow::anyhow!(
                "a run is writing into {}, and has no checkpoint yet; wait until it has ended",
                run.display()
            ),
            false => error.into(),
        })?;
        Ok(Some((run, resume)))
    }

    /// Whether what `--output` holds is this run's own: a launcher has started it before, or `--backup-and-restore` says so.
    pub fn goes_on(&self) -> anyhow::Result<bool> {
        Ok(self.keep.backup_and_restore.is_some() || is_restarted()?)
    }

    /// The run that is started anew after a failure: the one in `--output`, if it has come to a checkpoint. So a
    /// job goes on by itself; its command line is that of the first start. Checkpoints that can't be read are an error: to begin
    /// anew would replace them.
    fn restarted_run(&self, again: bool) -> anyhow::Result<Option<(PathBuf, Resume)>> {
        if let (Some(_), None) = (self.keep.backup_and_restore, self.folder()) {
            return Err(usage(
                "--backup-and-restore needs the run's folder as --output, which a picture is not",
            ));
        }
        let Some(run) = self.folder().filter(|_| again) else { return Ok(None) };
        let newest = Resume::newest_if_any(run).map_err(|error| match error {
            train::Error::Run { path, reason } => {
                let reason = format!("{reason}; mend them, or move them away to begin anew");
                train::Error::Run { path, reason }
            }
            other => other,
        })?;
        Ok(newest.map(|resume| (run.clone(), resume)))
    }

    /// The recipe's file, if `--recipe` names one.
    fn recipe_file(&self) -> Option<&str> {
        self.recipe
            .as_deref()
            .filter(|recipe| Path::new(recipe).extension().is_some_and(|ending| ending == "toml"))
    }

    /// Refuses flags, and a recipe's file, that would make a resumed run another one than it was. Its data may come from elsewhere, if
    /// they are going to be compared with a `fingerprint`.
    pub fn check_resumed(&self, saved: &Config, fingerprint: bool) -> anyhow::Result<()> {
        if self.quick && self.recipe.is_none() && saved.recipe != "quick" {
            return Err(usage(format!(
                "--quick is for runs of the recipe quick, but this run is of {}; leave it out, or name another run by --resume DIR",
                saved.recipe
            )));
        }
        let fixed = |wanted: &Config| {
            let may_change =
                |differs: &Difference| differs.may_change() || (fingerprint && differs.key == "data.dataset");
            anyhow::Ok(differences(saved, wanted)?.into_iter().filter(move |differs| !may_change(differs)))
        };
        let mut wanted = saved.clone();
        if let Some(recipe) = &self.recipe {
            wanted.recipe = find_recipe(recipe)?.recipe;
        }
        self.apply(&mut wanted)?;
        if let Some(differs) = fixed(&wanted)?.next() {
            return Err(differs.refuse(&differs.option(self), "this command line", "it"));
        }
        if let Some(file) = self.recipe_file() {
            let mut wanted = self.config()?;
            // By default they depend on the stages, which may change.
            wanted.training.micro_batches = wanted.training.micro_batches.or(saved.training.micro_batches);
            // What the file leaves out may have been a flag's.
            if let Some(differs) = fixed(&wanted)?.find(|differs| differs.new != NONE) {
                return Err(differs.refuse(&format!("`{}`", differs.key), file, "--recipe"));
            }
        }
        Ok(())
    }

    /// What the recipe's file says otherwise than the resumed run does it, for people: of what may change, only flags change it.
    pub fn unheeded(&self, config: &Config) -> anyhow::Result<Vec<String>> {
        let Some(file) = self.recipe_file() else { return Ok(Vec::new()) };
        let differences = differences(config, &self.config()?)?.into_iter();
        let unheeded = differences.filter(|differs| differs.may_change() && differs.new != NONE);
        let told = |Difference { key, old, new }| {
            format!(
                "{file} says {key} = {new}, but the run goes on with {old}: only flags change a resumed run"
            )
        };
        Ok(unheeded.map(told).collect())
    }

    /// The configuration of a resumed run: as it was saved, with what may change taken from the flags. The devices are
    /// those of the flags alone: a run may go on elsewhere. What decides about bits stays.
    pub fn resumed_config(&self, resume: &Resume) -> anyhow::Result<Config> {
        self.check_resumed(&resume.config, resume.state.data.is_some())?;
        let mut config = resume.config.clone();
        let DeviceOptions { replicas, precision, deterministic, no_winograd, .. } = config.placement.devices;
        config.placement.devices =
            DeviceOptions { replicas, precision, deterministic, no_winograd, ..DeviceOptions::default() };
        self.apply(&mut config)?;
        let done = resume.state.epoch;
        if self.epochs.is_some_and(|epochs| epochs < done) {
            return Err(usage(format!(
                "--epochs is {}, but epoch {done} of this run is done already",
                config.training.epochs
            )));
        }
        // The whole batch stays what it was, on however many towers: that is in the state, not among what was asked for.
        Ok(config)
    }
}
