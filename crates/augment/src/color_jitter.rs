//! Random brightness, contrast, saturation and hue.

use crate::text::{self, Field, Listed};
use crate::uniform::between;
use crate::{Draws, Error, Operation, Pipeline, Transform, compose};
use towers_philox::{Philox, domain};

/// Changes brightness, contrast, saturation and hue by random factors, in random order: torchvision's `ColorJitter`, with Pillow's
/// rounding. Everything is off by default.
///
/// ```
/// use towers_augment::{ColorJitter, Compose};
///
/// let jitter = ColorJitter { brightness: 0.4.into(), hue: [-0.1, 0.2].into(), ..ColorJitter::default() };
/// let compose = Compose::new().with_probability(0.8, jitter);
/// assert_eq!(compose.to_string(), "color-jitter:brightness=0.4,hue=-0.1/0.2,p=0.8");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ColorJitter {
    /// Factors around 1.
    pub brightness: Jitter,
    /// Factors around 1.
    pub contrast: Jitter,
    /// Factors around 1.
    pub saturation: Jitter,
    /// Shares of the circle of colours around 0, 0.5 at most.
    pub hue: Jitter,
}

/// How far a factor goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Jitter {
    /// So far to both sides, for factors around 1 from 0 up.
    By(f64),
    /// From the first to the second.
    Between([f64; 2]),
}

impl Default for Jitter {
    fn default() -> Self {
        Jitter::By(0.0)
    }
}

impl From<f64> for Jitter {
    fn from(by: f64) -> Self {
        Jitter::By(by)
    }
}

impl From<[f64; 2]> for Jitter {
    fn from(bounds: [f64; 2]) -> Self {
        Jitter::Between(bounds)
    }
}

impl Jitter {
    fn bounds(self, centre: f64) -> [f64; 2] {
        match self {
            Jitter::By(by) if centre == 1.0 => [(1.0 - by).max(0.0), 1.0 + by],
            Jitter::By(by) => [centre - by, centre + by],
            Jitter::Between(bounds) => bounds,
        }
    }
}

impl Field for Jitter {
    fn read(&mut self, text: &str) -> Result<(), &'static str> {
        *self = match text::numbers(text).as_deref() {
            Some(&[by]) => Jitter::By(by),
            Some(&[low, high]) => Jitter::Between([low, high]),
            _ => return Err("a number or two, as in 0.4 or 0.6/1.2"),
        };
        Ok(())
    }

    fn write(&self) -> String {
        match self {
            Jitter::By(by) => by.write(),
            Jitter::Between(bounds) => bounds.write(),
        }
    }
}

impl Listed for ColorJitter {
    const NAME: &str = "color-jitter";

    fn fields(&mut self) -> Vec<(&'static str, &mut dyn Field)> {
        vec![
            ("brightness", &mut self.brightness),
            ("contrast", &mut self.contrast),
            ("saturation", &mut self.saturation),
            ("hue", &mut self.hue),
        ]
    }
}

impl Transform for ColorJitter {
    fn draw(&self, _: [usize; 3], seed: u64, epoch: u64, sample: u32) -> Draws {
        let mut rng = Philox::new(seed, const { domain("color_jitter") }, [epoch, u64::from(sample)]);
        let mut factor = |jitter: Jitter, centre: f64, operation: fn(f64) -> Operation| {
            let bounds = jitter.bounds(centre);
            let factor = between(bounds, &mut rng);
            if bounds == [centre; 2] { Operation::Identity } else { operation(factor) }
        };
        let mut operations = [
            factor(self.brightness, 1.0, Operation::Brightness),
            factor(self.contrast, 1.0, Operation::Contrast),
            factor(self.saturation, 1.0, Operation::Color),
            factor(self.hue, 0.0, Operation::Hue),
        ];
        for last in (1..4).rev() {
            operations.swap(last, rng.below(last as u32 + 1) as usize);
        }
        Draws::of(&operations)
    }

    fn build(&self, shape: [usize; 3]) -> Result<Pipeline, Error> {
        let accepted = "with factors from 0 up, and hues from -0.5 to 0.5, the smaller one first";
        let ordered = |[low, high]: [f64; 2], least, most| least <= low && low <= high && high <= most;
        let factors = [self.brightness, self.contrast, self.saturation];
        let by = |jitter: &Jitter| !matches!(jitter, Jitter::By(by) if *by < 0.0);
        if !factors.iter().all(|jitter| by(jitter) && ordered(jitter.bounds(1.0), 0.0, 1e6))
            || !ordered(self.hue.bounds(0.0), -0.5, 0.5)
        {
            return Err(text::refuse(text::write(self), accepted));
        }
        compose::of_bytes(text::write(self), shape)
    }

    fn text(&self) -> Option<String> {
        Some(text::write(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{bytes, golden, list, shape, wrong};
    use std::collections::BTreeSet;

    #[test]
    fn all_orders_have_the_bytes_of_torchvision() {
        let golden = golden();
        for case in golden["jitters"].as_array().unwrap() {
            let (order, factors): (Vec<usize>, Vec<Option<f64>>) =
                (list(&case["order"]), list(&case["factors"]));
            let kinds = [Operation::Brightness, Operation::Contrast, Operation::Color, Operation::Hue];
            let operations: Vec<_> = order.iter().filter_map(|&k| factors[k].map(kinds[k])).collect();
            let mut image = bytes(&golden["image"]);
            for operation in Draws::of(&operations).operations {
                operation.apply(shape(&golden), &mut image, &mut Vec::new());
            }
            assert_eq!(wrong(&image, &bytes(&case["out"])), 0, "{operations:?}");
        }
    }

    #[test]
    fn factors_keep_to_their_bounds_and_come_in_all_orders() {
        let jitter = ColorJitter {
            brightness: 2.0.into(),
            contrast: [0.5, 0.75].into(),
            saturation: 0.5.into(),
            hue: 0.25.into(),
        };
        let (mut orders, mut low, mut high) = (BTreeSet::new(), [f64::INFINITY; 4], [f64::NEG_INFINITY; 4]);
        for sample in 0..3000 {
            let mut order = [0; 4];
            for (place, operation) in jitter.draw([8, 8, 3], 5, 2, sample).operations.into_iter().enumerate()
            {
                let (kind, number) = match operation {
                    Operation::Brightness(x) => (0, x),
                    Operation::Contrast(x) => (1, x),
                    Operation::Color(x) => (2, x),
                    Operation::Hue(x) => (3, x),
                    other => panic!("{other}"),
                };
                order[place] = kind;
                (low[kind], high[kind]) = (low[kind].min(number), high[kind].max(number));
            }
            orders.insert(order);
        }
        assert_eq!(orders.len(), 24);
        let bounds = [[0.0, 3.0], [0.5, 0.75], [0.5, 1.5], [-0.25, 0.25]];
        for (kind, [least, most]) in bounds.into_iter().enumerate() {
            let near = 0.01 * (most - least);
            assert!(low[kind] >= least && low[kind] < least + near, "{kind}: {}", low[kind]);
            assert!(high[kind] <= most && high[kind] > most - near, "{kind}: {}", high[kind]);
        }
        assert_eq!(ColorJitter::default().draw([8, 8, 3], 5, 2, 1), Draws::default());
    }
}
