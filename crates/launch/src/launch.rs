use crate::status::INTERRUPTED;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The most processes of a launch: more than any machine can use.
pub const MOST_PROCESSES: usize = 1024;

/// Tells a person a line.
pub(crate) type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// Several processes of one program on this machine.
///
/// Each finds its place in the variables of torchrun: `RANK`, `LOCAL_RANK`, `WORLD_SIZE`, `LOCAL_WORLD_SIZE`,
/// `MASTER_ADDR` and `MASTER_PORT`. [`towers_rendezvous::discover`] reads them.
#[derive(Clone)]
pub struct Launch {
    pub(crate) processes: usize,
    pub(crate) program: Option<PathBuf>,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) restarts: u32,
    pub(crate) port: Option<u16>,
    pub(crate) gpus: Option<Vec<usize>>,
    pub(crate) by_mpi: bool,
    pub(crate) verbose: bool,
    pub(crate) tell: Tell,
    pub(crate) grace: Duration,
}

/// The end of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All processes ended with status 0.
    Done,
    /// A signal ended the processes.
    Interrupted {
        /// Whether some were killed, before they could save their work.
        killed: bool,
    },
    /// A process failed, and no restart was left.
    Failed {
        /// Its exit status, as shells count it: 128 + N after signal N.
        status: u8,
    },
}

impl End {
    /// The exit status for the launcher.
    pub fn status(self) -> u8 {
        match self {
            End::Done => 0,
            End::Interrupted { .. } => INTERRUPTED,
            End::Failed { status } => status,
        }
    }
}

impl Launch {
    /// So many processes of this program, without arguments.
    pub fn new(processes: usize) -> Launch {
        Launch {
            processes,
            program: None,
            arguments: Vec::new(),
            restarts: 0,
            port: None,
            gpus: None,
            by_mpi: false,
            verbose: false,
            tell: Arc::new(|line| _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes())),
            grace: Duration::from_secs(30),
        }
    }

    /// Another program. Unless it calls [`follow_launcher`](crate::follow_launcher), it survives a launcher that is
    /// killed.
    pub fn program(self, program: impl Into<PathBuf>) -> Launch {
        Launch { program: Some(program.into()), ..self }
    }

    /// The arguments of the program.
    pub fn arguments(self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Launch {
        Launch { arguments: arguments.into_iter().map(Into::into).collect(), ..self }
    }

    /// Starts all processes again after one has failed, so often at most. By default 0.
    pub fn restarts(self, most: u32) -> Launch {
        Launch { restarts: most, ..self }
    }

    /// How long the others may take to end after a process has failed, before they are killed. By default 30 s.
    pub fn grace(self, grace: Duration) -> Launch {
        Launch { grace, ..self }
    }

    /// `MASTER_PORT`, the port of rank 0. The next port must be free as well: there the processes meet. By default any
    /// free one.
    pub fn port(self, port: impl Into<Option<u16>>) -> Launch {
        Launch { port: port.into(), ..self }
    }

    /// Shows the processes these GPUs alone, as indices into those that are visible now. Each process takes the one of
    /// its local rank. By default all are visible.
    pub fn gpus(self, gpus: impl Into<Option<Vec<usize>>>) -> Launch {
        Launch { gpus: gpus.into(), ..self }
    }

    /// Whether MPI's launcher starts the processes, which then use MPI and must call [`on_orders`](crate::on_orders),
    /// [`ready`](crate::ready) and [`farewell`](crate::farewell). This program must call
    /// [`follow_launcher`](crate::follow_launcher), since it becomes MPI's launcher.
    pub fn by_mpi(self, by_mpi: bool) -> Launch {
        Launch { by_mpi, ..self }
    }

    /// Shows the output of all processes, and not of rank 0 alone. By default the last lines of the others' standard
    /// error are shown if they fail.
    pub fn verbose(self, verbose: bool) -> Launch {
        Launch { verbose, ..self }
    }

    /// Called with each line for a person: failures, restarts, and the output of ranks above 0. By default it prints
    /// them on standard error.
    pub fn telling(self, tell: impl Fn(&str) + Send + Sync + 'static) -> Launch {
        Launch { tell: Arc::new(tell), ..self }
    }
}
