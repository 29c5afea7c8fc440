//! `--resume`: which run goes on, and what may change.

use crate::args::TrainArgs;
use crate::error::usage;
use crate::output::{is_picture, newest_run};
use std::path::PathBuf;
use train::{Config, DeviceOptions, Resume};

/// Whether a launcher or the cluster has started this job before.
fn is_restarted() -> anyhow::Result<bool> {
    Ok(train::cluster::is_restarted_here().map_err(train::Error::from)?)
}

impl TrainArgs {
    /// The run to go on with: the one `--resume` names, or `--output`, or the newest.
    pub fn resumed_run(&self) -> anyhow::Result<Option<PathBuf>> {
        match &self.keep.resume {
            None => self.restarted_run(),
            Some(Some(run)) => {
                match self.keep.output.as_ref().filter(|output| !is_picture(output) && *output != run) {
                    Some(_) => Err(usage(
                        "a resumed run stays in its folder; leave --output out, or let it name a picture",
                    )),
                    None => Ok(Some(run.clone())),
                }
            }
            Some(None) => match self.keep.output.as_ref().filter(|output| !is_picture(output)) {
                Some(run) => Ok(Some(run.clone())),
                None => newest_run(train::CHECKPOINTS).map(Some),
            },
        }
    }

    /// Whether what `--output` holds is this run's own: a launcher has started it before, or `--backup-and-restore` says so.
    pub fn goes_on(&self) -> anyhow::Result<bool> {
        Ok(self.keep.backup_and_restore.is_some() || is_restarted()?)
    }

    /// The run that is started anew after a failure: the one in `--output`, if it has come to a checkpoint. So a
    /// job goes on by itself; its command line is that of the first start. Checkpoints that can't be read are an error: to begin
    /// anew would replace them.
    fn restarted_run(&self) -> anyhow::Result<Option<PathBuf>> {
        let output = self.keep.output.as_ref().filter(|output| !is_picture(output));
        if let (Some(_), None) = (self.keep.backup_and_restore, output) {
            return Err(usage(
                "--backup-and-restore needs the run's folder as --output, which a picture is not",
            ));
        }
        let again = if self.goes_on()? { output } else { None };
        let Some(run) = again else { return Ok(None) };
        let newest = Resume::newest_if_any(run).map_err(|error| match error {
            train::Error::Run { path, reason } => {
                let reason = format!("{reason}; mend them, or move them away to begin anew");
                train::Error::Run { path, reason }
            }
            other => other,
        })?;
        Ok(newest.map(|_| run.clone()))
    }

    /// The configuration of a resumed run: as it was saved, with what may change taken from the flags. The devices are
    /// those of the flags alone: a run may go on elsewhere. What decides about bits stays.
    pub fn resumed_config(&self, resume: &Resume) -> anyhow::Result<Config> {
        self.check_resumed(&resume.config)?;
        let mut config = resume.config.clone();
        let towers = config.devices.replicas;
        let DeviceOptions { precision, deterministic, no_winograd, .. } = config.devices;
        config.devices = DeviceOptions {
            replicas: towers,
            precision,
            deterministic,
            no_winograd,
            ..DeviceOptions::default()
        };
        self.apply(&mut config)?;
        let done = resume.state.epoch;
        if self.epochs.is_some_and(|epochs| epochs < done) {
            return Err(usage(format!(
                "--epochs is {}, but epoch {done} of this run is done already",
                config.epochs
            )));
        }
        if config.virtual_replicas.is_none() && config.devices.replicas.max(1) != towers.max(1) {
            // The whole batch stays what it was, on however many towers. That of virtual ones does so anyway.
            config.global_batch_size = Some(resume.state.global_batch);
        }
        Ok(config)
    }
}
