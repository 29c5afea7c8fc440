//! Messages of connected processes before the run begins.

use super::channel::ReceiveError;
use super::group::{ProcessGroup, check};
use super::message::{Hello, Message};
use super::other_ranks::GRACE;
use crate::system::{Instant, sleep};
use crate::{Agreement, Error, Result};
use std::time::Duration;

/// The other ranks must take a message of rank 0 within this time.
const TAKEN: Duration = Duration::from_secs(5);
/// Between two looks for messages.
const PAUSE: Duration = Duration::from_millis(2);
/// A launcher notices the end of a process within this time.
const MOMENT: Duration = Duration::from_secs(1);

impl ProcessGroup {
    /// Gathers the bytes of every process on rank 0, by rank. The others get nothing.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] on every rank if one is gone or sends nothing in time.
    pub fn gather(&mut self, said: &[u8]) -> Result<Vec<Vec<u8>>> {
        if self.own.rank > 0 {
            return self.say(&Message::Blob(said.to_vec())).map(|()| Vec::new());
        }
        let mut all = vec![said.to_vec(); self.own.world];
        self.hear_all(|rank, message| match message {
            Message::Blob(said) => {
                all[rank] = said;
                None
            }
            _ => Some(other(rank)),
        })?;
        Ok(all)
    }

    /// Tells all processes how many replicas this one has. Returns the number of each process.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] if one is gone or sends nothing in time.
    pub fn replicas(&mut self, own: usize) -> Result<Vec<usize>> {
        let gathered = self.gather(&(own as u64).to_le_bytes())?.concat();
        let first = self.own.rank == 0;
        let all = self.broadcast(first.then_some(&gathered[..]))?;
        let numbers = all.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes) as usize);
        let numbers: Vec<usize> = numbers.collect();
        if numbers.len() != self.own.world || numbers.contains(&0) {
            return Err(Error::Rendezvous("a process has no replica".into()));
        }
        Ok(numbers)
    }

    /// Brings `blob` from rank 0 to all others, which pass `None`.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] if rank 0 is gone or sends nothing in time.
    pub fn broadcast(&mut self, blob: Option<&[u8]>) -> Result<Vec<u8>> {
        check(&self.own, blob)?;
        match blob {
            Some(blob) => {
                self.tell(&Message::Blob(blob.to_vec()));
                Ok(blob.to_vec())
            }
            None => self.hear_first(),
        }
    }

    /// Repeats the check of [`connect`](super::connect) with the settings of the run: all ranks must have the
    /// same `agreement`. `blob` replaces the earlier blob of rank 0.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] on every rank if one is gone, sends nothing in time, or disagrees.
    pub fn agree(&mut self, agreement: Agreement, blob: Option<&[u8]>) -> Result<()> {
        self.own.agreement = agreement;
        check(&self.own, blob)?;
        self.blob = match blob {
            Some(blob) => {
                let own = self.own.agreement.clone();
                self.hear_all(|rank, message| match message {
                    Message::Hello(Hello { agreement, .. }) => {
                        own.difference(rank, &agreement).map(|error| error.to_string())
                    }
                    _ => Some(other(rank)),
                })?;
                self.tell(&Message::Blob(blob.to_vec()));
                blob.to_vec()
            }
            None => {
                self.say(&Message::Hello(self.own.clone()))?;
                self.hear_first()?
            }
        };
        Ok(())
    }

    /// Sends a message to rank 0. If that has ended, it may have sent its reason.
    fn say(&mut self, message: &Message) -> Result<()> {
        let until = Instant::now() + self.start;
        let Some(first) = self.peers.first_mut() else { return Ok(()) };
        match first.channel.sender.send(message, until) {
            Ok(()) => Ok(()),
            Err(_) => self.hear_first().map(drop),
        }
    }

    /// Sends a message to all others. A lost process is noticed at the next receive.
    fn tell(&mut self, message: &Message) {
        let until = Instant::now() + TAKEN;
        self.peers.iter_mut().for_each(|peer| _ = peer.channel.sender.send(message, until));
    }

    /// The bytes from rank 0, or none in a group of one.
    fn hear_first(&mut self) -> Result<Vec<u8>> {
        let until = Instant::now() + self.start + GRACE;
        let Some(first) = self.peers.first_mut() else { return Ok(Vec::new()) };
        let name = first.name();
        Err(Error::Rendezvous(match first.channel.receiver.receive(until) {
            Ok(Message::Blob(blob)) => return Ok(blob),
            Ok(Message::Failed(sentence)) => sentence,
            Ok(_) => other(0),
            Err(silence) => {
                // Rank 0 reports its own end, and its launcher should see that first.
                sleep(MOMENT);
                self.silent(&name, &silence)
            }
        }))
    }

    /// Receives one message from each of the others, in the order in which they come. `wrong` returns the
    /// fault of a message; then all are told.
    fn hear_all(&mut self, mut wrong: impl FnMut(usize, Message) -> Option<String>) -> Result<()> {
        let until = Instant::now() + self.start;
        let mut waiting: Vec<usize> = (0..self.peers.len()).collect();
        while !waiting.is_empty() {
            let late = Instant::now() >= until;
            let (ready, rest): (Vec<_>, Vec<_>) =
                waiting.iter().copied().partition(|at| late || self.peers[*at].channel.is_ready());
            if ready.is_empty() {
                sleep(PAUSE);
            }
            for at in ready {
                let peer = &mut self.peers[at];
                let name = peer.name();
                let sentence = match peer.channel.receiver.receive(until) {
                    Ok(message) => wrong(peer.rank, message),
                    Err(silence) => Some(self.silent(&name, &silence)),
                };
                if let Some(sentence) = sentence {
                    self.tell(&Message::Failed(sentence.clone()));
                    return Err(Error::Rendezvous(sentence));
                }
            }
            waiting = rest;
        }
        Ok(())
    }

    fn silent(&self, name: &str, silence: &ReceiveError) -> String {
        match silence {
            ReceiveError::Late => {
                format!("{name} said nothing within {} seconds of its start", self.start.as_secs_f64())
            }
            ReceiveError::Gone => gone(name),
            ReceiveError::Forged | ReceiveError::OtherSecret => format!("another process posed as {name}"),
        }
    }
}

/// Processes with other options may be at another point of their start.
fn other(rank: usize) -> String {
    format!(
        "rank {rank} says something else than it is asked; start all of them with the same program and options"
    )
}

fn gone(name: &str) -> String {
    format!("{name} ended before all ranks had begun")
}
