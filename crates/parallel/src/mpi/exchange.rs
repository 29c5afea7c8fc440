use super::control::{Operation, tag};
use super::endpoint::Endpoint;
use super::wait::Wait;
use crate::{Facts, slice_batch};
use ::mpi::Tag;
use ::mpi::request;
use ::mpi::traits::*;

/// MPI counts in 32 bits: longer runs of numbers travel in pieces.
const PIECE: usize = 1 << 26;

impl Endpoint {
    /// Replaces the first `len` numbers of the board, which holds `parts` times `len`, by their sum over all parts of all ranks.
    pub(super) fn reduce(&mut self, board: &mut Vec<f32>, parts: usize, len: usize) {
        let brought: Vec<usize> =
            self.arrive(Operation::Reduce, len, parts).iter().map(|arrival| arrival.parts).collect();
        let own = slice_batch(len, self.world, self.rank);
        let mut received = core::mem::take(&mut self.received);
        let foreign = brought.iter().sum::<usize>() - parts;
        received.resize(foreign * own.len(), 0.0);

        let sent = self.others().flat_map(|other| {
            let stretch = slice_batch(len, self.world, other);
            let parts = board.chunks_exact(len.max(1));
            parts.map(move |part| (other, &part[stretch.clone()]))
        });
        let from = self.others().flat_map(|other| core::iter::repeat_n(other, brought[other]));
        let expected = from.zip(received.chunks_exact_mut(own.len().max(1)));
        self.exchange(Operation::Reduce, tag::NUMBERS, sent, expected);

        let mut foreign = received.chunks_exact(own.len().max(1));
        let mut mine = board.chunks_exact(len.max(1)).map(|part| &part[own.clone()]);
        self.sums.clear();
        for (rank, parts) in brought.into_iter().enumerate() {
            for _ in 0..parts {
                let part = if rank == self.rank { mine.next() } else { foreign.next() };
                add(&mut self.sums, part.unwrap_or_default());
            }
        }
        // Zeros, where nobody brought a part.
        self.sums.resize(own.len(), 0.0);
        self.received = received;

        board.resize(board.len().max(len), 0.0);
        board[own].copy_from_slice(&self.sums);
        self.gather(Operation::Reduce, &mut board[..len]);
    }

    /// Completes the board, of which each rank has brought an equal part.
    pub(super) fn all_gather(&mut self, board: &mut [f32]) {
        self.arrive(Operation::Gather, board.len(), 1);
        self.sums.clear();
        self.sums.extend_from_slice(&board[slice_batch(board.len(), self.world, self.rank)]);
        self.gather(Operation::Gather, board);
    }

    /// Sends this rank's stretch of the board, which is in `sums`, to all, and puts theirs on the board.
    fn gather(&self, operation: Operation, board: &mut [f32]) {
        let sent = self.others().map(|other| (other, &self.sums[..]));
        let len = board.len();
        let mut rest = board;
        let stretches = (0..self.world).map(|rank| {
            let (stretch, behind) =
                core::mem::take(&mut rest).split_at_mut(slice_batch(len, self.world, rank).len());
            rest = behind;
            (rank, stretch)
        });
        let expected = stretches.filter(|(rank, _)| *rank != self.rank);
        self.exchange(operation, tag::SUMS, sent, expected);
    }

    /// Replaces the board by that of `root`.
    pub(super) fn broadcast(&self, board: &mut [f32], root: usize) {
        self.arrive(Operation::Broadcast, board.len(), 1);
        if self.rank == root {
            let board = &*board;
            self.exchange(Operation::Broadcast, tag::NUMBERS, self.others().map(|o| (o, board)), []);
        } else {
            self.exchange(Operation::Broadcast, tag::NUMBERS, [], [(root, board)]);
        }
    }

    /// Sends and receives runs of numbers, at most [`PIECE`] at once, each to or from the rank beside it.
    fn exchange<'a>(
        &self,
        operation: Operation,
        tag: Tag,
        sent: impl IntoIterator<Item = (usize, &'a [f32])>,
        expected: impl IntoIterator<Item = (usize, &'a mut [f32])>,
    ) {
        request::multiple_scope(2 * self.world, |scope, requests| {
            let mut peers = Vec::with_capacity(2 * self.world);
            for (from, numbers) in expected {
                for piece in numbers.chunks_mut(PIECE) {
                    requests.add(self.process(from).immediate_receive_into_with_tag(scope, piece, tag));
                    peers.push(Some(from));
                }
            }
            for (to, numbers) in sent {
                for piece in numbers.chunks(PIECE) {
                    requests.add(self.process(to).immediate_send_with_tag(scope, piece, tag));
                    peers.push(Some(to));
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

    /// Compares the facts of all ranks: rank 0 hears them, and fails for all.
    pub(super) fn agree(&self, facts: &Facts) {
        self.arrive(Operation::Agree, 0, 0);
        if self.rank == 0 {
            let mut heard = vec![Facts::default(); self.world];
            self.take_from_each(Operation::Agree, tag::FACT, |other, message| {
                // No fact is longer than this.
                let mut bytes = vec![0_u8; 8192];
                let status = message.matched_receive_into(&mut bytes[..]);
                bytes.truncate(status.count(u8::equivalent_datatype()) as usize);
                let last = bytes.is_empty();
                if !last {
                    heard[other].hear(&bytes);
                }
                last
            });
            let difference = self.others().find_map(|other| facts.difference(other, &heard[other]));
            if let Some(error) = difference {
                self.fail(error);
            }
        } else {
            let first = self.process(0);
            facts.messages().for_each(|message| first.buffered_send_with_tag(&message[..], tag::FACT));
            first.buffered_send_with_tag(&[0_u8; 0][..], tag::FACT);
        }
        self.arrive(Operation::Agree, 0, 0);
    }
}

/// Adds a part to the sums; the first one is where they begin.
fn add(sums: &mut Vec<f32>, part: &[f32]) {
    if sums.is_empty() {
        sums.extend_from_slice(part);
    } else {
        sums.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
    }
}
