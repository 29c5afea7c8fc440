//! `towers launch`: several processes of this program on this machine.

mod channel;
mod environment;
mod heard;
mod launched;
mod launcher_death;
mod mpi;
mod process_group;
mod worker;

use crate::args::LaunchArgs;
use crate::error::{BAD_USAGE, INCOMPLETE, INTERRUPTED, at_least_one, usage};
use crate::print::note;
use environment::Launch;
pub use environment::restarts;
use heard::Heard;
pub use launched::{farewell, on_orders, ready};
pub use launcher_death::{follow_launcher, is_launched};
use process_group::{Outcome, ProcessGroup};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use train::rendezvous;

/// An upper limit, above what any machine can use.
const MOST: usize = 1024;

pub fn run(args: LaunchArgs) -> anyhow::Result<ExitCode> {
    refuse_nesting()?;
    refuse_own_name(&args)?;
    let launch = Launch::new(processes(&args)?, &args)?;
    let mut heard = Heard::listen()?;
    let grace = Duration::from_secs(args.grace);
    for restart in 0.. {
        let mut group = ProcessGroup::start(&launch, restart, args.verbose)?;
        let failure = match group.supervise(&mut heard, grace)? {
            Outcome::Done => break,
            Outcome::Interrupted { killed } => {
                // Otherwise the first process says that it has saved, and how to continue.
                if killed {
                    note("the processes were stopped at once; the checkpoints saved before are kept");
                }
                return Ok(ExitCode::from(INTERRUPTED));
            }
            Outcome::Failed(failure) => failure,
        };
        if failure.status != INCOMPLETE {
            failure.report(&launch);
        }
        // Another start would not help after bad usage, and is not wanted after Ctrl-C.
        let unwanted = failure.status == BAD_USAGE || heard.stops();
        if unwanted || restart >= args.max_restarts {
            return Ok(ExitCode::from(failure.status));
        }
        let (next, most) = (restart + 1, args.max_restarts);
        note(format_args!("restarting all processes (restart {next} of {most})"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The number of processes to start.
fn processes(args: &LaunchArgs) -> anyhow::Result<usize> {
    let count = match (&args.processes, &args.gpus) {
        (Some(count), _) => *count,
        (None, Some(gpus)) => gpus.0.len(),
        (None, None) => match train::count_gpus() {
            0 => {
                return Err(usage(
                    "no GPU can be used here, so the number of processes is not clear: give --processes N; \
                     `towers devices` says what is missing",
                ));
            }
            count => count,
        },
    };
    at_least_one("--processes", count)?;
    if count > MOST {
        return Err(usage(format!("--processes is {count}, but must be at most {MOST}")));
    }
    Ok(count)
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
    match rendezvous::discover(rendezvous::variable).map_err(train::Error::from)? {
        Some(place) if place.world > 1 => Err(usage(format!(
            "{} has already started {} processes; leave `launch --` out, or start one launch on one machine",
            place.source, place.world
        ))),
        _ => Ok(()),
    }
}
