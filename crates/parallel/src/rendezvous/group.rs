use super::channel::{LONGEST, Peer};
use super::message::{Hello, Message};
use super::{Settings, other_ranks, rank_zero};
use crate::cluster::Place;
use crate::{Error, Result};
use std::time::Duration;

/// Connected processes.
pub struct ProcessGroup {
    /// The bytes of rank 0.
    pub blob: Vec<u8>,
    pub(super) own: Hello,
    /// The connected processes: on rank 0 all others by rank, on the others rank 0.
    pub(super) peers: Vec<Peer>,
    /// The time-out of later messages.
    pub(super) start: Duration,
}

/// Connects the processes, and brings `blob` from rank 0 to all others, which pass `None`. The connections stay
/// open, for a [`Watchdog`](super::Watchdog).
///
/// # Errors
/// [`Error::Rendezvous`] on every rank if one does not come in time, or if secrets, numbers of processes or
/// settings differ; on an earlier process if another comes with its rank. [`Error::Variable`] if the settings
/// name no endpoint.
pub fn connect(place: &Place, settings: &Settings, own: &Hello, blob: Option<&[u8]>) -> Result<ProcessGroup> {
    check(own, blob)?;
    let own = own.clone();
    if own.world == 1 {
        let blob = blob.unwrap_or_default().to_vec();
        return Ok(ProcessGroup { blob, own, peers: Vec::new(), start: settings.start });
    }
    let endpoint = settings.endpoint(place)?;
    let secret = settings.secret_for(&endpoint)?.of_start(place);
    let (blob, peers) = match blob {
        Some(blob) => (blob.to_vec(), rank_zero::gather(&endpoint, secret, &own, blob, settings.start)?),
        None => {
            let (blob, first) = other_ranks::join(&endpoint, &secret, &own, settings.start)?;
            (blob, vec![first])
        }
    };
    Ok(ProcessGroup { blob, own, peers, start: settings.start })
}

pub(super) fn check(own: &Hello, blob: Option<&[u8]>) -> Result<()> {
    let Hello { rank, world, .. } = own;
    let said = Message::Hello(own.clone()).to_bytes().len();
    let wrong = match blob {
        _ if rank >= world => format!("rank {rank} of {world} processes can't be"),
        Some(_) if *rank > 0 => format!("rank {rank} has something to hand out, but rank 0 alone may"),
        None if *rank == 0 => "rank 0 has nothing to hand out".to_owned(),
        _ if said > LONGEST => {
            format!("the settings of rank {rank} take {said} bytes, but a message has at most {LONGEST}")
        }
        Some(blob) if blob.len() >= LONGEST => {
            format!("rank 0 would hand out {} bytes, but less than {LONGEST} are allowed", blob.len())
        }
        _ => return Ok(()),
    };
    Err(Error::Rendezvous(wrong))
}
