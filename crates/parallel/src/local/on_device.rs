use super::barrier::Barrier;
use crate::{Error, Result};
use program::Device;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use tensor_cuda::{Cuda, Peers};

/// Refuses replicas on clones of one GPU, which share the memory that a step works with.
pub(crate) fn refuse_clones(devices: &[Device]) -> Result<()> {
    Ok(Cuda::refuse_clones(devices.iter().filter_map(Device::get))?)
}

/// The operations of [`Local`](crate::Local) from GPU to GPU.
pub(crate) struct OnDevice {
    pub(super) peers: Peers,
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

    /// The barrier of an operation. At the first wait, each replica compares its length with that of the
    /// others, or of the root of a broadcast.
    pub(super) fn host_barrier<'a>(
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
