//! Sums in an order that the caller gives, which NCCL does not guarantee.

use super::Communicator;
use super::calls::Op;
use crate::driver::Ptr;
use crate::share::share;
use crate::sum::{Nodes, Stack};
use towers_program::{Result, Span, Storage};

const F32: usize = size_of::<f32>();
const CALL: &str = "a group of ncclSend and ncclRecv";

impl Communicator {
    /// Replaces the run `at` of `data` by the sum over all ranks in the order of `nodes`, which are the same on
    /// all but for the storages.
    ///
    /// Each rank receives one share of all nodes, adds it up, and sends the sums to the others. Of one node
    /// each, every number travels twice, as in NCCL's ring. All nodes of a share need room on one device.
    ///
    /// # Errors
    /// As [`all_reduce_sum`](Communicator::all_reduce_sum), and if this rank brings another number of nodes
    /// than `nodes` says.
    pub fn all_reduce_in_order(&mut self, nodes: Nodes<'_>, data: &mut Storage, at: Span) -> Result<()> {
        let run = |node: &Storage| self.cuda.run("all_reduce_in_order", "a node", node.on("collective")?, at);
        let Some(brought) = nodes.brought(self.rank(), data) else {
            let (rank, earlier) = (self.rank(), nodes.earlier.len());
            let message =
                format!("rank {rank} brings {earlier} earlier nodes to a sum, but that is not its order");
            return Err(self.cuda.error(message));
        };
        let runs: Result<Vec<Ptr>> = brought.map(run).collect();
        let to = run(data)?;
        self.sum(nodes, &runs?, to, at.len)?;
        self.cuda.refresh_compute_copies(data.on("collective")?)
    }

    fn sum(&self, Nodes { counts, joins, .. }: Nodes<'_>, nodes: &[Ptr], to: Ptr, len: usize) -> Result<()> {
        let (rank, world, driver) = (self.rank(), self.world(), self.cuda.driver());
        let own = share(len, world, rank);
        let foreign = joins.len() - nodes.len();
        let inbox = self.inbox.at_least(driver, foreign * own.len() * F32)?;
        let sums = self.sums.at_least(driver, Stack::bytes(joins, own.len()))?;

        let (mut ops, mut places, mut next) = (Vec::new(), Vec::new(), inbox);
        for (other, &count) in counts.iter().enumerate() {
            if other == rank {
                places.extend(nodes.iter().map(|node| node.offset(own.start * F32)));
                continue;
            }
            let theirs = share(len, world, other);
            let send =
                |node: &Ptr| Op::Send { run: node.offset(theirs.start * F32), len: theirs.len(), to: other };
            ops.extend(nodes.iter().map(send));
            for _ in 0..count {
                ops.push(Op::Receive { run: next, len: own.len(), from: other });
                places.push(next);
                next = next.offset(own.len() * F32);
            }
        }
        self.exchange(ops)?;

        if !own.is_empty() {
            let mut stack = Stack::at(&self.cuda, sums, own.len());
            places.into_iter().zip(joins).try_for_each(|(node, joins)| stack.push(node, *joins))?;
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
