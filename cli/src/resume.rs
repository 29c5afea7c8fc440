//! `--resume`: which run goes on, and what may change.

use crate::args::TrainArgs;
use crate::error::usage;
use crate::output::{is_picture, newest_run};
use std::path::PathBuf;
use train::{Config, DeviceOptions, Resume};

/// Whether a launcher has started this job before.
fn is_restarted() -> anyhow::Result<bool> {
    let place = train::cluster::discover_here().map_err(train::Error::from)?;
    Ok(place.is_some_and(|place| place.restart > 0))
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
    /// job goes on by itself; its command line is that of the first start.
    fn restarted_run(&self) -> anyhow::Result<Option<PathBuf>> {
        let output = self.keep.output.as_ref().filter(|output| !is_picture(output));
        if let (Some(_), None) = (self.keep.backup_and_restore, output) {
            return Err(usage(
                "--backup-and-restore needs the run's folder as --output, which a picture is not",
            ));
        }
        let again = if self.goes_on()? { output } else { None };
        Ok(again.filter(|run| Resume::newest(run).is_ok()).cloned())
    }

    /// The configuration of a resumed run: as it was saved, with what may change taken from the flags. The devices are
    /// those of the flags alone: a run may go on elsewhere. What decides about bits stays.
    pub fn resumed_config(&self, resume: &Resume) -> anyhow::Result<Config> {
        self.check_resumed(&resume.config)?;
        let mut config = resume.config.clone();
        let DeviceOptions { replicas, precision, deterministic, no_winograd, .. } = config.devices;
        config.devices =
            DeviceOptions { replicas, precision, deterministic, no_winograd, ..DeviceOptions::default() };
        self.apply(&mut config)?;
        let done = resume.state.epoch;
        if self.epochs.is_some_and(|epochs| epochs < done) {
            return Err(usage(format!(
                "--epochs is {}, but epoch {done} of this run is done already",
                config.epochs
            )));
        }
        // The whole batch stays what it was, on however many towers: that is in the state, not among what was asked for.
        Ok(config)
    }
}
