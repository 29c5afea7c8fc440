//! Sums in the order of the ranks, which NCCL does not guarantee.

use super::Communicator;
use super::calls::Op;
use crate::driver::Ptr;
use crate::share::share;
use program::{Result, Span, Storage};

const F32: usize = size_of::<f32>();
const CALL: &str = "a group of ncclSend and ncclRecv";

impl Communicator {
    /// Sets the run `at` of `into` to the sum of that run of all ranks' `parts`: those of rank 0 one after
    /// the other, then those of rank 1, and so on. The bits depend on the parts and their order alone.
    ///
    /// Each rank receives one share of all parts, adds it up, and sends the sums to the others. Every number
    /// travels twice, as in NCCL's ring, but all parts of a share need room on one device. A rank has the
    /// same number of parts each time.
    ///
    /// # Errors
    /// As [`all_reduce_sum`](Communicator::all_reduce_sum), and if a rank has another number of parts than
    /// before.
    pub fn all_reduce_in_order(&mut self, parts: &[Storage], at: Span, into: &mut Storage) -> Result<()> {
        let op = "all_reduce_in_order";
        let run = |what, data: &Storage| self.cuda.run(op, what, data.on("collective")?, at);
        let runs: Result<Vec<Ptr>> = parts.iter().map(|part| run("a part", part)).collect();
        let to = run("the sum", into)?;
        self.sum(&runs?, to, at.len)?;
        self.cuda.refresh_compute_copies(into.on("collective")?)
    }

    /// The same, of one part a rank, in place.
    ///
    /// # Errors
    /// As [`all_reduce_in_order`](Communicator::all_reduce_in_order).
    pub fn all_reduce_sum_in_order(&mut self, data: &mut Storage, at: Span) -> Result<()> {
        let run = self.cuda.run("all_reduce_sum_in_order", "the run", data.on("collective")?, at)?;
        self.sum_of(&vec![1; self.world()], &[run], run, at.len)?;
        self.cuda.refresh_compute_copies(data.on("collective")?)
    }

    fn sum(&mut self, parts: &[Ptr], to: Ptr, len: usize) -> Result<()> {
        let counts = match self.parts.take() {
            Some(counts) => counts,
            None => self.count_parts(parts.len())?,
        };
        let result = match counts[self.rank()] {
            known if known == parts.len() => self.sum_of(&counts, parts, to, len),
            known => {
                let message = format!(
                    "rank {} brings {} parts to a sum, before it was {known}",
                    self.rank(),
                    parts.len()
                );
                Err(self.cuda.error(message))
            }
        };
        self.parts = Some(counts);
        result
    }

    /// Sums `counts[rank]` parts of each rank.
    fn sum_of(&self, counts: &[usize], parts: &[Ptr], to: Ptr, len: usize) -> Result<()> {
        let (rank, world, driver) = (self.rank(), self.world(), self.cuda.driver());
        let own = share(len, world, rank);
        let foreign: usize = counts.iter().sum::<usize>() - parts.len();
        let inbox = self.inbox.at_least(driver, foreign * own.len() * F32)?;
        let sums = self.sums.at_least(driver, own.len() * F32)?;

        let (mut ops, mut places, mut next) = (Vec::new(), Vec::new(), inbox);
        for (other, &count) in counts.iter().enumerate() {
            if other == rank {
                places.extend(parts.iter().map(|part| part.offset(own.start * F32)));
                continue;
            }
            let theirs = share(len, world, other);
            let send =
                |part: &Ptr| Op::Send { run: part.offset(theirs.start * F32), len: theirs.len(), to: other };
            ops.extend(parts.iter().map(send));
            for _ in 0..count {
                ops.push(Op::Receive { run: next, len: own.len(), from: other });
                places.push(next);
                next = next.offset(own.len() * F32);
            }
        }
        self.exchange(ops)?;

        if !own.is_empty() {
            let mut places = places.into_iter();
            match places.next() {
                // SAFETY: a run of a part or the inbox, as large; the sums' memory has room for it.
                Some(first) => unsafe { driver.copy(&**driver, first, sums, own.len() * F32) }?,
                // SAFETY: as above.
                None => unsafe { driver.clear(sums, own.len() * F32) }?,
            }
            places.try_for_each(|part| self.cuda.add_run("all_reduce_in_order", part, sums, own.len()))?;
            // SAFETY: the own share lies in the run of the sum.
            unsafe { driver.copy(&**driver, sums, to.offset(own.start * F32), own.len() * F32) }?;
        }
        let spread = (0..world).filter(|other| *other != rank).flat_map(|other| {
            let theirs = share(len, world, other);
            [
                Op::Send { run: sums, len: own.len(), to: other },
                Op::Receive { run: to.offset(theirs.start * F32), len: theirs.len(), from: other },
            ]
        });
        self.exchange(spread.collect())
    }

    /// Exchanges the numbers of parts of all ranks. The host waits for them, once.
    fn count_parts(&self, own: usize) -> Result<Vec<usize>> {
        let (rank, world, driver) = (self.rank(), self.world(), self.cuda.driver());
        let all = self.sums.at_least(driver, world * F32)?;
        // SAFETY: a number in the scratch memory.
        unsafe { driver.write(&(own as f32).to_le_bytes(), all.offset(rank * F32)) }?;
        let ops = (0..world).filter(|other| *other != rank).flat_map(|other| {
            [
                Op::Send { run: all.offset(rank * F32), len: 1, to: other },
                Op::Receive { run: all.offset(other * F32), len: 1, from: other },
            ]
        });
        self.exchange(ops.collect())?;
        let mut bytes = vec![0; world * F32];
        // SAFETY: so many numbers in the scratch memory.
        unsafe { driver.read(all, &mut bytes) }?;
        let count = |bytes: &[u8]| bytes.try_into().map_or(0, |bytes| f32::from_le_bytes(bytes) as usize);
        Ok(bytes.chunks_exact(F32).map(count).collect())
    }

    /// Sends and receives together. Empty messages are left out, by both sides.
    fn exchange(&self, mut ops: Vec<Op>) -> Result<()> {
        ops.retain(|op| match op {
            Op::AllReduce { len, .. }
            | Op::Broadcast { len, .. }
            | Op::AllGather { len, .. }
            | Op::Send { len, .. }
            | Op::Receive { len, .. } => *len > 0,
        });
        self.run(CALL, &ops)
    }
}
