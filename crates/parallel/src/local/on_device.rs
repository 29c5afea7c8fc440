use super::barrier::Barrier;
use crate::collective::equal_part;
use crate::{Error, Nodes, Result};
use program::{Device, Span, Storage};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use tensor_cuda::{Cuda, Peers};

/// The operations of [`Local`](crate::Local) from GPU to GPU.
pub(crate) struct OnDevice {
    peers: Peers,
    /// The length that each replica passed.
    lens: Vec<AtomicUsize>,
}

impl OnDevice {
    /// `None` if a device is no GPU.
    pub(crate) fn of(devices: &[Device]) -> Result<Option<OnDevice>> {
        let gpus = devices.iter().map(|device| device.get().cloned()).collect::<Option<Vec<Cuda>>>();
        let Some(gpus) = gpus else { return Ok(None) };
        let lens = devices.iter().map(|_| AtomicUsize::new(0)).collect();
        Ok(Some(OnDevice { peers: Peers::of(&gpus)?, lens }))
    }

    pub(crate) fn all_reduce(
        &self,
        rank: usize,
        barrier: &Barrier,
        nodes: Nodes<'_>,
        data: &mut Storage,
        at: Span,
    ) -> Result<()> {
        let meet = self.host_barrier(rank, barrier, at.len, None);
        self.peers.all_reduce(rank, nodes.into(), data, at, meet)
    }

    pub(crate) fn broadcast(
        &self,
        rank: usize,
        barrier: &Barrier,
        data: &mut Storage,
        at: Span,
        root: usize,
    ) -> Result<()> {
        self.peers.broadcast(rank, data, at, root, self.host_barrier(rank, barrier, at.len, Some(root)))
    }

    pub(crate) fn all_gather(
        &self,
        rank: usize,
        barrier: &Barrier,
        data: &mut Storage,
        at: Span,
    ) -> Result<()> {
        equal_part(at, self.lens.len(), rank)?;
        self.peers.all_gather(rank, data, at, self.host_barrier(rank, barrier, at.len, None))
    }

    /// The barrier of an operation. At the first wait, each replica compares its length with that of the
    /// others, or of the root of a broadcast.
    fn host_barrier<'a>(
        &'a self,
        rank: usize,
        barrier: &'a Barrier,
        len: usize,
        root: Option<usize>,
    ) -> impl Fn() -> Result<()> + 'a {
        self.lens[rank].store(len, Ordering::SeqCst);
        let first = Cell::new(true);
        move || {
            barrier.wait()?;
            if !first.replace(false) {
                return Ok(());
            }
            let others = root.map_or(0..self.lens.len(), |root| root..root + 1);
            for other in others {
                let expected = self.lens[other].load(Ordering::SeqCst);
                if expected != len {
                    return Err(Error::Mismatch { rank, got: len, other, expected });
                }
            }
            Ok(())
        }
    }
}
