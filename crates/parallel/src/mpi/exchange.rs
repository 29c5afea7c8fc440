use super::control::{Operation, tag};
use super::wait::Wait;
use super::worker::Worker;
use crate::in_order::add;
use crate::{Agreement, slice_batch};
use ::mpi::Tag;
use ::mpi::request;
use ::mpi::traits::*;

/// MPI counts in 32 bits: longer runs of numbers travel in pieces.
const PIECE: usize = 1 << 26;

impl Worker {
    /// Replaces the first `len` numbers of the buffer by their sum over all parts of all ranks. The buffer
    /// holds `parts` times `len` numbers, or `len` unused ones if `parts` is 0.
    pub(super) fn reduce(&mut self, buffer: &mut [f32], parts: usize, len: usize) {
        let brought: Vec<usize> =
            self.arrive(Operation::Reduce, len, parts).iter().map(|arrival| arrival.parts).collect();
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
        self.exchange(Operation::Reduce, tag::NUMBERS, sent, expected);

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
        self.gather(Operation::Reduce, &mut buffer[..len]);
    }

    /// Completes the buffer, an equal part of which is each rank's.
    pub(super) fn all_gather(&mut self, buffer: &mut [f32]) {
        self.arrive(Operation::Gather, buffer.len(), 1);
        self.gather(Operation::Gather, buffer);
    }

    /// Sends this rank's part of the buffer to all, and receives theirs.
    fn gather(&self, operation: Operation, buffer: &mut [f32]) {
        let len = buffer.len();
        let mut rest = buffer;
        let mut stretches = (0..self.world).map(|rank| {
            let (stretch, behind) =
                core::mem::take(&mut rest).split_at_mut(slice_batch(len, self.world, rank).len());
            rest = behind;
            (rank, stretch)
        });
        let before: Vec<_> = stretches.by_ref().take(self.rank).collect();
        let own: &[f32] = stretches.next().map_or(&[], |(_, own)| own);
        let sent = self.others().map(|other| (other, own));
        self.exchange(operation, tag::SUMS, sent, before.into_iter().chain(stretches));
    }

    /// Replaces the buffer by that of `root`.
    pub(super) fn broadcast(&self, buffer: &mut [f32], root: usize) {
        self.arrive(Operation::Broadcast, buffer.len(), 1);
        if self.rank == root {
            let buffer = &*buffer;
            self.exchange(Operation::Broadcast, tag::NUMBERS, self.others().map(|o| (o, buffer)), []);
        } else {
            self.exchange(Operation::Broadcast, tag::NUMBERS, [], [(root, buffer)]);
        }
    }

    /// Sends and receives runs of numbers, at most [`PIECE`] at once. Each comes with its rank.
    fn exchange<'a>(
        &self,
        operation: Operation,
        tag: Tag,
        sent: impl IntoIterator<Item = (usize, &'a [f32])>,
        expected: impl IntoIterator<Item = (usize, &'a mut [f32])>,
    ) {
        request::multiple_scope(2 * self.world, |scope, requests| {
            let mut peers = Vec::with_capacity(2 * self.world);
            // Sends first. Receiving from another rank of this machine copies at once, while that rank waits
            // for ours.
            for (to, numbers) in sent {
                for piece in numbers.chunks(PIECE) {
                    requests.add(self.process(to).immediate_send_with_tag(scope, piece, tag));
                    peers.push(Some(to));
                }
            }
            for (from, numbers) in expected {
                for piece in numbers.chunks_mut(PIECE) {
                    requests.add(self.process(from).immediate_receive_into_with_tag(scope, piece, tag));
                    peers.push(Some(from));
                }
            }
            let (mut wait, mut done) = (Wait::new(self.timeout), Vec::new());
            while requests.incomplete() > 0 {
                requests.test_some(&mut done);
                done.iter().for_each(|(request, ..)| peers[*request] = None);
                let missing = || {
                    let mut missing: Vec<usize> = peers.iter().flatten().copied().collect();
                    missing.sort_unstable();
                    missing.dedup();
                    missing
                };
                self.pause(operation, &mut wait, !done.is_empty(), missing);
            }
        });
    }

    /// Compares the agreements of all ranks. Rank 0 receives them, and fails for all.
    pub(super) fn agree(&self, agreement: &Agreement) {
        self.arrive(Operation::Agree, 0, 0);
        if self.rank == 0 {
            let mut agreements = vec![Agreement::default(); self.world];
            self.take_from_each(Operation::Agree, tag::AGREEMENT, |other, message| {
                // No entry is longer than this.
                let mut bytes = vec![0_u8; 8192];
                let status = message.matched_receive_into(&mut bytes[..]);
                bytes.truncate(status.count(u8::equivalent_datatype()) as usize);
                let last = bytes.is_empty();
                if !last {
                    agreements[other].add_message(&bytes);
                }
                last
            });
            let difference = self.others().find_map(|other| agreement.difference(other, &agreements[other]));
            if let Some(error) = difference {
                self.fail(error);
            }
        } else {
            let first = self.process(0);
            agreement
                .messages()
                .for_each(|message| first.buffered_send_with_tag(&message[..], tag::AGREEMENT));
            first.buffered_send_with_tag(&[0_u8; 0][..], tag::AGREEMENT);
        }
        self.arrive(Operation::Agree, 0, 0);
    }
}
