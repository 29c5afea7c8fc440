use super::GradNorms;
use crate::{Backend, Device, Error, Result, Span};
use core::ops::Range;

/// The parameters of an arena, some of which may be trained in some epochs alone, and the norms of their gradients.
#[derive(Debug)]
pub(super) struct Trained {
    /// The place of each parameter, and the epochs in which it is trained.
    params: Vec<(Span, Range<u64>)>,
    /// Those that are trained in the epoch of the last step.
    now: Option<GradNorms>,
}

impl Trained {
    pub(super) fn new(params: Vec<(Span, Range<u64>)>) -> Self {
        Trained { params, now: None }
    }

    /// A single parameter of this length.
    pub(super) fn whole(len: usize) -> Self {
        Trained::new(vec![(Span::new(0, len), 0..u64::MAX)])
    }

    /// The end of the last parameter.
    pub(super) fn end(&self) -> usize {
        self.params.iter().map(|(at, _)| at.end()).max().unwrap_or(0)
    }

    /// The parameters that are trained in `epoch`; `None` if there are none.
    pub(super) fn at(&mut self, device: &Device, epoch: u64) -> Result<Option<&mut GradNorms>> {
        let trained = || self.params.iter().filter(|(_, epochs)| epochs.contains(&epoch)).map(|(at, _)| at);
        if !self.now.as_ref().is_some_and(|now| now.at.iter().eq(trained())) {
            self.now = Some(GradNorms::new(&**device, trained().copied().collect())?);
        }
        Ok(self.now.as_mut().filter(|now| !now.at.is_empty()))
    }
}

impl GradNorms {
    /// Reserves memory on `device` for the norms of gradients at these places.
    ///
    /// # Errors
    /// If a gradient ends behind element 2^32 of its arena, or the device has no memory left.
    pub fn new(device: &dyn Backend, at: Vec<Span>) -> Result<Self> {
        let mut numbers = Vec::with_capacity(2 * at.len());
        for at in &at {
            if u32::try_from(at.end()).is_err() {
                let (op, what) = ("grad_norms", "the end of a gradient");
                return Err(Error::Value { op, what, value: at.end() as f64, accepted: "below 2^32" });
            }
            numbers.extend([at.offset as u32, at.len as u32]);
        }
        let mut table = device.alloc_ints(numbers.len())?;
        device.upload_ints(&numbers, &mut table)?;
        Ok(GradNorms { norms: device.alloc(at.len())?, at, table })
    }
}
