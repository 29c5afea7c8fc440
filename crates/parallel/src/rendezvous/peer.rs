use super::channel::Channel;

/// Another process.
pub(super) struct Peer {
    pub(super) rank: usize,
    pub(super) host: String,
    pub(super) channel: Channel,
}

impl Peer {
    /// The process in a message.
    pub(super) fn name(&self) -> String {
        format!("rank {} ({})", self.rank, self.host)
    }
}
