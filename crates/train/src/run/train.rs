//! A run on this process's devices.

use crate::run::fit::Outcome;
use crate::run::prepared_run::{PreparedRun, no_device};
use crate::run::training::Training;
use crate::{Result, open_devices};
use std::mem::take;
use std::sync::Mutex;
use towers_parallel::{Replica, Stage, run_stages};

impl Training<'_> {
    /// Trains.
    ///
    /// # Errors
    /// All reasons for an early end; see [`Error`](crate::Error). Data other than those of the resumed run are
    /// [`OtherData`](crate::Error::OtherData). A training loss that is NaN or infinite is
    /// [`NotFinite`](crate::Error::NotFinite). A network of the caller's may be for other images, or for another number of
    /// classes, than the data.
    pub fn run(mut self) -> Result<Outcome> {
        let network = self.network()?;
        let (config, resume, stop) = (self.config, self.resume, self.stop.clone());
        let opened;
        let devices = match self.devices {
            Some(devices) => devices,
            None => {
                opened = open_devices(&config.placement.devices, &config.training.arithmetic)?;
                &opened[..]
            }
        };
        let (stages, observers) = (config.stages(), take(&mut self.observers));
        let run = PreparedRun::prepare(self, network, devices.len() / stages, devices, observers)?;
        let observers = Mutex::new(Some(observers));
        let patience = config.placement.devices.patience();
        let outcomes = run_stages(devices, stages, patience, |replica: Replica, stage: Stage| {
            run.start(resume, replica, stage, &observers, &stop)?.fit()
        })?;
        outcomes.into_iter().next().ok_or_else(no_device)
    }
}
