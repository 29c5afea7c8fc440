use super::barrier::Barrier;
use super::collective::OnDevice;
use crate::collective::equal_part;
use crate::{Error, Nodes, Result};
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use towers_program::{Device, Span, Storage};
use towers_tensor_cuda::{Cuda, Peers, nccl};

/// Whether every replica has a separate GPU, and NCCL joins them. It refuses two ranks on one.
pub(crate) fn on_gpus_of_their_own(devices: &[Device]) -> bool {
    let mut seen = HashSet::new();
    let mut is_own = |cuda: &Cuda| !cuda.is_emulated() && seen.insert(cuda.options().gpu);
    devices.iter().all(|device| device.get().is_some_and(&mut is_own)) && nccl::available().is_ok()
}

/// Refuses replicas on clones of one GPU, which share the memory that a step works with.
pub(crate) fn refuse_clones(devices: &[Device]) -> Result<()> {
    Ok(Cuda::refuse_clones(devices.iter().filter_map(Device::get))?)
}

/// GPUs that read each other's memory.
struct OnGpus {
    peers: Peers,
    /// The length that each replica passed.
    lens: Vec<AtomicUsize>,
}

/// `None` if a device is no GPU.
pub(crate) fn on_gpus(devices: &[Device]) -> Result<Option<Box<dyn OnDevice>>> {
    let gpus = devices.iter().map(|device| device.get().cloned()).collect::<Option<Vec<Cuda>>>();
    let Some(gpus) = gpus else { return Ok(None) };
    let lens = devices.iter().map(|_| AtomicUsize::new(0)).collect();
    Ok(Some(Box::new(OnGpus { peers: Peers::of(&gpus)?, lens })))
}

impl OnGpus {
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

impl OnDevice for OnGpus {
    fn has(&self, data: &Storage) -> bool {
        data.get::<towers_tensor_cuda::Buffer>().is_some()
    }

    fn all_reduce(
        &self,
        own: usize,
        barrier: &Barrier,
        nodes: Nodes<'_>,
        data: &mut Storage,
        at: Span,
    ) -> Result<()> {
        let meet = self.host_barrier(own, barrier, at.len, None);
        self.peers.all_reduce(own, nodes.into(), data, at, meet)
    }

    fn broadcast(
        &self,
        own: usize,
        barrier: &Barrier,
        data: &mut Storage,
        at: Span,
        root: usize,
    ) -> Result<()> {
        self.peers.broadcast(own, data, at, root, self.host_barrier(own, barrier, at.len, Some(root)))
    }

    fn all_gather(&self, own: usize, barrier: &Barrier, data: &mut Storage, at: Span) -> Result<()> {
        let meet = self.host_barrier(own, barrier, at.len, None);
        equal_part(at, self.lens.len(), own)?;
        self.peers.all_gather(own, data, at, meet)
    }
}

impl<'a> From<Nodes<'a>> for towers_tensor_cuda::Nodes<'a> {
    fn from(Nodes { tree, earlier }: Nodes<'a>) -> Self {
        towers_tensor_cuda::Nodes { earlier, counts: tree.nodes(), joins: tree.joins() }
    }
}
