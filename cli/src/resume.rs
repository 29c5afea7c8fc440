//! `--resume`: the run to resume, and the options that may change.

use crate::args::{KeepArgs, TrainArgs};
use crate::error::usage;
use crate::spelling::flag_of;
use anyhow::Context;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use towers_config::{Config, DATA_SOURCE, Difference, differences, find_recipe};
use towers_options::Message;
use towers_runs::{RunFolder, is_locked, newest};
use towers_train::{Process, Resume, kept_devices, rendezvous};

/// The start of a run: from the beginning, or from a checkpoint.
pub struct Start {
    pub config: Config,
    pub folder: RunFolder,
    pub resume: Option<Resume>,
    /// Why a resumed run continues on other devices.
    pub changes: Vec<Message>,
}

impl Start {
    /// The name of the checkpoint in the run's folder that the run resumes from.
    fn checkpoint(&self) -> Option<String> {
        let resume = self.resume.as_ref().filter(|_| self.folder.is_resumed())?;
        Some(resume.path.file_name()?.to_string_lossy().into_owned())
    }
}

impl KeepArgs {
    /// The picture for the curves, if `--output` names one.
    pub fn picture(&self) -> Option<&PathBuf> {
        let ending = |path: &Path| path.extension().map(OsStr::to_ascii_lowercase);
        self.output
            .as_ref()
            .filter(|path| ending(path).is_some_and(|ending| ending == "png" || ending == "svg"))
    }

    /// The run's folder, if `--output` names one.
    fn folder(&self) -> Option<&PathBuf> {
        self.output.as_ref().filter(|_| self.picture().is_none())
    }
}

impl TrainArgs {
    /// The start of the run. `restarted` is true if the contents of `--output` belong to this run.
    pub fn start(&self, restarted: bool) -> anyhow::Result<Start> {
        match self.resumed_run(restarted)? {
            Some((run, resume)) => self.resumed_start(run, resume),
            None => self.new_start(restarted),
        }
    }

    /// The start for one of several processes. A launcher may tell only some of them that this is a restart,
    /// and not all may see the same checkpoints. So the first process collects the answers, and names the
    /// checkpoint.
    pub fn agree(&self, process: &mut Process, mut start: Start) -> anyhow::Result<Start> {
        start.config.check_replicas(process.connect(&start.config)?)?;
        let Some(output) = self.keep.folder().filter(|_| self.keep.resume.is_none()) else {
            return Ok(start);
        };
        let own = self.owns_output()?;
        let restarted = process.any_restarted(own)?;
        if process.is_first() && restarted != own {
            start = self.start(restarted)?;
        }
        let own = start.checkpoint();
        let agreed = process.common_checkpoint(own.clone())?;
        if agreed != own {
            start = match agreed {
                None => self.new_start(restarted)?,
                Some(name) => {
                    let not_visible = || {
                        let output = output.display();
                        format!("rank 0 resumes from {name}; all processes must see {output}")
                    };
                    self.resumed_start(
                        output.clone(),
                        Resume::checkpoint(output, &name).with_context(not_visible)?,
                    )?
                }
            };
        }
        start.config.check_replicas(process.connect(&start.config)?)?;
        Ok(start)
    }

    fn resumed_start(&self, run: PathBuf, resume: Resume) -> anyhow::Result<Start> {
        let (config, changes) = self.resumed_config(&resume)?;
        Ok(Start { config, folder: RunFolder::resumed(run), resume: Some(resume), changes })
    }

    fn new_start(&self, restarted: bool) -> anyhow::Result<Start> {
        let mut resume = self.keep.resume_from.as_deref().map(Resume::read).transpose()?;
        // The outputs of the run that wrote the file.
        resume.iter_mut().for_each(|resume| resume.config.outputs.forget_outside());
        let (config, changes) = match &resume {
            None => (self.config()?, Vec::new()),
            Some(resume) => self.resumed_config(resume)?,
        };
        let folder = match (self.keep.folder(), self.keep.fast_dev_run) {
            (Some(path), _) => RunFolder::new(path),
            (None, Some(_)) => RunFolder::temporary(),
            (None, None) => RunFolder::numbered(&config),
        };
        Ok(Start { config, folder: folder.restarted(restarted), resume, changes })
    }

    /// The run to resume: the one of `--resume` or `--output`, or the newest.
    fn resumed_run(&self, restarted: bool) -> anyhow::Result<Option<(PathBuf, Resume)>> {
        let run = match &self.keep.resume {
            None => return self.restarted_run(restarted),
            Some(Some(run)) => match self.keep.folder().filter(|output| *output != run) {
                Some(_) => {
                    return Err(usage(
                        "a resumed run stays in its folder; leave --output out, or let it name a picture",
                    ));
                }
                None => run.clone(),
            },
            Some(None) => match self.keep.folder() {
                Some(run) => run.clone(),
                None => newest(&[towers_callbacks::CHECKPOINTS])?,
            },
        };
        let resume = Resume::newest(&run).map_err(|error| match is_locked(&run) {
            true => anyhow::anyhow!(
                "a run is writing into {}, and has no checkpoint yet; wait until it has ended",
                run.display()
            ),
            false => error.into(),
        })?;
        Ok(Some((run, resume)))
    }

    /// Whether the contents of `--output` belong to this run: a launcher or the cluster has started it before, or
    /// `--backup-and-restore` is given.
    pub fn owns_output(&self) -> towers_train::Result<bool> {
        Ok(self.keep.backup_and_restore.is_some() || rendezvous::is_restarted(rendezvous::variable)?)
    }

    /// The run to resume after a failure: the one in `--output`, if it has a checkpoint. So a job can restart
    /// with the command line of its first start. Unreadable checkpoints are an error: a new start would
    /// replace them.
    fn restarted_run(&self, restarted: bool) -> anyhow::Result<Option<(PathBuf, Resume)>> {
        if let (Some(_), None) = (self.keep.backup_and_restore, self.keep.folder()) {
            return Err(usage("--backup-and-restore needs the run's folder as --output, not a picture"));
        }
        let Some(run) = self.keep.folder().filter(|_| restarted) else { return Ok(None) };
        let newest = Resume::newest_if_any(run).map_err(|error| match error {
            towers_train::Error::Config(towers_config::Error::Run { path, reason }) => {
                towers_train::Error::run(path, reason.and("; repair them, or move them away to start again"))
            }
            other => other,
        })?;
        Ok(newest.map(|resume| (run.clone(), resume)))
    }

    /// Refuses flags and a recipe that would change the results of a resumed run. The path of its data may
    /// change if they are compared with a `fingerprint`.
    ///
    /// Options that differ from the run's own recipe were given by flags. A resume may leave these flags out.
    pub fn check_resumed(&self, saved: &Config, fingerprint: bool) -> anyhow::Result<()> {
        if self.quick && self.recipe.is_none() && saved.recipe != "quick" {
            return Err(usage(format!(
                "--quick is for runs of the recipe quick, but this run is of {}; leave it out, or name another run by --resume DIR",
                saved.recipe
            )));
        }
        let mut wanted = saved.clone();
        if let Some(recipe) = &self.recipe {
            let named = find_recipe(recipe)?;
            if named.recipe != saved.recipe {
                let values = [saved.recipe.clone(), named.recipe];
                return Err(refuse("--recipe", &values, "this command line", "it"));
            }
            wanted.training = named.training;
            for key in &saved.changed {
                wanted.set(key, &saved.get(key))?;
            }
        }
        self.apply(&mut wanted, false)?;
        // The curve of the run so far, with its number of epochs.
        let kept = saved.training.schedule.clone().over(saved.training.epochs);
        let fixed = |differs: &Difference| match differs.key.as_str() {
            key if fingerprint && DATA_SOURCE.contains(&key) => false,
            "schedule" if wanted.training.schedule == kept => false,
            _ => differs.is_training(),
        };
        let Some(differs) = differences(saved, &wanted).into_iter().find(fixed) else { return Ok(()) };
        let by_flags = {
            let mut flagged = saved.clone();
            self.apply(&mut flagged, false)?;
            differences(saved, &flagged).iter().any(|other| other.key == differs.key)
        };
        Err(match &self.recipe {
            Some(file) if !by_flags => {
                refuse(&format!("`{}`", differs.key), &differs.texts(), file, "--recipe")
            }
            _ => refuse(&self.option(&differs.key), &differs.texts(), "this command line", "it"),
        })
    }

    /// The flags for an option.
    fn option(&self, key: &str) -> String {
        match key {
            "lr_scaling" => "--lr-scaling or --warmup-epochs".to_owned(),
            "optimizer" => "--optimizer or --momentum".to_owned(),
            "schedule" => "--schedule, --power or --decay".to_owned(),
            key if key.starts_with("augmentation.") && self.no_augmentation => "--no-augmentation".to_owned(),
            key => flag_of(key),
        }
    }

    /// Options of the recipe's file that a resumed run ignores, as messages: only flags change a resumed run.
    pub fn ignored_recipe_options(&self, config: &Config) -> anyhow::Result<Vec<String>> {
        let Some(file) = self.recipe.as_deref().filter(|recipe| Path::new(recipe).is_file()) else {
            return Ok(Vec::new());
        };
        let is_ignored = |differs: &Difference| {
            !differs.is_training() && !differs.new.is_null() && !config.changed.contains(&differs.key)
        };
        let message = |differs: Difference| {
            let ([old, new], key) = (differs.texts(), differs.key);
            format!(
                "{file} says {key} = {new}, but the run continues with {old}: only flags change a resumed run"
            )
        };
        let differences = differences(config, &self.config()?).into_iter();
        Ok(differences.filter(is_ignored).map(message).collect())
    }

    /// The configuration of a resumed run: the saved one, with the changes that flags may make. The devices
    /// are those that the run had, as far as they are here, since a run may resume on another machine. Options
    /// that decide bits stay. Also says why the devices are others, unless flags name them.
    fn resumed_config(&self, resume: &Resume) -> anyhow::Result<(Config, Vec<Message>)> {
        self.check_resumed(&resume.config, resume.state.data.is_some())?;
        let mut config = resume.config.clone();
        let (devices, mut changes) = kept_devices(&config.placement.devices)?;
        let is_given = |key: &str| {
            self.options.has(key) || (key == "devices.gpus" && self.options.has("devices.device"))
        };
        changes.retain(|(key, _)| !is_given(key));
        config.placement.devices = devices;
        let before = config.clone();
        self.apply(&mut config, false)?;
        config.note_changes(&before);
        let done = resume.state.epochs_done;
        if self.options.has("epochs") && config.training.epochs < done {
            return Err(usage(format!(
                "--epochs is {}, but epoch {done} of this run is done already",
                config.training.epochs
            )));
        }
        // The global batch size stays the same on any number of replicas: it is in the state, not in the
        // configuration.
        Ok((config, changes.into_iter().map(|(_, change)| change).collect()))
    }
}

/// The error for a changed option of a resumed run; `source` is the origin of the new value.
fn refuse(name: &str, [old, new]: &[String; 2], source: &str, left_out: &str) -> anyhow::Error {
    usage(format!(
        "{name} can't change when a run is resumed: the run has {old}, {source} {new}; leave {left_out} out, or start a new run"
    ))
}
