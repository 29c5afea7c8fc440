use crate::{Error, Result};
use towers_philox::philox4x32;

/// The elements that are dropped or kept together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Noise {
    /// Each by itself.
    #[default]
    Element,
    /// A channel of a sample: Keras' `noise_shape=(n, 1, 1, c)`, as of a `SpatialDropout2D`.
    Channel,
    /// A sample: Keras' `noise_shape=(n, 1, 1, 1)`, as for stochastic depth.
    Sample,
}

/// Which elements a dropout keeps: a pure function of (key, step, sample, element).
///
/// The mask of an element depends on the sample's place in the *global* batch, so it is the same however the
/// batch is sliced over replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DropoutMask {
    /// The probability of an element to become 0, in [0, 1).
    pub rate: f32,
    /// The elements that are dropped or kept together.
    pub noise: Noise,
    /// The stream of this layer: [`towers_philox::key`] of the run's seed and the layer's domain.
    pub key: [u32; 2],
    /// The training step.
    pub step: u64,
    /// The place of the tensor's first sample in the global batch.
    pub first_sample: u32,
}

impl DropoutMask {
    /// Checks the rate.
    ///
    /// # Errors
    /// [`Error::Value`] for a rate outside of [0, 1).
    pub fn check(&self, op: &'static str) -> Result<()> {
        if (0.0..1.0).contains(&self.rate) {
            return Ok(());
        }
        Err(Error::Value {
            op,
            what: "the rate",
            value: f64::from(self.rate),
            accepted: "at least 0 and below 1",
        })
    }

    /// An element whose random word is below this is dropped.
    #[inline]
    pub fn threshold(&self) -> u32 {
        (f64::from(self.rate) * 4_294_967_296.0) as u32
    }

    /// The factor on kept elements: `1 / (1 - rate)`, so that the expectation stays.
    #[inline]
    pub fn scale(&self) -> f32 {
        1.0 / (1.0 - self.rate)
    }

    /// The element whose random word decides about this channel of this pixel of a sample, of so many channels.
    #[inline(always)]
    pub fn element(&self, pixel: usize, channel: usize, channels: usize) -> usize {
        match self.noise {
            Noise::Element => pixel * channels + channel,
            Noise::Channel => channel,
            Noise::Sample => 0,
        }
    }

    /// The random words of the elements `4 * quad .. 4 * quad + 4` of the tensor's sample `sample`. Elements count in
    /// the order of memory, `(y * w + x) * c + channel`.
    #[inline(always)]
    pub fn words(&self, sample: u32, quad: u32) -> [u32; 4] {
        let counter =
            [quad, self.first_sample.wrapping_add(sample), self.step as u32, (self.step >> 32) as u32];
        philox4x32(counter, self.key)
    }
}
