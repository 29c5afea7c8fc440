use super::ClippedGrads;
use crate::{Backend, Device, Error, Result, Span, Storage};
use core::ops::Range;
use towers_optim::Clip;

/// The clipping of an arena, whose parameters may be trained in some epochs alone.
#[derive(Debug)]
pub(super) struct Clipping {
    pub(super) clip: Clip,
    /// The place of each parameter, and the epochs in which it is trained.
    pub(super) params: Vec<(Span, Range<u64>)>,
    /// Those that are trained in the epoch of the last step.
    now: Option<ClippedGrads>,
}

impl Clipping {
    /// Clips a single gradient of this length.
    pub(super) fn whole(clip: Clip, len: usize) -> Self {
        Clipping { clip, params: vec![(Span::new(0, len), 0..u64::MAX)], now: None }
    }

    /// Clips the gradients of the parameters that are trained in `epoch`.
    pub(super) fn run(&mut self, device: &Device, epoch: u64, grads: &mut Storage) -> Result<()> {
        let trained = || self.params.iter().filter(|(_, epochs)| epochs.contains(&epoch)).map(|(at, _)| at);
        let now = match &mut self.now {
            Some(now) if now.at.iter().eq(trained()) => now,
            stale => stale.insert(ClippedGrads::new(&**device, self.clip, trained().copied().collect())?),
        };
        if now.at.is_empty() { Ok(()) } else { device.clip_grads(grads, now) }
    }
}

impl ClippedGrads {
    /// Reserves on `device` what clipping gradients at these places needs.
    ///
    /// # Errors
    /// If a gradient ends behind element 2^32 of its arena, or the device has no memory left.
    pub fn new(device: &dyn Backend, clip: Clip, at: Vec<Span>) -> Result<Self> {
        let mut numbers = Vec::with_capacity(2 * at.len());
        for at in &at {
            if u32::try_from(at.end()).is_err() {
                let (op, what) = ("clip_grads", "the end of a gradient");
                return Err(Error::Value { op, what, value: at.end() as f64, accepted: "below 2^32" });
            }
            numbers.extend([at.offset as u32, at.len as u32]);
        }
        let mut table = device.alloc_ints(numbers.len())?;
        device.upload_ints(&numbers, &mut table)?;
        Ok(ClippedGrads { clip, norms: device.alloc(at.len())?, at, table })
    }
}
