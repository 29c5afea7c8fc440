use crate::barrier::Barrier;
use crate::{Collective, Error, Result, slice_batch};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tensor::{Backend, Device, Span, Storage};

/// The collective of threads of one process, through host memory.
///
/// An all-reduce copies each replica's numbers to a board, meets, adds one stretch of the board on each replica, meets again
/// and copies the sums back: two meetings and about three passes over the numbers. Several replicas may share a device.
pub struct Local {
    rank: usize,
    group: Arc<Group>,
}

struct Group {
    barrier: Arc<Barrier>,
    /// What each replica brought.
    brought: Vec<RwLock<Vec<f32>>>,
    /// The sums of each replica's stretch.
    sums: Vec<RwLock<Vec<f32>>>,
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Local {
    /// The members of a group of `world` replicas, by rank.
    pub fn group(world: usize) -> Vec<Local> {
        let board = || (0..world).map(|_| RwLock::default()).collect();
        let group =
            Arc::new(Group { barrier: Arc::new(Barrier::new(world)), brought: board(), sums: board() });
        (0..world).map(|rank| Local { rank, group: Arc::clone(&group) }).collect()
    }

    /// A group of one, for a run without replicas.
    pub fn alone() -> Local {
        let group = Group { barrier: Arc::new(Barrier::new(1)), brought: Vec::new(), sums: Vec::new() };
        Local { rank: 0, group: Arc::new(group) }
    }

    /// Where the group meets: who runs its members calls the meetings off when one has ended.
    pub(crate) fn meeting(&self) -> Arc<Barrier> {
        Arc::clone(&self.group.barrier)
    }

    /// Writes this replica's numbers on the board.
    fn bring(&self, device: &Device, data: &Storage, at: Span) -> Result<()> {
        at.check("collective", "the run", data.len())?;
        let mut board = write(&self.group.brought[self.rank]);
        board.resize(at.len, 0.0);
        Ok(device.download(data, at.offset, &mut board)?)
    }

    /// What replica `other` has on the board, if it is as much as this one has.
    fn brought(&self, other: usize, len: usize) -> Result<RwLockReadGuard<'_, Vec<f32>>> {
        let board = read(&self.group.brought[other]);
        if board.len() == len {
            return Ok(board);
        }
        Err(Error::Mismatch { rank: self.rank, got: len, other, expected: board.len() })
    }

    /// Adds this replica's stretch of the board, in the order of the ranks.
    fn add_stretch(&self, len: usize) -> Result<()> {
        let own = slice_batch(len, self.world(), self.rank);
        let mut sums = write(&self.group.sums[self.rank]);
        sums.clear();
        sums.extend_from_slice(&self.brought(0, len)?[own.clone()]);
        for other in 1..self.world() {
            let board = self.brought(other, len)?;
            sums.iter_mut().zip(&board[own.clone()]).for_each(|(sum, x)| *sum += x);
        }
        Ok(())
    }

    fn try_all_reduce_sum(&self, device: &Device, data: &mut Storage, at: Span) -> Result<()> {
        self.bring(device, data, at)?;
        self.group.barrier.wait()?;
        self.add_stretch(at.len)?;
        self.group.barrier.wait()?;
        for rank in 0..self.world() {
            let stretch = slice_batch(at.len, self.world(), rank);
            device.upload(&read(&self.group.sums[rank]), data, at.offset + stretch.start)?;
        }
        Ok(())
    }

    fn try_broadcast(&self, device: &Device, data: &mut Storage, at: Span, root: usize) -> Result<()> {
        if self.rank == root {
            self.bring(device, data, at)?;
        }
        self.group.barrier.wait()?;
        if self.rank != root {
            device.upload(&self.brought(root, at.len)?, data, at.offset)?;
        }
        self.group.barrier.wait()
    }

    /// Has a failure of this replica in the middle of an operation stop the others, who would wait for it.
    fn telling(&self, result: Result<()>) -> Result<()> {
        result.inspect_err(|error| self.abort(&format!("replica {} failed: {error}", self.rank)))
    }
}

impl Collective for Local {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world(&self) -> usize {
        self.group.brought.len().max(1)
    }

    fn all_reduce_sum(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()> {
        if self.world() == 1 {
            return Ok(());
        }
        self.telling(self.try_all_reduce_sum(device, data, at))
    }

    fn broadcast(&mut self, device: &Device, data: &mut Storage, at: Span, root: usize) -> Result<()> {
        if self.world() == 1 {
            return Ok(());
        }
        self.telling(self.try_broadcast(device, data, at, root))
    }

    fn barrier(&mut self) -> Result<()> {
        self.group.barrier.wait()
    }

    fn abort(&self, reason: &str) {
        self.group.barrier.abort(self.rank, reason);
    }
}
