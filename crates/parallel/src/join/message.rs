use crate::Agreement;

/// A process, as it introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) rank: usize,
    /// The number of processes that it expects.
    pub(super) world: usize,
    /// What must agree on all processes.
    pub(super) agreement: Agreement,
}

/// How far a process is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Progress {
    /// Its current step.
    pub(super) step: u64,
    /// The number of collectives in this step.
    pub(super) entered: u64,
}

/// A message between processes.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl Message {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let (kind, content): (u8, Vec<u8>) = match self {
            Message::Hello(Hello { rank, world, agreement }) => {
                let ranks = [*rank as u64, *world as u64].map(u64::to_le_bytes);
                (b'h', [ranks.concat(), agreement.to_bytes()].concat())
            }
            Message::Blob(blob) => (b'b', blob.clone()),
            Message::Failed(sentence) => (b'f', sentence.clone().into_bytes()),
            Message::Beat(Progress { step, entered }) => {
                (b's', [*step, *entered].map(u64::to_le_bytes).concat())
            }
            Message::Done => (b'd', Vec::new()),
        };
        [vec![kind], content].concat()
    }

    /// `None` if it is no message of this version.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Message> {
        let (kind, content) = bytes.split_first()?;
        let number = |at: usize| Some(u64::from_le_bytes(content.get(at..at + 8)?.try_into().ok()?));
        Some(match kind {
            b'h' => Message::Hello(Hello {
                rank: number(0)?.try_into().ok()?,
                world: number(8)?.try_into().ok()?,
                agreement: Agreement::from_bytes(content.get(16..)?)?,
            }),
            b'b' => Message::Blob(content.to_vec()),
            b'f' => Message::Failed(String::from_utf8_lossy(content).into_owned()),
            b's' if content.len() == 16 => Message::Beat(Progress { step: number(0)?, entered: number(8)? }),
            b'd' if content.is_empty() => Message::Done,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_survive_the_journey() {
        let hello =
            Hello { rank: 3, world: 1 << 40, agreement: Agreement::new().with("a", "b\nc").with("", "") };
        for message in [
            Message::Hello(hello),
            Message::Blob(vec![0, 255]),
            Message::Failed("rank 1: \u{e9}".into()),
            Message::Beat(Progress { step: u64::MAX, entered: 3 }),
            Message::Done,
        ] {
            assert_eq!(Message::from_bytes(&message.to_bytes()), Some(message));
        }
    }

    proptest! {
        #[test]
        fn what_reads_as_a_message_is_one(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            // Text that is not UTF-8 is shown with replacements.
            let text = |message: &Message| matches!(message, Message::Failed(_) | Message::Hello(_));
            let message = Message::from_bytes(&bytes).filter(|message| !text(message));
            if let Some(message) = message {
                prop_assert_eq!(message.to_bytes(), bytes);
            }
        }
    }
}
