use crate::communicator::{Lost, Tag};
use crate::control::{Operation, tag};
use crate::worker::Worker;
use std::sync::atomic::Ordering;
use std::time::Instant;
use towers_parallel::{Error, SumTree, slice_batch};

impl Worker {
    /// Replaces the first `len` numbers of the buffer by the sum along the tree. The buffer holds `nodes` times
    /// `len` numbers, or `len` unused ones if this process has no nodes.
    pub(crate) fn reduce(
        &mut self,
        buffer: &mut [f32],
        nodes: usize,
        len: usize,
        tree: &SumTree,
    ) -> Result<(), Lost> {
        let arrivals = self.arrive(Operation::Reduce, len, nodes)?;
        for (rank, arrival) in arrivals.iter().enumerate() {
            let (got, expected) = (arrival.parts, tree.nodes().get(rank).copied().unwrap_or(0));
            if got != expected {
                self.fail(Error::PartialSums { rank, got, expected });
            }
        }
        let (own, each) = (slice_batch(len, self.world, self.rank), len.max(1));
        let mut received = core::mem::take(&mut self.received);
        received.resize((tree.nodes().iter().sum::<usize>() - nodes + 1) * own.len(), 0.0);
        let (sums, others) = received.split_at_mut(own.len());

        let sent = self.others().flat_map(|other| {
            let stretch = slice_batch(len, self.world, other);
            let nodes = buffer.chunks_exact(each).take(nodes);
            nodes.map(move |node| (other, &node[stretch.clone()]))
        });
        let from = self.others().flat_map(|other| core::iter::repeat_n(other, tree.nodes()[other]));
        let expected = from.zip(others.chunks_exact_mut(own.len().max(1)));
        self.exchange(Operation::Reduce, tag::NUMBERS, sent, expected)?;

        if !own.is_empty() {
            let (mut others, mut all) = (others.chunks_exact(own.len()), Vec::new());
            for (rank, count) in tree.nodes().iter().enumerate() {
                match rank == self.rank {
                    true => all.extend(buffer.chunks_exact(len).take(nodes).map(|node| &node[own.clone()])),
                    false => all.extend(others.by_ref().take(*count)),
                }
            }
            tree.add_up(&all, sums);
            buffer[own].copy_from_slice(sums);
        }
        self.received = received;
        self.gather(Operation::Reduce, &mut buffer[..len], |rank| slice_batch(len, self.world, rank).len())
    }

    /// Completes the buffer, an equal part of which is each replica's.
    pub(crate) fn all_gather(&mut self, buffer: &mut [f32]) -> Result<(), Lost> {
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
    pub(crate) fn broadcast(&self, buffer: &mut [f32], root: usize) -> Result<(), Lost> {
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
        let (mut since, sent_so_far) = (Instant::now(), &self.queue.shared.sent);
        let counted =
            |run: &(usize, &[f32])| _ = sent_so_far.fetch_add(run.1.len() as u64, Ordering::Relaxed);
        let sent = sent.into_iter().inspect(counted);
        self.communicator
            .exchange(tag, sent, expected, |news, missing| self.pause(operation, &mut since, news, missing))
    }
}
