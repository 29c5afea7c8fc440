//! Random changes of perspective.

use crate::text::{self, Field, Listed};
use crate::{Drawn, Draws, Effect, Error, Pipeline, Transform, compose, moved};
use std::fmt;
use towers_philox::{Philox, domain};

/// Moves each corner of the image inwards by its own random way, bilinearly, with black outside: torchvision's `RandomPerspective`,
/// with Pillow's rounding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomPerspective {
    /// The longest way, as a share of half a side, from 0 to 1 (default 0.5).
    pub distortion_scale: f64,
}

impl Default for RandomPerspective {
    fn default() -> Self {
        RandomPerspective { distortion_scale: 0.5 }
    }
}

impl Listed for RandomPerspective {
    const NAME: &str = "random-perspective";

    fn fields(&mut self) -> Vec<(&'static str, &mut dyn Field)> {
        vec![("distortion-scale", &mut self.distortion_scale)]
    }
}

impl Transform for RandomPerspective {
    fn draw(&self, [h, w, _]: [usize; 3], seed: u64, epoch: u64, sample: u32) -> Draws {
        let mut rng = Philox::new(seed, const { domain("random_perspective") }, [epoch, u64::from(sample)]);
        let mut way =
            |side: usize| rng.below((self.distortion_scale * (side / 2) as f64) as u32 + 1) as usize;
        let corners = CORNERS.map(|[right, low]| {
            let (x, y) = (way(w), way(h));
            [if right { w - 1 - x } else { x }, if low { h - 1 - y } else { y }]
        });
        Draws { effect: Some(Drawn::new(Perspective { corners })), ..Draws::default() }
    }

    fn build(&self, shape: [usize; 3]) -> Result<Pipeline, Error> {
        if !(0.0..=1.0).contains(&self.distortion_scale) {
            return Err(text::refuse(text::write(self), "with a `distortion-scale` from 0 to 1"));
        }
        compose::of_bytes(text::write(self), shape)
    }

    fn text(&self) -> Option<String> {
        Some(text::write(self))
    }
}

/// Whether a corner is on the right, and whether it is below: clockwise from the upper left.
const CORNERS: [[bool; 2]; 4] = [[false, false], [true, false], [true, true], [false, true]];

/// The columns and rows where the corners go, clockwise from the upper left.
#[derive(Debug)]
struct Perspective {
    corners: [[usize; 2]; 4],
}

impl fmt::Display for Perspective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("perspective with corners")?;
        self.corners.iter().try_for_each(|[x, y]| write!(f, " ({x}, {y})"))
    }
}

impl Effect for Perspective {
    fn paint(&self, shape: [usize; 3], image: &mut [u8], spare: &mut Vec<u8>) {
        // A corner in a line with two others can't be, but for images of one or two pixels.
        let Some([a, b, c, d, e, f, g, h]) = self.coefficients(shape) else { return };
        moved::bilinear(shape, image, spare, |[x, y]| {
            let depth = g * x + h * y + 1.0;
            [(a * x + b * y + c) / depth, (d * x + e * y + f) / depth]
        });
    }
}

impl Perspective {
    /// The numbers of the map from the output (x, y) to the input ((a x + b y + c) / (g x + h y + 1), (d x + e y + f) / (g x + h y + 1)),
    /// in single precision, as those of torchvision; `None` if there is no such map.
    fn coefficients(&self, [h, w, _]: [usize; 3]) -> Option<[f64; 8]> {
        let mut rows = [[0.0; 9]; 8];
        for (k, ([right, low], corner)) in CORNERS.iter().zip(self.corners).enumerate() {
            let [x, y] = corner.map(|place| place as f64);
            let to = |far: bool, side: usize| if far { (side - 1) as f64 } else { 0.0 };
            let (u, v) = (to(*right, w), to(*low, h));
            rows[2 * k] = [x, y, 1.0, 0.0, 0.0, 0.0, -u * x, -u * y, u];
            rows[2 * k + 1] = [0.0, 0.0, 0.0, x, y, 1.0, -v * x, -v * y, v];
        }
        // Gauss and Jordan's elimination with the largest pivot of each column.
        for column in 0..8 {
            let size = |row: &usize| rows[*row][column].abs();
            let pivot = (column..8).max_by(|a, b| size(a).total_cmp(&size(b)))?;
            if size(&pivot) < 1e-9 {
                return None;
            }
            rows.swap(column, pivot);
            let own = rows[column].map(|number| number / rows[column][column]);
            rows[column] = own;
            for row in (0..8).filter(|row| *row != column) {
                let factor = rows[row][column];
                rows[row].iter_mut().zip(own).for_each(|(number, own)| *number -= factor * own);
            }
        }
        Some(rows.map(|row| f64::from(row[8] as f32)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{bytes, golden, list, shape, wrong};

    #[test]
    fn perspectives_have_the_bytes_of_torchvision() {
        let golden = golden();
        for case in golden["perspectives"].as_array().unwrap() {
            let perspective = Perspective { corners: list(&case["corners"]) };
            let mut image = bytes(&golden["image"]);
            perspective.paint(shape(&golden), &mut image, &mut Vec::new());
            let expected = bytes(&case["out"]);
            if perspective.corners == [[0, 0], [17, 0], [17, 17], [0, 17]] {
                // Where no corner moves, torchvision's numbers are off by 1e-15, and bytes cut to the one below.
                assert_eq!(image, bytes(&golden["image"]));
                assert!(image.iter().zip(expected).all(|(&got, expected)| got.abs_diff(expected) <= 1));
            } else {
                assert_eq!(wrong(&image, &expected), 0, "{perspective}");
            }
        }
    }

    #[test]
    fn corners_go_up_to_half_of_the_side() {
        let transform = RandomPerspective { distortion_scale: 1.0 };
        let (mut most, mut all) = (0, vec![]);
        for sample in 0..500 {
            let draws = transform.draw([9, 8, 1], 2, 0, sample);
            let text = format!("{draws}");
            all.push(text.clone());
            let first = text.split(['(', ',']).nth(1).unwrap().parse::<usize>().unwrap();
            most = most.max(first);
        }
        assert_eq!(most, 4);
        all.dedup();
        assert!(all.len() > 490);
        // Even the smallest pictures have a perspective, or stay.
        for shape in [[1, 1, 1], [1, 2, 3], [2, 2, 1]] {
            let pipeline = transform.build(shape).unwrap();
            let (mut out, image) = (vec![0.0; pipeline.image_len()], vec![9; pipeline.image_len()]);
            for sample in 0..50 {
                let draws = transform.draw(shape, 2, 0, sample);
                pipeline.apply(&draws, &image, &mut out, &mut crate::Scratch::default()).unwrap();
            }
        }
    }
}
