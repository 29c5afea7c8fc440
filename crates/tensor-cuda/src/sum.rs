//! Sums over replicas on a GPU, in an order that the caller gives.

use crate::Cuda;
use crate::driver::Ptr;
use towers_program::{Result, Storage};

const F32: usize = size_of::<f32>();

/// The partial sums, or *nodes*, that a replica brings to a sum over all replicas, and the order of the sum.
///
/// The nodes of all replicas go onto a stack, in the order of the ranks. After each of them the two on top
/// are joined, added up to one, as often as `joins` says. In the end one is left.
#[derive(Clone, Copy, Debug)]
pub struct Nodes<'a> {
    /// This replica's nodes before the last one, which is in the data of the operation. A replica may also
    /// have none.
    pub earlier: &'a [Storage],
    /// How many each replica brings, by rank.
    pub counts: &'a [usize],
    /// One number for each node of all replicas.
    pub joins: &'a [usize],
}

impl<'a> Nodes<'a> {
    /// The storages of the nodes that replica `rank` brings, in order; `None` if they are not as many as it
    /// should.
    pub(crate) fn brought(self, rank: usize, data: &'a Storage) -> Option<impl Iterator<Item = &'a Storage>> {
        let expected = *self.counts.get(rank)?;
        let last = (expected > 0).then_some(data);
        let is_whole = self.earlier.len() + usize::from(last.is_some()) == expected;
        let is_order = self.joins.len() == self.counts.iter().sum::<usize>()
            && self.joins.iter().sum::<usize>() + 1 == self.joins.len();
        (is_whole && is_order).then(|| self.earlier.iter().chain(last))
    }
}

/// Partial sums of `len` numbers each, in memory of a device.
pub(crate) struct Stack<'a> {
    cuda: &'a Cuda,
    base: Ptr,
    len: usize,
    height: usize,
}

impl<'a> Stack<'a> {
    /// The bytes that a sum in this order needs.
    pub(crate) fn bytes(joins: &[usize], len: usize) -> usize {
        let (mut height, mut most) = (0_usize, 0);
        for joins in joins {
            most = most.max(height + 1);
            height = (height + 1).saturating_sub(*joins);
        }
        most * stride(len)
    }

    /// An empty one. `base` has [`bytes`](Stack::bytes) bytes.
    pub(crate) fn at(cuda: &'a Cuda, base: Ptr, len: usize) -> Self {
        Stack { cuda, base, len, height: 0 }
    }

    /// The place for the next partial sum.
    pub(crate) fn free(&self) -> Ptr {
        self.place(self.height)
    }

    fn place(&self, number: usize) -> Ptr {
        self.base.offset(number * stride(self.len))
    }

    /// Puts a node of this device onto the stack, and joins the two on top this often.
    pub(crate) fn push(&mut self, node: Ptr, joins: usize) -> Result<()> {
        match joins.checked_sub(1) {
            Some(more) => {
                self.cuda.add_run("all_reduce", node, self.place(self.height.saturating_sub(1)), self.len)?;
                self.join(more)
            }
            None => {
                let driver = self.cuda.driver();
                // SAFETY: a run of a node, as large; the stack has room for it.
                unsafe { driver.copy(&**driver, node, self.free(), self.len * F32) }?;
                self.height += 1;
                Ok(())
            }
        }
    }

    /// Takes a node that was copied to the [free](Stack::free) place, and joins the two on top this often.
    pub(crate) fn push_copied(&mut self, joins: usize) -> Result<()> {
        self.height += 1;
        self.join(joins)
    }

    fn join(&mut self, joins: usize) -> Result<()> {
        for _ in 0..joins {
            self.height = self.height.saturating_sub(1);
            let (top, below) = (self.free(), self.place(self.height.saturating_sub(1)));
            self.cuda.add_run("all_reduce", top, below, self.len)?;
        }
        Ok(())
    }
}

/// The bytes between two partial sums: a multiple of 16.
fn stride(len: usize) -> usize {
    len.next_multiple_of(4) * F32
}
