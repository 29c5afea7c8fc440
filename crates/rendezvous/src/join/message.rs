use crate::Agreement;
use serde::{Deserialize, Serialize};

/// A process, as it introduces itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) rank: usize,
    /// The number of processes that it expects.
    pub(super) world: usize,
    /// What must agree on all processes.
    pub(super) agreement: Agreement,
}

/// How far a process is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Its current step.
    pub(super) step: u64,
    /// The number of collectives in this step.
    pub(super) entered: u64,
}

/// A message between processes, sent as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// To rank 0: the process introduces itself.
    Hello(Hello),
    /// Bytes for rank 0, or from it. From rank 0, when all processes have come: none.
    Blob(Vec<u8>),
    /// A process has failed, or can't take part.
    Failed(String),
    /// A heartbeat.
    Beat(Progress),
    /// Done; no more messages will come.
    Done,
}
