//! A launcher's own connections with its processes, where MPI's launcher stands between them: that one may kill
//! instead of passing a signal on, hang, or end with status 0 after a failure.
//!
//! All messages are lines. A process introduces itself by the launcher's token, its rank and its process id.
//! It says when it has come together with the others, and with which status it ends. The launcher sends the
//! names of signals.

use crate::signals::Signal;
use crate::status::INTERRUPTED;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// Where the launcher listens.
pub(super) const ADDRESS: &str = "TOWERS_LAUNCHER_ADDRESS";
/// A secret of the launcher and its processes: other users of the machine can't read it.
pub(super) const TOKEN: &str = "TOWERS_LAUNCHER_TOKEN";
/// The words of a process.
pub(super) const READY: &str = "ready";
pub(super) const ENDED: &str = "ended";

/// The longest line.
const LONGEST: u64 = 256;
/// The longest wait for an introduction.
const INTRODUCTION: Duration = Duration::from_secs(10);

/// The launcher's side.
pub struct Channel {
    address: SocketAddr,
    token: String,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    processes: BTreeMap<usize, Process>,
    /// The first process that ended with a failure, and its status.
    failed: Option<(usize, u8)>,
    /// The signals so far, for processes that come later.
    signals: Vec<Signal>,
    closed: bool,
}

struct Process {
    id: i32,
    out: TcpStream,
    /// Whether it has come together with the others.
    ready: bool,
    /// The status with which it ends.
    status: Option<u8>,
    /// Whether the connection has ended, and so the process.
    gone: bool,
}

impl Channel {
    /// Listens on this machine. `token` is a secret.
    pub fn open(token: String) -> io::Result<Channel> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let channel = Channel { address: listener.local_addr()?, token, shared: Arc::default() };
        let (token, shared) = (channel.token.clone(), Arc::clone(&channel.shared));
        let accept = move || {
            for stream in listener.incoming().flatten() {
                if lock(&shared).closed {
                    return;
                }
                let (token, shared) = (token.clone(), Arc::clone(&shared));
                // Without a thread the connection is dropped: the process has no channel.
                let _ = Builder::new().name("rank".into()).spawn(move || listen(stream, &token, &shared));
            }
        };
        Builder::new().name("channel".into()).spawn(accept)?;
        Ok(channel)
    }

    /// Tells the processes that this command starts how to connect.
    pub fn announce(&self, command: &mut Command) {
        command.env(ADDRESS, self.address.to_string()).env(TOKEN, &self.token);
    }

    /// Passes a signal on to all processes, also to those that connect later.
    pub fn send(&self, signal: Signal) {
        let mut shared = lock(&self.shared);
        shared.signals.push(signal);
        // One that is gone needs no signal.
        shared.processes.values_mut().for_each(|process| _ = order(&mut process.out, signal));
    }

    /// The first process that failed, and its status.
    pub fn failed(&self) -> Option<(usize, u8)> {
        lock(&self.shared).failed
    }

    /// A process that was lost before it had come together with the others, which wait for it.
    pub fn lost_at_start(&self) -> Option<usize> {
        let shared = lock(&self.shared);
        let lost = |process: &Process| process.gone && !process.ready && process.status.is_none();
        shared.processes.iter().find(|(_, process)| lost(process)).map(|(rank, _)| *rank)
    }

    /// Whether so many processes have come, and all have ended or are about to.
    pub fn all_done(&self, count: usize) -> bool {
        let shared = lock(&self.shared);
        let done = |process: &Process| process.gone || process.status.is_some();
        shared.processes.len() == count && shared.processes.values().all(done)
    }

    /// Whether a process runs that has come.
    pub fn is_connected(&self) -> bool {
        lock(&self.shared).processes.values().any(|process| !process.gone)
    }

    /// Whether no process has come.
    pub fn is_unused(&self) -> bool {
        lock(&self.shared).processes.is_empty()
    }

    /// The statuses with which processes have ended; `None` for those that did not say.
    pub fn statuses(&self) -> Vec<Option<u8>> {
        lock(&self.shared).processes.values().map(|process| process.status).collect()
    }

    /// Kills the processes that still run. A connection lasts as long as its process, so the ids are theirs.
    #[cfg(unix)]
    pub fn kill(&self) {
        use nix::sys::signal::{Signal, kill};
        let shared = lock(&self.shared);
        for process in shared.processes.values().filter(|process| !process.gone) {
            let _ = kill(nix::unistd::Pid::from_raw(process.id), Signal::SIGKILL);
        }
    }

    /// MPI is used on Unix only.
    #[cfg(not(unix))]
    pub fn kill(&self) {}
}

impl Drop for Channel {
    fn drop(&mut self) {
        lock(&self.shared).closed = true;
        // The thread that accepts looks at this connection, and ends.
        let _ = TcpStream::connect_timeout(&self.address, INTRODUCTION);
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a signal's name.
fn order(out: &mut TcpStream, signal: Signal) -> io::Result<()> {
    out.write_all(format!("{}\n", signal.name()).as_bytes())
}

/// Calls `hear` with each line, until the connection ends or `hear` returns `None`.
pub(super) fn each_line(stream: impl Read, mut hear: impl FnMut(&str) -> Option<()>) {
    let (mut stream, mut line) = (BufReader::new(stream), String::new());
    loop {
        line.clear();
        let read = stream.by_ref().take(LONGEST).read_line(&mut line);
        if read.is_err() || !line.ends_with('\n') || hear(line.trim_end()).is_none() {
            return;
        }
    }
}

/// Hears one process until it ends.
fn listen(stream: TcpStream, token: &str, shared: &Mutex<Shared>) {
    let mut own = None;
    let introduced = stream.set_read_timeout(Some(INTRODUCTION));
    let Ok((reader, mut writer)) = introduced.and_then(|()| Ok((stream.try_clone()?, stream))) else {
        return;
    };
    each_line(reader, |line| {
        let words: Vec<&str> = line.split(' ').collect();
        let mut shared = lock(shared);
        match (own, words.as_slice()) {
            (None, [said, rank, id]) if *said == token => {
                let rank = rank.parse().ok()?;
                own = Some(rank);
                writer.set_read_timeout(None).ok()?;
                for signal in &shared.signals {
                    order(&mut writer, *signal).ok()?;
                }
                let (id, out) = (id.parse().ok()?, writer.try_clone().ok()?);
                let process = Process { id, out, ready: false, status: None, gone: false };
                shared.processes.insert(rank, process);
            }
            (Some(rank), [READY]) => shared.processes.get_mut(&rank)?.ready = true,
            (Some(rank), [ENDED, status]) => shared.end(rank, status.parse().ok()?)?,
            _ => return None,
        }
        Some(())
    });
    if let Some(rank) = own
        && let Some(process) = lock(shared).processes.get_mut(&rank)
    {
        process.gone = true;
    }
}

impl Shared {
    /// Notes the status with which a process ends.
    fn end(&mut self, rank: usize, status: u8) -> Option<()> {
        self.processes.get_mut(&rank)?.status = Some(status);
        if ![0, INTERRUPTED].contains(&status) {
            self.failed.get_or_insert((rank, status));
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::yield_now;

    /// A process that says this.
    fn come(channel: &Channel, said: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(channel.address).unwrap();
        stream.write_all(said.as_bytes()).unwrap();
        BufReader::new(stream)
    }

    fn wait_until(there: impl Fn() -> bool) {
        while !there() {
            yield_now();
        }
    }

    #[test]
    fn processes_hear_signals_and_say_how_they_end() {
        let channel = Channel::open("secret".into()).unwrap();
        assert!(channel.is_unused());
        let mut first = come(&channel, "secret 0 1\nready\n");
        wait_until(|| channel.statuses().len() == 1);
        channel.send(Signal::User1);
        channel.send(Signal::Terminate);
        let mut second = come(&channel, "secret 1 1\n");
        for stream in [&mut first, &mut second] {
            let mut lines = String::new();
            stream.read_line(&mut lines).unwrap();
            stream.read_line(&mut lines).unwrap();
            assert_eq!(lines, "USR1\nTERM\n");
        }
        assert_eq!((channel.lost_at_start(), channel.all_done(2)), (None, false));
        drop(second);
        wait_until(|| channel.lost_at_start() == Some(1));
        first.get_mut().write_all(b"ended 130\n").unwrap();
        wait_until(|| channel.all_done(2));
        assert_eq!((channel.statuses(), channel.failed()), (vec![Some(130), None], None));
        assert!(channel.is_connected(), "the first one has not ended yet");
    }

    #[test]
    fn the_first_failure_stays_and_strangers_are_not_heard() {
        let channel = Channel::open("secret".into()).unwrap();
        for said in ["", "other 0 1\nended 0\n", "secret 0\n", "secret x 1\n", &"x".repeat(1000)] {
            let mut answer = String::new();
            let mut stream = come(&channel, said);
            stream.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
            // The connection ends, in order or not.
            let _ = stream.read_to_string(&mut answer);
            assert_eq!(answer, "");
        }
        assert!(channel.is_unused());
        for said in ["secret 2 1\nended 1\n", "secret 1 1\nended 2\n"] {
            let ended = come(&channel, said);
            let status = said.trim_end().rsplit(' ').next().unwrap().parse().ok();
            wait_until(|| channel.statuses().contains(&status));
            drop(ended);
        }
        assert_eq!(channel.failed(), Some((2, 1)));
    }
}
