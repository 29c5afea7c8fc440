use super::communicator::{Lost, Tag};
use super::control::{Operation, tag};
use super::wait::Wait;
use super::worker::Worker;
use crate::in_order::add;
use crate::{Agreement, slice_batch};

impl Worker {
    /// Replaces the first `len` numbers of the buffer by their sum over all parts of all ranks. The buffer
    /// holds `parts` times `len` numbers, or `len` unused ones if `parts` is 0.
    pub(super) fn reduce(&mut self, buffer: &mut [f32], parts: usize, len: usize) -> Result<(), Lost> {
        let brought: Vec<usize> =
            self.arrive(Operation::Reduce, len, parts)?.iter().map(|arrival| arrival.parts).collect();
        let own = slice_batch(len, self.world, self.rank);
        let mut received = core::mem::take(&mut self.received);
        let foreign = brought.iter().sum::<usize>() - parts;
        received.resize(foreign * own.len(), 0.0);

        let sent = self.others().flat_map(|other| {
            let stretch = slice_batch(len, self.world, other);
            let parts = buffer.chunks_exact(len.max(1)).take(parts);
            parts.map(move |part| (other, &part[stretch.clone()]))
        });
        let from = self.others().flat_map(|other| core::iter::repeat_n(other, brought[other]));
        let expected = from.zip(received.chunks_exact_mut(own.len().max(1)));
        self.exchange(Operation::Reduce, tag::NUMBERS, sent, expected)?;

        let (sums, others) = buffer.split_at_mut(len);
        let sums = &mut sums[own.clone()];
        // In the order of the ranks. The parts before this rank's are added up where they arrived. Exchanging
        // that sum and this rank's first part changes no bit.
        let earlier: usize = brought[..self.rank].iter().sum();
        let (before, behind) = received.split_at_mut(earlier * own.len());
        let size = own.len().max(1);
        let (mut before, mut behind) = (before.chunks_exact_mut(size), behind.chunks_exact(size));
        match (before.next(), parts) {
            (Some(first), parts) => {
                before.for_each(|part| add(first, part));
                if parts == 0 { sums.copy_from_slice(first) } else { add(sums, first) }
            }
            // Not added to zeros: that would change the sign of a zero.
            (None, 0) => match behind.next() {
                Some(first) => sums.copy_from_slice(first),
                // No rank has a part.
                None => sums.fill(0.0),
            },
            (None, _) => {}
        }
        let mine = others.chunks_exact(len.max(1)).map(|part| &part[own.clone()]);
        mine.chain(behind).for_each(|part| add(sums, part));
        self.received = received;
        self.gather(Operation::Reduce, &mut buffer[..len], |rank| slice_batch(len, self.world, rank).len())
    }

    /// Completes the buffer, an equal part of which is each replica's.
    pub(super) fn all_gather(&mut self, buffer: &mut [f32]) -> Result<(), Lost> {
        let all: usize = self.replicas.iter().sum();
        let each = buffer.len() / all.max(1);
        self.arrive(Operation::Gather, buffer.len(), 1)?;
        self.gather(Operation::Gather, buffer, |rank| self.replicas[rank] * each)
    }

    /// Sends this rank's part of the buffer to all, and receives theirs. `part` is the length of a rank's part.
    fn gather(
        &self,
        operation: Operation,
        buffer: &mut [f32],
        part: impl Fn(usize) -> usize,
    ) -> Result<(), Lost> {
        let mut rest = buffer;
        let mut stretches = (0..self.world).map(|rank| {
            let (stretch, behind) = core::mem::take(&mut rest).split_at_mut(part(rank));
            rest = behind;
            (rank, stretch)
        });
        let before: Vec<_> = stretches.by_ref().take(self.rank).collect();
        let own: &[f32] = stretches.next().map_or(&[], |(_, own)| own);
        let sent = self.others().map(|other| (other, own));
        self.exchange(operation, tag::SUMS, sent, before.into_iter().chain(stretches))
    }

    /// Replaces the buffer by that of `root`.
    pub(super) fn broadcast(&self, buffer: &mut [f32], root: usize) -> Result<(), Lost> {
        self.arrive(Operation::Broadcast, buffer.len(), 1)?;
        if self.rank == root {
            let buffer = &*buffer;
            self.exchange(Operation::Broadcast, tag::NUMBERS, self.others().map(|o| (o, buffer)), [])
        } else {
            self.exchange(Operation::Broadcast, tag::NUMBERS, [], [(root, buffer)])
        }
    }

    /// Sends and receives runs of numbers. Each comes with its rank.
    fn exchange<'a>(
        &self,
        operation: Operation,
        tag: Tag,
        sent: impl IntoIterator<Item = (usize, &'a [f32])>,
        expected: impl IntoIterator<Item = (usize, &'a mut [f32])>,
    ) -> Result<(), Lost> {
        let mut wait = Wait::new(self.timeout);
        self.communicator
            .exchange(tag, sent, expected, |news, missing| self.pause(operation, &mut wait, news, missing))
    }

    /// Compares the agreements of all ranks. Rank 0 receives them, and fails for all.
    pub(super) fn agree(&self, agreement: &Agreement) -> Result<(), Lost> {
        self.arrive(Operation::Agree, 0, 0)?;
        if self.rank == 0 {
            let mut agreements = vec![Agreement::default(); self.world];
            self.take_from_each(Operation::Agree, tag::AGREEMENT, |other, message| {
                if !message.is_empty() {
                    agreements[other].add_message(message);
                }
                message.is_empty()
            })?;
            let difference = self.others().find_map(|other| agreement.difference(other, &agreements[other]));
            if let Some(error) = difference {
                self.fail(error);
            }
        } else {
            let send = |message: &[u8]| self.communicator.send(0, tag::AGREEMENT, message);
            agreement.messages().try_for_each(|message| send(&message))?;
            send(&[])?;
        }
        self.arrive(Operation::Agree, 0, 0).map(drop)
    }
}
