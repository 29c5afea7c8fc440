//! One process of a launch.

use crate::launch::Tell;
use crate::signals::Signal;
use crate::{Error, Result};
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The number of lines that are kept of each process, to show if it fails.
const KEPT: usize = 50;
/// The longest line; longer ones are split.
const LONGEST: usize = 4096;
/// The longest wait for the output of an ended process: one of its children may still hold the pipe.
const LAST_LINES_WAIT: Duration = Duration::from_secs(1);

/// A running process. Dropping it kills the process.
pub struct Worker {
    pub rank: usize,
    child: Child,
    status: Option<ExitStatus>,
    readers: Vec<JoinHandle<()>>,
    kept: Arc<Mutex<VecDeque<String>>>,
}

/// A request to a running process.
#[derive(Clone, Copy)]
pub enum Request {
    /// To hear a signal.
    Signal(Signal),
    /// To end immediately, with its own processes.
    Kill,
}

impl Worker {
    /// Starts a process. The first one prints its output; the output of the others goes to `verbose`, or nowhere.
    pub fn start(rank: usize, mut command: Command, verbose: Option<&Tell>) -> Result<Worker> {
        command.stdin(Stdio::null());
        if rank > 0 {
            command
                .stdout(if verbose.is_some() { Stdio::piped() } else { Stdio::null() })
                .stderr(Stdio::piped());
        }
        // A new process group: Ctrl-C in a terminal reaches only the launcher, which forwards it once.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let failed = Error::system(format!("the process of rank {rank} can't be started"));
        let child = command.spawn().map_err(failed)?;
        let mut worker = Worker { rank, child, status: None, readers: Vec::new(), kept: Arc::default() };
        if let Some(out) = worker.child.stdout.take() {
            worker.readers.push(worker.read_output(out, verbose)?);
        }
        if let Some(err) = worker.child.stderr.take() {
            worker.readers.push(worker.read_output(err, verbose)?);
        }
        Ok(worker)
    }

    fn read_output(
        &self,
        pipe: impl Read + Send + 'static,
        verbose: Option<&Tell>,
    ) -> Result<JoinHandle<()>> {
        let (rank, kept, tell) = (self.rank, Arc::clone(&self.kept), verbose.cloned());
        let read_output = move || {
            read_lines(pipe, |line| {
                if let Some(tell) = &tell {
                    return tell(&format!("[rank {rank}] {line}"));
                }
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_back(line);
                if kept.len() > KEPT {
                    kept.pop_front();
                }
            });
        };
        let started = std::thread::Builder::new().name(format!("rank-{rank}")).spawn(read_output);
        started.map_err(Error::system("can't start a thread to read a process's output"))
    }

    /// The exit status, if the process has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.status.is_none() {
            let failed = Error::system(format!("rank {} can't be watched", self.rank));
            self.status = self.child.try_wait().map_err(failed)?;
        }
        Ok(self.status)
    }

    /// The last lines of an ended process that were not shown.
    pub fn last_lines(&self) -> Vec<String> {
        self.wait_for_output();
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// Waits until all output of an ended process was read.
    fn wait_for_output(&self) {
        let until = Instant::now() + LAST_LINES_WAIT;
        while self.readers.iter().any(|reader| !reader.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends a request to the process, if it has not ended. Until its end is known, its id can't be reused.
    pub fn request(&mut self, request: Request) {
        if matches!(self.ended(), Ok(None)) {
            // The process may end at this moment, which is fine.
            let _ = send(&mut self.child, request);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.request(Request::Kill);
        if self.status.is_some() {
            return self.wait_for_output();
        }
        // A killed process ends soon; `wait` frees its id.
        let _ = self.child.wait();
    }
}

#[cfg(unix)]
fn send(child: &mut Child, request: Request) -> io::Result<()> {
    use nix::sys::signal::{Signal as System, kill, killpg};
    let id = nix::unistd::Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    match request {
        Request::Signal(signal) => kill(id, format!("SIG{}", signal.name()).parse::<System>()?)?,
        // It is the first of its group.
        Request::Kill => killpg(id, System::SIGKILL)?,
    }
    Ok(())
}

#[cfg(not(unix))]
fn send(child: &mut Child, _: Request) -> io::Result<()> {
    child.kill()
}

/// Calls `tell` with each line, until the end of the pipe.
fn read_lines(pipe: impl Read, mut tell: impl FnMut(String)) {
    let (mut pipe, mut line) = (BufReader::new(pipe), Vec::new());
    loop {
        line.clear();
        let read = pipe.by_ref().take(LONGEST as u64).read_until(b'\n', &mut line);
        if line.is_empty() {
            return;
        }
        tell(String::from_utf8_lossy(&line).trim_end().to_owned());
        if read.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_where_they_end_or_grow_too_long() {
        let text = [b"a\r\n\nb\xff\n".to_vec(), vec![b'x'; LONGEST + 1]].concat();
        let mut lines = Vec::new();
        read_lines(&text[..], |line| lines.push(line));
        assert_eq!(lines[..3], ["a", "", "b\u{fffd}"]);
        assert_eq!(lines[3..].iter().map(String::len).collect::<Vec<_>>(), [LONGEST, 1]);
    }
}
