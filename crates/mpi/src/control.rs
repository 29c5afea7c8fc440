use serde::{Deserialize, Serialize};

/// The kinds of messages. Messages of one kind from one rank to another keep their order.
pub(crate) mod tag {
    use crate::communicator::Tag;

    /// "I have come to this operation": an [`Arrival`](super::Arrival).
    pub(crate) const ARRIVAL: Tag = 1;
    /// Numbers of an operation.
    pub(crate) const NUMBERS: Tag = 2;
    /// Sums of an all-reduce, or parts of an all-gather.
    pub(crate) const SUMS: Tag = 3;
    /// A [`Note`](super::Note).
    pub(crate) const NOTE: Tag = 4;
}

/// The operations that ranks do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Reduce,
    Broadcast,
    Gather,
    Barrier,
    Finish,
    Begin,
    Regroup,
}

/// The operations in sentences.
const NAMES: [&str; 7] = [
    "an all-reduce",
    "a broadcast",
    "an all-gather",
    "a barrier",
    "the end of the run",
    "the start of the run",
    "the meeting after a loss",
];

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

fn named(operation: u64) -> &'static str {
    NAMES.get(operation as usize).copied().unwrap_or("another version's operation")
}

/// A rank has come to an operation, with so many parts of so many numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrival {
    operation: u64,
    pub(crate) len: usize,
    pub(crate) parts: usize,
}

impl Arrival {
    pub(crate) fn new(operation: Operation, len: usize, parts: usize) -> Self {
        Arrival { operation: operation as u64, len, parts }
    }

    pub(crate) fn to_bytes(self) -> [u8; 24] {
        let words = [self.operation, self.len as u64, self.parts as u64].map(u64::to_le_bytes);
        let mut bytes = [0; 24];
        bytes.as_chunks_mut().0.copy_from_slice(&words);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let mut words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        let [operation, len, parts] = [(); 3].map(|()| words.next().unwrap_or(u64::MAX));
        Arrival { operation, len: len as usize, parts: parts as usize }
    }

    /// Why rank `rank` with the arrival `self` and rank `other` with `theirs` can't work together.
    pub(crate) fn mismatch(
        self,
        rank: usize,
        other: usize,
        theirs: Arrival,
    ) -> Option<towers_parallel::Error> {
        if self.operation != theirs.operation {
            let (got, expected) = (named(theirs.operation), named(self.operation));
            return Some(towers_parallel::Error::OutOfStep { rank, expected, other, got });
        }
        let differ = self.len != theirs.len;
        differ.then_some(towers_parallel::Error::Mismatch {
            rank,
            got: self.len,
            other,
            expected: theirs.len,
        })
    }
}

/// A message outside of operations, sent as JSON.
#[derive(Serialize, Deserialize)]
pub(crate) enum Note {
    /// The run is over, for this reason.
    Abort(String),
    /// "Are you waiting too?"
    Ask,
    /// "I am waiting too, for these ranks."
    Waiting(Vec<usize>),
    /// "I have heard that the run is over."
    Heard,
}

/// Longer reasons and lists of ranks are cut: a note must fit MPI's eager messages.
const LONGEST: usize = 1000;
const MOST_RANKS: usize = 200;

impl Note {
    pub(crate) fn abort(reason: &str) -> Note {
        Note::Abort(reason.chars().take(LONGEST).collect())
    }

    pub(crate) fn waiting(mut missing: Vec<usize>) -> Note {
        missing.truncate(MOST_RANKS);
        Note::Waiting(missing)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Note {
        serde_json::from_slice(bytes).unwrap_or(Note::Heard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_survive_the_journey() {
        let arrival = Arrival::new(Operation::Reduce, 7, 2);
        assert_eq!(Arrival::from_bytes(&arrival.to_bytes()), arrival);
    }

    #[test]
    fn a_rank_at_another_operation_is_named() {
        let own = Arrival::new(Operation::Reduce, 7, 1);
        let sentence = |theirs| own.mismatch(0, 2, theirs).unwrap().to_string();
        assert!(own.mismatch(0, 2, Arrival::new(Operation::Reduce, 7, 3)).is_none());
        assert!(sentence(Arrival::new(Operation::Reduce, 8, 1)).contains("passed 7 numbers"));
        let other = sentence(Arrival::new(Operation::Barrier, 0, 0));
        assert!(other.contains("rank 2 came to a barrier") && other.contains("an all-reduce"), "{other}");
    }
}
