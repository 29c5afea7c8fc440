use super::Secret;
use super::listener::{Endpoint, is_loopback};
use crate::cluster::{Environment, Place};
use crate::{Error, Result};
use core::time::Duration;

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
    /// The time-out of the rendezvous.
    pub start: Duration,
    /// Is told at once what keeps this process from the others, while it tries again until the time-out.
    pub tell: fn(&str),
}

impl Default for Settings {
    fn default() -> Self {
        Settings { secret: None, port: None, start: START, tell: |_| () }
    }
}

impl Settings {
    /// Reads `TOWERS_JOB_SECRET` or `TOWERS_JOB_SECRET_FILE`, `TOWERS_RENDEZVOUS_PORT`, and
    /// `TOWERS_START_TIMEOUT` in seconds.
    ///
    /// # Errors
    /// [`Error::Variable`] if one of them makes no sense.
    pub fn discover(env: impl Fn(&str) -> Option<String>) -> Result<Settings> {
        let env = Environment(&env);
        let start = env.number("TOWERS_START_TIMEOUT", 1..=86_400)?.map_or(START, Duration::from_secs);
        let port = env.number("TOWERS_RENDEZVOUS_PORT", 1..=65_535)?.map(|port| port as u16);
        Ok(Settings { secret: Secret::discover(&env)?, port, start, ..Settings::default() })
    }

    /// Whether these settings suffice for this process.
    ///
    /// # Errors
    /// [`Error::Variable`] with the missing variable.
    pub fn check(&self, place: &Place) -> Result<()> {
        self.secret_for(&self.endpoint(place)?).map(drop)
    }

    /// Where rank 0 listens: its machine, and a port there.
    pub(super) fn endpoint(&self, place: &Place) -> Result<Endpoint> {
        let accepted = "the machine of rank 0, so that the processes find each other";
        let (host, port) = place.master.clone().ok_or_else(|| Error::missing("MASTER_ADDR", accepted))?;
        let after = || {
            let accepted = "below 65535, or TOWERS_RENDEZVOUS_PORT set";
            port.checked_add(1).ok_or_else(|| Error::variable("MASTER_PORT", "65535", accepted))
        };
        Ok(Endpoint { host, port: self.port.map_or_else(after, Ok)? })
    }

    /// The secret for this endpoint. Without one, only endpoints that other machines can't reach are safe.
    pub(super) fn secret_for(&self, Endpoint { host, .. }: &Endpoint) -> Result<Secret> {
        match &self.secret {
            Some(secret) => Ok(secret.clone()),
            None if is_loopback(host) => Ok(Secret::none()),
            None => Err(Error::missing(
                "TOWERS_JOB_SECRET",
                format!(
                    "the same 16 or more random characters in all processes (or TOWERS_JOB_SECRET_FILE a file with \
                     them), since they meet over the network, at {host}"
                ),
            )),
        }
    }
}
