//! The results of a replica's passes, added up as they come.

use core::mem::swap;
use towers_parallel::{Nodes, Shards, SumTree, add_run};
use towers_program::{Device, Result, Span, Storage};

/// A stack of partial sums of `grads` over this replica's shards, along the tree over all shards.
///
/// The pass over the last shard leaves its result in the network's own `grads`. That of every other pass has
/// a fixed place on the stack, above the partial sums that are there by then. So graphs can hold the passes
/// and the additions.
pub(crate) struct PartialSums {
    tree: SumTree,
    /// For each shard of this replica: how many partial sums lie below its result.
    below: Vec<usize>,
    /// And how often the two on top are joined after its pass.
    joins: Vec<usize>,
    stack: Vec<Storage>,
    /// In a pipeline: results of micro-batches between their forward and their backward pass.
    begun: Vec<Storage>,
}

impl PartialSums {
    /// Allocates all memory, for results of `len` numbers. A stage of a pipeline begins `in_flight` passes
    /// before the first ends.
    pub(crate) fn new(device: &Device, shards: &Shards, len: usize, in_flight: usize) -> Result<Self> {
        let tree = SumTree::new(shards.counts());
        let joins = tree.joins_of(shards.rank());
        let heights = joins.iter().scan(0, |height, joins| {
            let below = *height;
            *height = below + 1 - joins;
            Some(below)
        });
        let below: Vec<usize> = heights.collect();
        let before_last = &below[..below.len().saturating_sub(1)];
        let most = before_last.iter().map(|below| below + 1).max().unwrap_or(0);
        let begun = if in_flight > 1 { in_flight.min(before_last.len()) } else { 0 };
        let arenas = |count| (0..count).map(|_| device.alloc(len)).collect::<Result<_>>();
        Ok(PartialSums { tree, below, joins, stack: arenas(most)?, begun: arenas(begun)? })
    }

    /// Exchanges `grads` with the place for the result of the shard `own`: before its pass, or a part of one,
    /// and after it.
    pub(crate) fn swap(&mut self, own: usize, grads: &mut Storage) {
        if own + 1 == self.joins.len() {
            return;
        }
        match self.begun.len() {
            0 => swap(&mut self.stack[self.below[own]], grads),
            lanes => swap(&mut self.begun[own % lanes], grads),
        }
    }

    /// After the pass over the shard `own`, while its result is in `grads`: adds up the run `at` of those
    /// partial sums that make one node of the tree.
    pub(crate) fn end(&mut self, device: &Device, own: usize, grads: &mut Storage, at: Span) -> Result<()> {
        if own + 1 == self.joins.len() {
            return self.end_last(device, grads, at);
        }
        let (below, joins) = (self.below[own], self.joins[own]);
        if joins > 0 {
            add_run(device, grads, &mut self.stack[below - 1], at)?;
        } else if !self.begun.is_empty() {
            swap(&mut self.stack[below], grads);
        }
        for top in (below + 1 - joins..below).rev() {
            let (lower, upper) = self.stack.split_at_mut(top);
            add_run(device, &upper[0], &mut lower[top - 1], at)?;
        }
        Ok(())
    }

    /// The same for the last shard.
    pub(crate) fn end_last(&self, device: &Device, grads: &mut Storage, at: Span) -> Result<()> {
        self.siblings().iter().rev().try_for_each(|sibling| add_run(device, sibling, grads, at))
    }

    /// The partial sums that make one node with the result of the last shard.
    pub(crate) fn siblings(&self) -> &[Storage] {
        self.before_last().1
    }

    /// What this replica brings to the sum over all replicas, with that node in `grads`.
    pub(crate) fn nodes(&self) -> Nodes<'_> {
        Nodes { tree: &self.tree, earlier: self.before_last().0 }
    }

    /// The partial sums before the last shard's: those that stay, and its siblings.
    fn before_last(&self) -> (&[Storage], &[Storage]) {
        let (below, joins) = (self.below.last().unwrap_or(&0), self.joins.last().unwrap_or(&0));
        self.stack[..*below].split_at(below - joins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use towers_parallel::Pass::{Backward, Forward};
    use towers_parallel::{one_forward_one_backward, run_replicas};

    /// Of such different sizes that another order gives other bits.
    fn value(shard: usize) -> f32 {
        [1.0e-7, 1.0, 3.0e7, -2.9e7, 0.1][shard % 5] / (shard + 1) as f32
    }

    /// The sum by the definition of the tree.
    fn sum(from: usize, to: usize) -> f32 {
        match to - from {
            1 => value(from),
            len => {
                let middle = from + len.next_power_of_two() / 2;
                sum(from, middle) + sum(middle, to)
            }
        }
    }

    /// On any number of replicas, as pipelines of several stages or not: the same sum, twice. The number after
    /// it stays that of no pass, and few storages are enough.
    #[test]
    fn passes_add_up_as_they_come() {
        for (total, world) in (1..=17).flat_map(|total| (1..=total.min(5)).map(move |world| (total, world))) {
            for stages in 1..=3 {
                let sums = run_replicas(&vec![towers_tensor_cpu::device(1); world], |mut replica| {
                    let (device, shards) =
                        (replica.device.clone(), Shards::new(total, world, replica.rank()));
                    let (own, count) = (shards.own(), shards.own().len());
                    let in_flight = towers_parallel::in_flight(stages, 0, count);
                    let mut sums = PartialSums::new(&device, &shards, 2, in_flight)?;
                    assert!(sums.stack.len() <= 2 * (count + 1).ilog2() as usize, "{count} shards");
                    assert!(sums.begun.len() <= if stages > 1 { stages } else { 0 });
                    let (mut grads, mut seen) = (device.alloc(2)?, Vec::new());
                    for _ in 0..2 {
                        for pass in one_forward_one_backward(stages, 0, count) {
                            let (Forward(number) | Backward(number)) = pass;
                            sums.swap(number, &mut grads);
                            match pass {
                                Forward(_) => {
                                    let value = value(own.start + number);
                                    device.fill(value, &mut grads, Span::new(0, 1))?;
                                }
                                Backward(_) => sums.end(&device, number, &mut grads, Span::new(0, 2))?,
                            }
                            sums.swap(number, &mut grads);
                        }
                        device.fill(1.0, &mut grads, Span::new(1, 1))?;
                        let (nodes, all) = (Some(sums.nodes()), Span::new(0, 2));
                        replica.collective.all_reduce(&device, nodes, &mut grads, all)?;
                        seen.push(grads.to_vec(&device, 0, 2)?);
                    }
                    Ok::<_, Error>(seen)
                });
                let expected = vec![sum(0, total), world as f32];
                let what = format!("{total} shards, {world} replicas, {stages} stages");
                assert_eq!(sums.unwrap(), vec![[expected.clone(), expected]; world], "{what}");
            }
        }
    }
}
