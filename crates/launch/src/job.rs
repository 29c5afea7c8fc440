//! The environment of the processes of a launch.

use crate::channel::Channel;
use crate::launch::Launch;
use crate::launcher_death::end_with_launcher;
use crate::{Error, Result, mpi};
use std::env;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use towers_rendezvous::Secret;

/// Variables of another launcher or run, which would contradict.
const FOREIGN: &[&str] = &[
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TF_CONFIG",
    "TOWERS_JOB_SECRET_FILE",
    "TOWERS_RENDEZVOUS_PORT",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
];
/// How often the launcher may start all processes again.
pub(crate) const RESTARTS_LEFT: &str = "TOWERS_RESTARTS_LEFT";
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// The settings that all starts of a launch share.
pub struct Job<'a> {
    pub launch: &'a Launch,
    /// This program's own file.
    own: PathBuf,
    /// MPI's launcher, if that starts the processes.
    mpi: Option<mpi::Launcher>,
    /// `CUDA_VISIBLE_DEVICES` for the processes: each takes the GPU of its local rank.
    visible: Option<String>,
    /// The secret of these processes. It is in the environment, which other users can't read, and not on the
    /// command line.
    secret: String,
    id: String,
}

impl<'a> Job<'a> {
    pub fn new(launch: &'a Launch) -> Result<Self> {
        let visible = launch.gpus.as_ref().map(|gpus| visible(gpus, env::var(VISIBLE).ok())).transpose()?;
        let id = Secret::draw()?.chars().take(16).collect();
        let mpi = launch.by_mpi.then(mpi::launcher).transpose()?;
        let own = env::current_exe().map_err(Error::system("can't find this program's own file"))?;
        Ok(Job { launch, own, mpi, visible, secret: Secret::draw()?, id })
    }

    /// Whether MPI's launcher starts the processes.
    pub fn is_by_mpi(&self) -> bool {
        self.mpi.is_some()
    }

    /// The number of processes to start here: one if that is MPI's launcher.
    pub fn started(&self) -> usize {
        if self.is_by_mpi() { 1 } else { self.launch.processes }
    }

    /// A channel to the processes, if MPI's launcher starts them.
    pub fn channel(&self) -> Result<Option<Channel>> {
        let failed = Error::system("can't listen to the processes");
        let open = || Channel::open(self.secret.clone()).map_err(failed);
        self.is_by_mpi().then(open).transpose()
    }

    /// The port of rank 0. The processes meet at the next one.
    pub fn port(&self) -> Result<u16> {
        let Some(port) = self.launch.port else { return two_free_ports() };
        if let Some(next) = port.checked_add(1).filter(|_| self.started() > 1) {
            bind(next).map_err(|source| Error::Port { port, source })?;
        }
        Ok(port)
    }

    /// The command of the process `rank`.
    pub fn command(&self, rank: usize, port: u16, restart: u32, channel: Option<&Channel>) -> Command {
        let launch = self.launch;
        let program = launch.program.as_ref().unwrap_or(&self.own);
        let mut command = match &self.mpi {
            Some(launcher) => {
                // It becomes MPI's launcher.
                let mut command = Command::new(&self.own);
                command.args(launcher.tolerance);
                command.args(["-n", &launch.processes.to_string()]).arg(program);
                mpi::set_options(&mut command);
                command
            }
            None => Command::new(program),
        };
        end_with_launcher(&mut command, self.mpi.as_ref().map(|launcher| &*launcher.file));
        command.args(&launch.arguments);
        FOREIGN.iter().for_each(|name| {
            command.env_remove(name);
        });
        command.env("TOWERS_RESTART_COUNT", restart.to_string());
        command.env(RESTARTS_LEFT, launch.restarts.saturating_sub(restart).to_string());
        if let Some(visible) = &self.visible {
            command.env(VISIBLE, visible);
        }
        if let Some(channel) = channel {
            channel.announce(&mut command);
            return command;
        }
        for (name, value) in [
            ("RANK", rank),
            ("LOCAL_RANK", rank),
            ("WORLD_SIZE", launch.processes),
            ("LOCAL_WORLD_SIZE", launch.processes),
            ("MASTER_PORT", usize::from(port)),
        ] {
            command.env(name, value.to_string());
        }
        command.env("MASTER_ADDR", Ipv4Addr::LOCALHOST.to_string());
        command.env("TOWERS_JOB_SECRET", &self.secret).env("TOWERS_LAUNCH_ID", &self.id);
        command
    }
}

/// How often other programs may take one port of a pair.
const TRIES: usize = 100;

/// A port that is free, and so is the next one.
fn two_free_ports() -> Result<u16> {
    for _ in 0..TRIES {
        let next = bind(0).map_err(Error::system("no port is free on this machine"))?;
        let port = next.local_addr().map_err(Error::system("a port has no number"))?.port() - 1;
        if bind(port).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::NoPorts)
}

fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}

/// The list of GPUs for the processes: `ids` are indices into those that are visible now.
fn visible(ids: &[usize], now: Option<String>) -> Result<String> {
    let listed = now.as_ref().map(|now| now.split(',').map(str::trim).collect::<Vec<_>>());
    let name = |id: &usize| match &listed {
        None => Ok(id.to_string()),
        Some(listed) => {
            let gone = || Error::Gpu { id: *id, visible: now.clone().unwrap_or_default() };
            listed.get(*id).filter(|name| !name.is_empty()).map(ToString::to_string).ok_or_else(gone)
        }
    };
    Ok(ids.iter().map(name).collect::<Result<Vec<_>>>()?.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ports_of_a_launch_are_free() {
        let port = two_free_ports().unwrap();
        assert!(bind(port).is_ok() && bind(port + 1).is_ok());
    }

    #[test]
    fn gpus_are_chosen_among_the_visible_ones() {
        assert_eq!(visible(&[0, 2], None).unwrap(), "0,2");
        assert_eq!(visible(&[1, 0], Some("4, GPU-8a,7".into())).unwrap(), "GPU-8a,4");
        for now in ["4", ""] {
            let error = visible(&[1], Some(now.into())).unwrap_err().to_string();
            assert_eq!(error, format!("there is no GPU 1: CUDA_VISIBLE_DEVICES is `{now}`"));
        }
    }
}
