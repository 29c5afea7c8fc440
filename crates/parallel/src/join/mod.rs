//! How the processes of a run find each other.
//!
//! Rank 0 listens. The other processes connect, prove that they know the job's secret, and introduce
//! themselves. When all have come, each is told so. Otherwise each gets the same sentence with the wrong rank.
//! Both happen within a bounded time. These connections carry no tensors: those travel by NCCL or MPI.
//!
//! A process without the secret can't pose as another. Both sides draw a nonce, and all later messages are
//! numbered and authenticated with keys from the secret and both nonces (HMAC-SHA256). They are not
//! encrypted, as NCCL's and MPI's messages are not: the network must be private.
//!
//! ```
//! use parallel::Agreement;
//! use parallel::cluster::discover;
//! use parallel::join::{Settings, connect};
//!
//! // The variables of `towers launch`, for the only process of a run.
//! let variables = [("RANK", "0"), ("WORLD_SIZE", "1"), ("TOWERS_JOB_SECRET", "correct horse battery")];
//! let env = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
//! let place = discover(env)?.expect("there is a rank");
//! let mut group = connect(&place, &Settings::discover(env)?)?;
//! let id = group.agree(Agreement::new().with("the batch size", 64), b"NCCL's id")?;
//! assert_eq!(id, b"NCCL's id");
//! # Ok::<(), parallel::Error>(())
//! ```

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
pub(crate) use watchdog::{Watchdog, longest_silence};
