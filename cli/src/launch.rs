//! `towers launch`: several processes of this program on this machine.

use crate::args::LaunchArgs;
use crate::error::usage;
use crate::print::note;
use anyhow::anyhow;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use towers_launch::{End, Error, Launch};
use towers_train::rendezvous;

pub fn run(args: LaunchArgs) -> anyhow::Result<ExitCode> {
    refuse_nesting()?;
    refuse_own_name(&args)?;
    let (processes, gpus) = (processes(&args)?, args.gpus.map(|gpus| gpus.0));
    let launch = Launch::new(processes)
        .by_mpi(processes > 1 && gpus.is_none() && trains_on_cpus(&args.command))
        .arguments(args.command)
        .gpus(gpus)
        .port(args.master_port)
        .restarts(args.max_restarts)
        .grace(Duration::from_secs(args.grace))
        .verbose(args.verbose)
        .telling(|line| note(line));
    let end = launch.run().map_err(|error| in_flags(error, processes))?;
    // Otherwise the first process says that it has saved, and how to continue.
    if end == (End::Interrupted { killed: true }) {
        note("the processes were stopped at once; the checkpoints saved before are kept");
    }
    Ok(ExitCode::from(end.status()))
}

/// The number of processes to start.
fn processes(args: &LaunchArgs) -> anyhow::Result<usize> {
    match (&args.processes, &args.gpus) {
        (Some(count), _) => Ok(*count),
        (None, Some(gpus)) => Ok(gpus.0.len()),
        (None, None) => match towers_train::count_gpus() {
            0 => Err(usage(
                "no GPU can be used here, so the number of processes is not clear: give --processes N; \
                 `towers devices` says what is missing",
            )),
            count => Ok(count),
        },
    }
}

/// Whether a command trains on CPUs, where only MPI joins processes.
fn trains_on_cpus(command: &[OsString]) -> bool {
    let names_cpu = command.windows(2).any(|words| words[0] == "--device" && words[1] == "cpu")
        || command.iter().any(|word| word == "--device=cpu");
    command.first().is_some_and(|word| word == "train") && (names_cpu || towers_train::count_gpus() == 0)
}

/// An error in the words of the command line.
fn in_flags(error: Error, processes: usize) -> anyhow::Error {
    match error {
        Error::Processes(count) => usage(format!(
            "--processes is {count}, but must be at least 1 and at most {}",
            towers_launch::MOST_PROCESSES
        )),
        Error::Gpu { id, visible } => {
            usage(format!("--gpus names GPU {id}, but CUDA_VISIBLE_DEVICES is `{visible}`"))
        }
        Error::NoMpi => usage(format!(
            "processes on CPUs are joined by MPI, and {error}, or train in one process: towers train --replicas {processes}"
        )),
        Error::Port { port, source } => {
            anyhow!("--master-port is {port}, but the next port can't be used for rank 0: {source}")
        }
        Error::NoPorts => anyhow!("{error}; --master-port names one"),
        _ => error.into(),
    }
}

/// The command must not begin with the name of this program, which `launch` adds itself.
fn refuse_own_name(args: &LaunchArgs) -> anyhow::Result<()> {
    let name = args.command.first().and_then(|word| Path::new(word).file_stem());
    if name.is_none_or(|name| name != "towers") {
        return Ok(());
    }
    Err(usage(
        "launch starts towers by itself; leave the name out: towers launch --processes 2 -- train --quick",
    ))
}

/// Refuses to run under another launcher: each of its processes would start a separate run.
fn refuse_nesting() -> anyhow::Result<()> {
    match rendezvous::discover(rendezvous::variable).map_err(towers_train::Error::from)? {
        Some(place) if place.world > 1 => Err(usage(format!(
            "{} has already started {} processes; leave `launch --` out, or start one launch on one machine",
            place.source, place.world
        ))),
        _ => Ok(()),
    }
}
