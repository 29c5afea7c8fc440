use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{DropoutMask, Noise, Result, Shape, Step, StepArgs};

/// `y = x * mask / (1 - rate)`, on activations and on gradients alike. Reads x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The probability of an element to become 0, in [0, 1).
    pub rate: f32,
    /// The elements that are dropped or kept together.
    pub noise: Noise,
    /// The layer's stream of random numbers: `towers_philox::domain` of its name.
    pub domain: u32,
}

signatures! {
    Dropout { x: batch "the input" }
}

impl Dropout {
    /// The mask of a training step.
    pub fn mask(&self, args: &StepArgs) -> DropoutMask {
        let key = towers_philox::key(args.seed, self.domain);
        DropoutMask {
            rate: self.rate,
            noise: self.noise,
            key,
            step: args.step,
            first_sample: args.first_sample,
        }
    }
}

impl Rule for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn options(&self) -> String {
        let of = match self.noise {
            Noise::Element => "",
            Noise::Channel => " of channels",
            Noise::Sample => " of samples",
        };
        format!("rate {}{of}", self.rate)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::Dropout { x } = self.operands_of(shapes)?;
        let mask = DropoutMask { rate: self.rate, noise: self.noise, key: [0; 2], step: 0, first_sample: 0 };
        mask.check(self.name())?;
        Ok(vec![x])
    }

    fn adds(&self) -> bool {
        true
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let x = step.operands[0];
        to.add_op(x, *self, &[to.of(step)])
    }
}
