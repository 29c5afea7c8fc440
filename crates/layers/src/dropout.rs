use crate::{Layer, Lower};
use towers_program::{DropoutMask, Noise, Result, TensorId, ops};

/// Sets a share of the elements to 0 in training and scales the rest by `1 / (1 - rate)`. Does nothing in
/// inference.
///
/// The mask is a pure function of (seed, layer, step, place in the global batch). So it needs no memory, and
/// is the same for any number of replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    rate: f32,
    noise: Noise,
}

impl Dropout {
    /// Drops elements with probability `rate`, in [0, 1).
    pub fn new(rate: f32) -> Self {
        Dropout { rate, noise: Noise::Element }
    }

    /// The elements that are dropped together: Keras' `noise_shape`. [`Noise::Sample`] is stochastic depth, and
    /// [`Noise::Channel`] Keras' `SpatialDropout2D`.
    pub fn noise(self, noise: Noise) -> Self {
        Dropout { noise, ..self }
    }
}

impl Layer for Dropout {
    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        let Dropout { rate, noise } = *self;
        DropoutMask { rate, noise, key: [0; 2], step: 0, first_sample: 0 }.check("dropout")?;
        if !to.is_training() {
            return Ok(inputs[0]);
        }
        to.push(ops::Dropout { rate, noise, domain: towers_philox::domain(to.name()) }, inputs)
    }
}
