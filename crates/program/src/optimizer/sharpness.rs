use super::trained::Trained;
use crate::{Device, Layout, Result, Shape, Storage, View, ViewMut, Write};
use towers_optim::Sam;

/// Sharpness-aware minimization, with a copy of the parameters from before the ascent.
#[derive(Debug)]
pub(super) struct Sharpness {
    sam: Sam,
    weights: Storage,
}

impl Sharpness {
    /// Reserves memory for a copy of `len` parameters.
    pub(super) fn new(device: &Device, sam: Sam, len: usize) -> Result<Self> {
        sam.validate()?;
        Ok(Sharpness { sam, weights: device.alloc(len)? })
    }

    /// Keeps the parameters, and moves those that are trained in `epoch`.
    pub(super) fn ascend(
        &mut self,
        device: &Device,
        (trained, epoch): (&mut Trained, u64),
        params: &mut Storage,
        grads: &Storage,
    ) -> Result<()> {
        let len = self.weights.len();
        copy(device, params, &mut self.weights, len)?;
        match trained.at(device, epoch)? {
            Some(now) => device.ascend(&self.sam, params, grads, now),
            None => Ok(()),
        }
    }

    /// Brings the parameters back.
    pub(super) fn descend(&self, device: &Device, params: &mut Storage) -> Result<()> {
        copy(device, &self.weights, params, self.weights.len())
    }
}

fn copy(device: &Device, from: &Storage, to: &mut Storage, len: usize) -> Result<()> {
    let at = Layout::contiguous(Shape::vectors(1, len));
    device.copy(View::new(from, at), ViewMut::new(to, at), Write::Set)
}
