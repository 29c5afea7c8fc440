//! The environment of the processes of a launch.

use super::channel::Channel;
use super::launcher_death::end_with_launcher;
use super::mpi;
use crate::args::LaunchArgs;
use crate::error::usage;
use anyhow::Context;
use std::env;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use train::rendezvous::Secret;

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
const RESTARTS_LEFT: &str = "TOWERS_RESTARTS_LEFT";
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// Whether a launcher would start all processes again.
pub fn restarts() -> bool {
    env::var(RESTARTS_LEFT).is_ok_and(|left| left != "0")
}

/// The settings of a launch.
pub struct Launch<'a> {
    args: &'a LaunchArgs,
    pub processes: usize,
    /// MPI's launcher, if that starts the processes.
    mpi: Option<mpi::Launcher>,
    /// `CUDA_VISIBLE_DEVICES` for the processes: each takes the GPU of its local rank.
    visible: Option<String>,
    /// The secret of these processes. It is in the environment, which other users can't read, and not on the
    /// command line.
    secret: String,
    id: String,
}

impl<'a> Launch<'a> {
    pub fn new(processes: usize, args: &'a LaunchArgs) -> anyhow::Result<Self> {
        let visible = args.gpus.as_ref().map(|gpus| visible(&gpus.0, env::var(VISIBLE).ok())).transpose()?;
        let draw = || Secret::draw().map_err(train::Error::from);
        let id = draw()?.chars().take(16).collect();
        let by_mpi = processes > 1 && args.gpus.is_none() && mpi::joins(&args.command);
        let mpi = by_mpi.then(|| mpi::launcher(processes)).transpose()?;
        Ok(Launch { args, processes, mpi, visible, secret: draw()?, id })
    }

    /// Whether MPI's launcher starts the processes.
    pub fn is_by_mpi(&self) -> bool {
        self.mpi.is_some()
    }

    /// The number of processes to start here: one if that is MPI's launcher.
    pub fn started(&self) -> usize {
        if self.is_by_mpi() { 1 } else { self.processes }
    }

    /// A channel to the processes, if MPI's launcher starts them.
    pub fn channel(&self) -> anyhow::Result<Option<Channel>> {
        let open = || Channel::open(self.secret.clone()).context("can't listen to the processes");
        self.is_by_mpi().then(open).transpose()
    }

    /// The port of rank 0. The processes meet at the next one.
    pub fn port(&self) -> anyhow::Result<u16> {
        let Some(port) = self.args.master_port else { return two_free_ports() };
        if let Some(next) = port.checked_add(1).filter(|_| self.started() > 1) {
            let taken = || format!("--master-port is {port}, but the next port can't be used for rank 0");
            bind(next).with_context(taken)?;
        }
        Ok(port)
    }

    /// The command of the process `rank`.
    pub fn command(
        &self,
        rank: usize,
        port: u16,
        restart: u32,
        channel: Option<&Channel>,
    ) -> anyhow::Result<Command> {
        let program = env::current_exe().context("can't find this program's own file")?;
        let mut command = match &self.mpi {
            Some(launcher) => {
                let mut command = Command::new(&program);
                command.args(launcher.tolerance);
                command.args(["-n", &self.processes.to_string()]).arg(program);
                mpi::set_options(&mut command);
                command
            }
            None => Command::new(program),
        };
        end_with_launcher(&mut command, self.mpi.as_ref().map(|launcher| &*launcher.file));
        command.args(&self.args.command);
        FOREIGN.iter().for_each(|name| {
            command.env_remove(name);
        });
        command.env("TOWERS_RESTART_COUNT", restart.to_string());
        command.env(RESTARTS_LEFT, self.args.max_restarts.saturating_sub(restart).to_string());
        if let Some(channel) = channel {
            channel.announce(&mut command);
            return Ok(command);
        }
        for (name, value) in [
            ("RANK", rank),
            ("LOCAL_RANK", rank),
            ("WORLD_SIZE", self.processes),
            ("LOCAL_WORLD_SIZE", self.processes),
            ("MASTER_PORT", usize::from(port)),
        ] {
            command.env(name, value.to_string());
        }
        command.env("MASTER_ADDR", Ipv4Addr::LOCALHOST.to_string());
        command.env("TOWERS_JOB_SECRET", &self.secret).env("TOWERS_LAUNCH_ID", &self.id);
        if let Some(visible) = &self.visible {
            command.env(VISIBLE, visible);
        }
        Ok(command)
    }
}

/// How often other programs may take one port of a pair.
const TRIES: usize = 100;

/// A port that is free, and so is the next one.
fn two_free_ports() -> anyhow::Result<u16> {
    for _ in 0..TRIES {
        let next = bind(0).context("no port is free on this machine")?;
        let port = next.local_addr().context("a port has no number")?.port() - 1;
        if bind(port).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("this machine has no two free ports in a row; --master-port names one")
}

fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}

/// The list of GPUs for the processes: `ids` are indices into those that are visible now.
fn visible(ids: &[usize], now: Option<String>) -> anyhow::Result<String> {
    let listed = now.as_ref().map(|now| now.split(',').map(str::trim).collect::<Vec<_>>());
    let name = |id: &usize| match &listed {
        None => Ok(id.to_string()),
        Some(listed) => {
            listed.get(*id).filter(|name| !name.is_empty()).map(ToString::to_string).ok_or_else(|| {
                let now = now.as_deref().unwrap_or_default();
                usage(format!("--gpus names GPU {id}, but {VISIBLE} is `{now}`"))
            })
        }
    };
    Ok(ids.iter().map(name).collect::<anyhow::Result<Vec<_>>>()?.join(","))
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
            assert_eq!(error, format!("--gpus names GPU 1, but CUDA_VISIBLE_DEVICES is `{now}`"));
        }
    }
}
