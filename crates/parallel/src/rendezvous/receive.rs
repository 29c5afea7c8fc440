use std::time::{Duration, Instant};

/// Why nothing came.
#[derive(Debug)]
pub(super) enum ReceiveError {
    /// The time is up.
    Late,
    /// The other side or the network has closed the connection.
    Gone,
    /// The other side says that it has another secret.
    OtherSecret,
    /// The message is not authentic.
    Forged,
}

/// The time until then.
pub(super) fn left(until: Instant) -> Result<Duration, ReceiveError> {
    let left = until.saturating_duration_since(Instant::now());
    // A time-out of zero is refused by the system.
    if left.is_zero() { Err(ReceiveError::Late) } else { Ok(left) }
}
