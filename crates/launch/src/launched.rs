//! The side of a process that a launcher has started by way of MPI's launcher: see `channel.rs`.

use crate::channel::{ADDRESS, ENDED, READY, TOKEN, each_line};
use crate::job::RESTARTS_LEFT;
use crate::signals::Signal;
use crate::status::{INCOMPLETE, INTERRUPTED};
use std::io::{self, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

/// The connection to the launcher.
static LAUNCHER: OnceLock<TcpStream> = OnceLock::new();

/// The launcher is on this machine.
const CONNECTING: Duration = Duration::from_secs(10);

/// Whether the launcher of this process would start all processes again after a failure.
pub fn is_restarted_on_failure() -> bool {
    std::env::var(RESTARTS_LEFT).is_ok_and(|left| left != "0")
}

/// Connects to the launcher, if there is one that listens. Calls `handler` with each signal that it sends, and
/// with SIGTERM if it dies.
pub fn on_orders(mut handler: impl FnMut(Signal) + Send + 'static) {
    let Some(stream) = connect().ok().flatten() else { return };
    let Ok(reader) = stream.try_clone() else { return };
    let listen = move || {
        each_line(reader, |line| {
            if let Some(signal) = Signal::named(line) {
                handler(signal);
            }
            Some(())
        });
        handler(Signal::Terminate);
    };
    if std::thread::Builder::new().name("launcher".into()).spawn(listen).is_ok() {
        let _ = LAUNCHER.set(stream);
    }
}

fn connect() -> io::Result<Option<TcpStream>> {
    let variable = |name| std::env::var(name).map_err(io::Error::other);
    let (Ok(address), Ok(token)) = (variable(ADDRESS), variable(TOKEN)) else { return Ok(None) };
    let Ok(Some(place)) = towers_rendezvous::discover(towers_rendezvous::variable) else { return Ok(None) };
    let address = address.parse().map_err(io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&address, CONNECTING)?;
    let (rank, id) = (place.rank, std::process::id());
    stream.write_all(format!("{token} {rank} {id}\n").as_bytes())?;
    Ok(Some(stream))
}

/// Tells the launcher something. It may be gone.
fn say(line: &str) {
    if let Some(mut launcher) = LAUNCHER.get() {
        let _ = launcher.write_all(format!("{line}\n").as_bytes());
    }
}

/// Tells the launcher that this process has come together with the others.
pub fn ready() {
    say(READY);
}

/// Tells the launcher how this process ends. Returns the exit status for MPI's launcher, which would take an
/// interrupted or incomplete run for a failure, and say so at length.
pub fn farewell(code: ExitCode) -> ExitCode {
    let Some(status) = (0..=u8::MAX).find(|status| ExitCode::from(*status) == code) else { return code };
    say(&format!("{ENDED} {status}"));
    let quiet = LAUNCHER.get().is_some() && [INTERRUPTED, INCOMPLETE].contains(&status);
    if quiet { ExitCode::SUCCESS } else { code }
}
