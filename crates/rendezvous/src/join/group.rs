use super::channel::{LONGEST, Peer, ReceiveError};
use super::message::{Hello, Message};
use super::other_ranks::GRACE;
use super::{Settings, other_ranks, rank_zero};
use crate::cluster::Place;
use crate::system::{Instant, sleep};
use crate::{Agreement, Error, Result};
use std::time::Duration;

/// The other ranks must take a message of rank 0 within this time.
const TAKEN: Duration = Duration::from_secs(5);
/// Between two looks for messages.
const PAUSE: Duration = Duration::from_millis(2);
/// A launcher notices the end of a process within this time.
const MOMENT: Duration = Duration::from_secs(1);

/// Connected processes.
pub struct ProcessGroup {
    pub(super) own: Hello,
    /// The connected processes: on rank 0 all others by rank, on the others rank 0.
    pub(super) peers: Vec<Peer>,
    /// The time-out of a message.
    start: Duration,
}

/// Connects the processes.
///
/// # Errors
/// [`Error::Meeting`] on every rank if one does not come in time, or if secrets, versions or numbers of
/// processes differ; on an earlier process if another comes with its rank. [`Error::Variable`] if the settings
/// name no endpoint.
pub fn connect(place: &Place, settings: &Settings) -> Result<ProcessGroup> {
    let Place { rank, world, .. } = *place;
    let Settings { start, tell, .. } = *settings;
    let own = Hello { rank, world, agreement: Agreement::new() };
    let peers = if world == 1 {
        Vec::new()
    } else {
        let endpoint = settings.endpoint(place)?;
        let secret = settings.secret_for(&endpoint)?.of_start(place);
        match rank {
            0 => rank_zero::gather(&endpoint, secret, &own, start, tell)?,
            _ => vec![other_ranks::join(&endpoint, &secret, &own, start, tell)?],
        }
    };
    Ok(ProcessGroup { own, peers, start })
}

impl ProcessGroup {
    /// This process's rank.
    pub fn rank(&self) -> usize {
        self.own.rank
    }

    /// Gathers the bytes of every process on rank 0, by rank. The others get nothing.
    ///
    /// # Errors
    /// [`Error::Meeting`] on every rank if one is gone or sends nothing in time.
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
    /// [`Error::Meeting`] if one is gone or sends nothing in time.
    pub fn replicas(&mut self, own: usize) -> Result<Vec<usize>> {
        let gathered = self.gather(&(own as u64).to_le_bytes())?.concat();
        let all = self.broadcast(&gathered)?;
        let numbers = all.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes) as usize);
        let numbers: Vec<usize> = numbers.collect();
        if numbers.len() != self.own.world || numbers.contains(&0) {
            return Err(Error::Meeting("a process has no replica".into()));
        }
        Ok(numbers)
    }

    /// Brings the bytes of rank 0 to all others.
    ///
    /// # Errors
    /// [`Error::Meeting`] if rank 0 is gone or sends nothing in time.
    pub fn broadcast(&mut self, said: &[u8]) -> Result<Vec<u8>> {
        if self.own.rank > 0 {
            return self.hear_first();
        }
        let message = self.fitting(Message::Blob(said.to_vec()))?;
        self.tell(&message);
        Ok(said.to_vec())
    }

    /// Checks that all processes have the same agreement, and [broadcasts](ProcessGroup::broadcast) `said`.
    ///
    /// # Errors
    /// [`Error::Meeting`] on every rank if one is gone, sends nothing in time, or disagrees.
    pub fn agree(&mut self, agreement: Agreement, said: &[u8]) -> Result<Vec<u8>> {
        let own = Hello { agreement, ..self.own.clone() };
        if own.rank > 0 {
            let hello = self.fitting(Message::Hello(own))?;
            self.say(&hello)?;
        } else {
            self.hear_all(|rank, message| match message {
                Message::Hello(Hello { agreement, .. }) => {
                    own.agreement.difference(rank, &agreement).map(|error| error.to_string())
                }
                _ => Some(other(rank)),
            })?;
        }
        self.broadcast(said)
    }

    /// The message, unless it is too long.
    fn fitting(&self, message: Message) -> Result<Message> {
        let (rank, bytes) = (self.own.rank, serde_json::to_vec(&message).map_or(0, |bytes| bytes.len()));
        if bytes <= LONGEST {
            return Ok(message);
        }
        let sentence = format!("rank {rank} would send {bytes} bytes, but a message has at most {LONGEST}");
        Err(Error::Meeting(sentence))
    }

    /// Sends a message to rank 0. If that has ended, it may have sent its reason.
    fn say(&mut self, message: &Message) -> Result<()> {
        let until = Instant::now() + self.start;
        match self.peers[0].channel.sender.send(message, until) {
            Ok(()) => Ok(()),
            Err(_) => self.hear_first().map(drop),
        }
    }

    /// Sends a message to all others. A lost process is noticed at the next receive.
    fn tell(&mut self, message: &Message) {
        let until = Instant::now() + TAKEN;
        self.peers.iter_mut().for_each(|peer| _ = peer.channel.sender.send(message, until));
    }

    /// The bytes from rank 0.
    fn hear_first(&mut self) -> Result<Vec<u8>> {
        let until = Instant::now() + self.start + GRACE;
        let first = &mut self.peers[0];
        let name = first.name();
        Err(Error::Meeting(match first.channel.receiver.receive(until) {
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
                    return Err(Error::Meeting(sentence));
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
            ReceiveError::Gone => format!("{name} ended before all ranks had begun"),
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
