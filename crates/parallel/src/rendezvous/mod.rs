//! How the processes of one run find each other: the first hands the others a few bytes, such as NCCL's id.
//!
//! Rank 0 listens; the others come, show that they know the secret of the job, and say who they are. When all have come and
//! agree on what they are about to do, each gets the bytes. Otherwise each gets the same sentence that says which rank is
//! wrong. Both within a bounded time. Nothing of this is for the run itself: numbers travel by NCCL or MPI.
//!
//! Who doesn't know the secret learns nothing and can't answer for anybody: both sides draw a nonce, everything that follows is
//! encrypted and authenticated with keys of the secret and both nonces (HMAC-SHA256), and every message has a number.
//!
//! ```
//! use parallel::cluster::discover;
//! use parallel::Agreement;
//! use parallel::rendezvous::{Hello, Settings, exchange};
//!
//! // What `towers launch` sets, for the only process of a run.
//! let variables = [("RANK", "0"), ("WORLD_SIZE", "1"), ("TOWERS_JOB_SECRET", "correct horse battery")];
//! let env = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
//! let place = discover(env)?.expect("there is a rank");
//! let agreement = Agreement::new().with("the batch size", 64);
//! let own = Hello { rank: place.rank, world: place.world, agreement };
//! let id = exchange(&place, &Settings::discover(env)?, &own, Some(b"NCCL's id"))?;
//! assert_eq!(id, b"NCCL's id");
//! # Ok::<(), parallel::Error>(())
//! ```

mod channel;
mod collectives;
mod endpoint;
mod files;
mod folder;
mod group;
mod handshake;
mod message;
mod other_ranks;
mod rank_zero;
mod seal;
mod secret;
mod settings;
mod stream;
mod watchdog;

pub use group::{Hello, ProcessGroup, connect, exchange};
pub use secret::Secret;
pub use settings::Settings;
pub use watchdog::Watchdog;

/// SHA-256.
fn digest(bytes: &[u8]) -> [u8; 32] {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).into()
}
