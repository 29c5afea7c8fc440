//! How the processes of a job find each other, and watch each other.

mod channel;
mod group;
mod handshake;
mod listener;
mod message;
mod other_ranks;
mod rank_zero;
mod secret;
mod settings;
mod watchdog;

pub use group::{ProcessGroup, connect};
pub use secret::Secret;
pub use settings::Settings;
pub use watchdog::{Watchdog, longest_silence};
