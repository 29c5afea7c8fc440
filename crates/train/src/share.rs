use crate::Result;
use crate::image_set::{ImageSet, Rows};
use augment::{Batch, Loader, LoaderOptions, Pipeline, Samples};
use layers::Network;
use std::cell::RefCell;
use std::rc::Rc;
use tensor::{Backend, Device};

/// Where batches come from.
pub(crate) enum Source {
    /// Threads of the host make them.
    Host(Loader),
    /// The device itself does.
    Device(Rc<RefCell<ImageSet>>),
}

impl Source {
    /// Batches in an epoch.
    pub(crate) fn steps(&self) -> usize {
        match self {
            Source::Host(loader) => loader.steps_per_epoch(),
            Source::Device(set) => set.borrow().steps(),
        }
    }

    /// A device that runs ahead loads its batches by itself: no host makes them fast enough.
    pub(crate) fn new(
        device: &Device,
        samples: &Samples,
        pipeline: Pipeline,
        options: LoaderOptions,
    ) -> Result<Self> {
        if device.runs_ahead() {
            let set = ImageSet::new(device, samples, pipeline, options)?;
            return Ok(Source::Device(Rc::new(RefCell::new(set))));
        }
        Ok(Source::Host(Loader::new(samples.clone(), pipeline, options)?))
    }

    /// The shares of replica `rank` of `world` in the batches of `epoch` from `step` on.
    pub(crate) fn epoch(
        &mut self,
        device: &Device,
        epoch: u64,
        step: usize,
        [rank, world]: [usize; 2],
    ) -> Result<Shares<'_>> {
        match self {
            Source::Host(loader) => {
                Ok(Box::new(loader.epoch(epoch, step)?.map(|batch| Ok(Share::Images(batch?)))))
            }
            Source::Device(set) => {
                set.borrow_mut().begin_epoch(device, epoch)?;
                let shares = set.borrow().shares(step, rank, world);
                Ok(Box::new(shares.map(|rows| Ok(Share::Rows(rows, Rc::clone(set))))))
            }
        }
    }
}

/// This replica's share of a batch.
pub(crate) enum Share {
    /// Images and labels in host memory.
    Images(Batch),
    /// Places of a set on the device.
    Rows(Rows, Rc<RefCell<ImageSet>>),
}

impl Share {
    /// Samples in it, and in the whole batch.
    pub(crate) fn len(&self) -> (usize, usize) {
        match self {
            Share::Images(batch) => (batch.len(), batch.global_len),
            Share::Rows(rows, _) => (rows.own, rows.global),
        }
    }

    /// Its first place in the epoch's order, for a device that finds it by itself.
    pub(crate) fn first(&self) -> u32 {
        match self {
            Share::Images(_) => 0,
            Share::Rows(rows, _) => rows.first as u32,
        }
    }

    /// Puts it in place, as far as the host has to.
    pub(crate) fn send(&self, network: &mut Network) -> Result<()> {
        match self {
            Share::Images(batch) => Ok(network.set_input(&batch.x, &batch.labels)?),
            Share::Rows(rows, _) => Ok(network.set_batch(rows.own)?),
        }
    }

    /// Has the device put it in place, as far as it does so by itself.
    pub(crate) fn load(&self, device: &Device, network: &mut Network) -> Result<()> {
        match self {
            Share::Images(_) => Ok(()),
            Share::Rows(rows, set) => set.borrow().load(device, *rows, network),
        }
    }
}

/// Shares of batches, one after the other.
pub(crate) type Shares<'a> = Box<dyn Iterator<Item = Result<Share>> + 'a>;
