//! Erasing a random rectangle of the network's input.

use crate::erased::{Erased, ErasedWith};
use crate::text::{self, Field, Listed};
use crate::uniform::between;
use crate::{Draws, Error, ImageDataGenerator, Pipeline, Transform};
use towers_philox::{Philox, domain};

/// Erases a rectangle of random area and shape: Z. Zhong et al., "Random Erasing Data Augmentation" (2017). Defaults and the way to draw
/// are those of torchvision's `RandomErasing`.
///
/// It acts on the network's input, after the standardization and cutout, wherever it stands in a [`Compose`](crate::Compose). So 0 is
/// the mean where one is subtracted, and random values suit inputs with a deviation of 1.
#[derive(Clone, Debug, PartialEq)]
pub struct RandomErasing {
    /// The smallest and the largest share of the image's area (default 0.02 to 0.33).
    pub scale: [f64; 2],
    /// The smallest and the largest ratio of height to width (default 0.3 to 3.3); between them logarithms are uniform.
    pub ratio: [f64; 2],
    /// What the rectangle holds then (default 0).
    pub value: Filling,
}

impl Default for RandomErasing {
    fn default() -> Self {
        RandomErasing { scale: [0.02, 0.33], ratio: [0.3, 3.3], value: Filling::default() }
    }
}

/// What an erased rectangle holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Filling {
    /// A number for all channels, or one for each, on the scale of the network's input.
    Values(Vec<f32>),
    /// Numbers from the standard normal distribution, one for each value.
    Random,
}

impl Default for Filling {
    fn default() -> Self {
        Filling::Values(vec![0.0])
    }
}

impl Field for Filling {
    fn read(&mut self, text: &str) -> Result<(), &'static str> {
        *self = match text::numbers(text) {
            _ if text == "random" => Filling::Random,
            Some(values) => Filling::Values(values.into_iter().map(|value| value as f32).collect()),
            None => return Err("random, a number, or one for each channel, as in 0.5/0.4/0.4"),
        };
        Ok(())
    }

    fn write(&self) -> String {
        match self {
            Filling::Values(values) => values.iter().map(f32::to_string).collect::<Vec<_>>().join("/"),
            Filling::Random => "random".to_owned(),
        }
    }
}

impl Listed for RandomErasing {
    const NAME: &str = "random-erasing";

    fn fields(&mut self) -> Vec<(&'static str, &mut dyn Field)> {
        vec![("scale", &mut self.scale), ("ratio", &mut self.ratio), ("value", &mut self.value)]
    }
}

impl Transform for RandomErasing {
    /// The first of ten tries that is smaller than the image, else none.
    fn draw(&self, [h, w, _]: [usize; 3], seed: u64, epoch: u64, sample: u32) -> Draws {
        let mut rng = Philox::new(seed, const { domain("random_erasing") }, [epoch, u64::from(sample)]);
        let logarithms = self.ratio.map(f64::ln);
        let erased = (0..10).find_map(|_| {
            let area = between(self.scale, &mut rng) * (h * w) as f64;
            let ratio = between(logarithms, &mut rng).exp();
            let rows = (area * ratio).sqrt().round_ties_even() as usize;
            let columns = (area / ratio).sqrt().round_ties_even() as usize;
            (rows < h && columns < w).then(|| Erased {
                row: rng.below((h - rows + 1) as u32) as usize,
                column: rng.below((w - columns + 1) as u32) as usize,
                rows,
                columns,
                with: match &self.value {
                    Filling::Values(values) => ErasedWith::Values(values.clone()),
                    Filling::Random => ErasedWith::Noise { seed, epoch, sample },
                },
            })
        });
        Draws { erased, ..Draws::default() }
    }

    fn build(&self, shape: [usize; 3]) -> Result<Pipeline, Error> {
        let ordered = |[low, high]: [f64; 2]| low <= high && high.is_finite();
        let fits = match &self.value {
            Filling::Values(values) => {
                [1, shape[2]].contains(&values.len()) && values.iter().all(|value| value.is_finite())
            }
            Filling::Random => true,
        };
        let shares = ordered(self.scale) && self.scale[0] >= 0.0 && self.scale[1] <= 1.0;
        if !(fits && shares && ordered(self.ratio) && self.ratio[0] > 0.0) {
            let accepted = format!(
                "with shares of the area from 0 to 1, and positive ratios, the smaller ones first, and 1 value or {}",
                shape[2]
            );
            return Err(text::refuse(text::write(self), accepted));
        }
        ImageDataGenerator::new().build(shape)
    }

    fn text(&self) -> Option<String> {
        Some(text::write(self))
    }
}
