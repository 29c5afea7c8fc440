use super::Secret;
use super::endpoint::{Endpoint, is_loopback};
use super::folder::{clear_earlier, folder_of};
use crate::cluster::{Environment, Place};
use crate::{Error, Result};
use core::time::Duration;
use std::path::PathBuf;

const FOLDER: &str = "TOWERS_RENDEZVOUS_DIR";

/// Long enough for the slowest machine of a job to boot its container.
const START: Duration = Duration::from_secs(600);

/// The settings of the rendezvous.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Proves that a process belongs to the job. Without a secret, only processes of one machine may connect.
    pub secret: Option<Secret>,
    /// The port at which rank 0 listens. By default the one after the launcher's, at which torchrun runs its
    /// store.
    pub port: Option<u16>,
    /// A shared folder, to use instead of a port: then the address of rank 0 need not be known.
    pub folder: Option<PathBuf>,
    /// The time-out of the rendezvous.
    pub start: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { secret: None, port: None, folder: None, start: START }
    }
}

impl Settings {
    /// Reads `TOWERS_JOB_SECRET` or `TOWERS_JOB_SECRET_FILE`, `TOWERS_RENDEZVOUS_PORT` or
    /// `TOWERS_RENDEZVOUS_DIR`, and `TOWERS_START_TIMEOUT` in seconds.
    ///
    /// # Errors
    /// [`Error::Variable`] if one of them makes no sense.
    pub fn discover(env: impl Fn(&str) -> Option<String>) -> Result<Settings> {
        let env = Environment(&env);
        let start = env.number("TOWERS_START_TIMEOUT", 1..=86_400)?.map_or(START, Duration::from_secs);
        let port = env.number("TOWERS_RENDEZVOUS_PORT", 1..=65_535)?.map(|port| port as u16);
        let folder = env.text(FOLDER).map(PathBuf::from);
        if let Some(folder) = folder.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(Error::variable(FOLDER, &folder.to_string_lossy(), "a folder that is there"));
        }
        Ok(Settings { secret: Secret::discover(&env)?, port, folder, start })
    }

    /// Whether these settings suffice for this process.
    ///
    /// # Errors
    /// [`Error::Variable`] with the missing variable.
    pub fn check(&self, place: &Place) -> Result<()> {
        self.secret_for(&self.endpoint(place)?).map(drop)
    }

    /// The endpoint of rank 0.
    pub(super) fn endpoint(&self, place: &Place) -> Result<Endpoint> {
        match &self.folder {
            Some(shared) => Ok(Endpoint::Folder(folder_of(shared, place))),
            None => self.address(place).map(|(host, port)| Endpoint::Port(host, port)),
        }
    }

    /// Removes the folders of earlier starts of the job.
    pub(super) fn clear_earlier(&self, place: &Place) {
        if let Some(shared) = self.folder.as_ref().filter(|_| place.is_first()) {
            clear_earlier(shared, place);
        }
    }

    /// Where rank 0 listens: its machine, and a port there.
    fn address(&self, place: &Place) -> Result<(String, u16)> {
        let accepted = "the machine of rank 0, so that the processes find each other; or let TOWERS_RENDEZVOUS_DIR name a \
                        folder that all see";
        let (host, port) = place.master.clone().ok_or_else(|| Error::missing("MASTER_ADDR", accepted))?;
        let after = || {
            let accepted = "below 65535, or TOWERS_RENDEZVOUS_PORT set";
            port.checked_add(1).ok_or_else(|| Error::variable("MASTER_PORT", "65535", accepted))
        };
        Ok((host, self.port.map_or_else(after, Ok)?))
    }

    /// The secret for this endpoint. Without one, only endpoints that other users can't reach are safe.
    pub(super) fn secret_for(&self, endpoint: &Endpoint) -> Result<Secret> {
        match (&self.secret, endpoint) {
            (Some(secret), _) => Ok(secret.clone()),
            (None, Endpoint::Folder(_)) => Ok(Secret::none()),
            (None, Endpoint::Port(host, _)) if is_loopback(host) => Ok(Secret::none()),
            (None, Endpoint::Port(host, _)) => Err(Error::missing(
                "TOWERS_JOB_SECRET",
                format!(
                    "the same 16 or more random characters in all processes (or TOWERS_JOB_SECRET_FILE a file with \
                     them), since they meet over the network, at {host}"
                ),
            )),
        }
    }
}
