//! The embedded data set: ten drawn figures, for trials and tests without any file.
//!
//! Every image shows one figure of random place, size, colour and polarity on a random background, under
//! noise. A figure is brighter than its background as often as darker, so the ten classes have the same mean
//! image. A linear model of the pixels therefore stays below 17%. The CNN of Keras' CIFAR-10 example reaches
//! 96 to 99% in two epochs at a learning rate of 1e-3 (`tests/golden/cifar_synthetic.py` measures both).
//!
//! Only `+ - * /`, square roots and comparisons touch the pixels; IEEE 754 defines them to the last bit, so
//! the images are the same on every machine.

use towers_philox::{Philox, domain};

use towers_dataset::{Dataset, Split};

use crate::sizes::{CHANNELS, IMAGE_BYTES, SIDE};

/// The number of training images of the default synthetic set.
pub const SYNTHETIC_TRAIN: usize = 10_000;
/// The number of test images of the default synthetic set.
pub const SYNTHETIC_TEST: usize = 2_000;

const CLASSES: [&str; 10] = [
    "disc",
    "ring",
    "square",
    "frame",
    "triangle",
    "plus",
    "cross",
    "horizontal_stripes",
    "vertical_stripes",
    "checkerboard",
];

/// Ten classes of drawn figures, `train` + `test` images of them: a pure function of `seed`.
///
/// Each ten images in a row show each class once. An image depends on the seed, the split and its index
/// alone: a smaller set is the beginning of a larger one.
///
/// ```
/// let data = towers_cifar::synthetic(7, towers_cifar::SYNTHETIC_TRAIN / 100, 20);
/// assert_eq!(data.train.images.dim(), (100, 32, 32, 3));
/// assert_eq!(data.classes[usize::from(data.test.labels[4])], "triangle");
/// ```
pub fn synthetic(seed: u64, train: usize, test: usize) -> Dataset {
    let train = split(seed, domain("synthetic train"), train);
    let test = split(seed, domain("synthetic test"), test);
    Dataset::new("synthetic", train, test, CLASSES).expect("each label is drawn from the classes")
}

fn split(seed: u64, purpose: u32, n: usize) -> Split {
    let mut images = Vec::with_capacity(n * IMAGE_BYTES);
    let labels: Vec<u16> = (0..n).map(|k| (k % CLASSES.len()) as u16).collect();
    for (k, &label) in labels.iter().enumerate() {
        draw(&mut Philox::new(seed, purpose, [k as u64, 0]), label, &mut images);
    }
    Split::of_pixels([SIDE, SIDE, CHANNELS], images, labels).expect("each label has an image")
}

/// Appends one image of class `label`.
fn draw(rng: &mut Philox, label: u16, images: &mut Vec<u8>) {
    let figure = Figure::random(rng, label);
    let background = Background::random(rng);
    let polarity = if rng.below(2) == 0 { -1.0 } else { 1.0 };
    let contrast: [f32; CHANNELS] = std::array::from_fn(|_| polarity * between(rng, 60.0, 100.0));
    for y in 0..SIDE {
        for x in 0..SIDE {
            let coverage = figure.coverage(x as f32, y as f32);
            for (channel, contrast) in contrast.iter().enumerate() {
                let noise = between(rng, -10.0, 10.0);
                // `as u8` saturates and truncates; the added half makes it round.
                images.push((background.at(x, y, channel) + coverage * contrast + noise + 0.5) as u8);
            }
        }
    }
}

/// A uniform number in [`low`, `high`).
fn between(rng: &mut Philox, low: f32, high: f32) -> f32 {
    low + (high - low) * rng.unit_f32()
}

/// A colour that wavers softly over the image: bilinear between the random colours of a coarse grid.
struct Background {
    knots: [[[f32; CHANNELS]; Background::KNOTS]; Background::KNOTS],
}

impl Background {
    const KNOTS: usize = 4;

    fn random(rng: &mut Philox) -> Background {
        let colour: [f32; CHANNELS] = std::array::from_fn(|_| between(rng, 100.0, 155.0));
        Background {
            knots: std::array::from_fn(|_| {
                std::array::from_fn(|_| colour.map(|level| level + between(rng, -20.0, 20.0)))
            }),
        }
    }

    fn at(&self, x: usize, y: usize, channel: usize) -> f32 {
        let cell = |t: usize| {
            let t = (t * (Self::KNOTS - 1)) as f32 / SIDE as f32;
            (t as usize, t - (t as usize) as f32)
        };
        let ((column, u), (row, v)) = (cell(x), cell(y));
        let mix = |row: &[[f32; CHANNELS]]| row[column][channel] * (1.0 - u) + row[column + 1][channel] * u;
        mix(&self.knots[row]) * (1.0 - v) + mix(&self.knots[row + 1]) * v
    }
}

/// A figure in its place.
struct Figure {
    label: u16,
    x: f32,
    y: f32,
    /// Half the side of the square that holds the figure.
    radius: f32,
    /// Length of a stripe and the gap after it, in pixels, and where the first one begins.
    period: f32,
    phase: [f32; 2],
    /// Whether a triangle stands on its tip.
    inverted: bool,
}

impl Figure {
    fn random(rng: &mut Philox, label: u16) -> Figure {
        let radius = between(rng, 8.5, 12.5);
        let margin = SIDE as f32 - 1.0 - radius;
        Figure {
            label,
            radius,
            x: between(rng, radius, margin),
            y: between(rng, radius, margin),
            period: between(rng, 4.0, 6.5),
            phase: [between(rng, 0.0, 6.5), between(rng, 0.0, 6.5)],
            inverted: rng.below(2) == 0,
        }
    }

    /// How much of the pixel at (`x`, `y`) the figure covers: 0 to 1, about one pixel wide at the edges.
    fn coverage(&self, x: f32, y: f32) -> f32 {
        let (dx, dy, r) = (x - self.x, y - self.y, self.radius);
        let (ax, ay) = (dx.abs(), dy.abs());
        let distance = (dx * dx + dy * dy).sqrt();
        let window = inside(ax.max(ay) - r);
        let (rows, columns) = (self.stripes(dy, 1), self.stripes(dx, 0));
        match self.label {
            0 => inside(distance - r),
            1 => inside((distance - 0.8 * r).abs() - 0.2 * r),
            2 => inside(ax.max(ay) - 0.88 * r),
            3 => inside((ax.max(ay) - 0.75 * r).abs() - 0.17 * r),
            4 => self.triangle(ax, dy),
            5 => plus(ax, ay, r),
            6 => plus((dx + dy).abs() * DIAGONAL, (dx - dy).abs() * DIAGONAL, r),
            7 => window * rows,
            8 => window * columns,
            _ => window * (rows * (1.0 - columns) + columns * (1.0 - rows)),
        }
    }

    /// Isosceles, as high and as wide as the square around it.
    fn triangle(&self, ax: f32, dy: f32) -> f32 {
        let (dy, r) = (if self.inverted { -dy } else { dy }, self.radius);
        let side = (2.0 * ax - (dy + r)) / 5.0_f32.sqrt();
        inside(side.max(dy - r))
    }

    /// Stripes across one axis at `offset` from the centre.
    fn stripes(&self, offset: f32, axis: usize) -> f32 {
        // Positive everywhere on the image, so that truncation is the floor.
        let turns = (offset + self.phase[axis]) / self.period + 32.0;
        let fraction = turns - (turns as u32) as f32;
        inside(((fraction - 0.5).abs() - 0.25) * self.period)
    }
}

/// Half the square root of 2: the sine and cosine of 45 degrees.
const DIAGONAL: f32 = std::f32::consts::FRAC_1_SQRT_2;

/// Two bars that cross at their middles.
fn plus(ax: f32, ay: f32, r: f32) -> f32 {
    let thick = 0.27 * r;
    inside((ax - thick).max(ay - r).min((ay - thick).max(ax - r)))
}

/// The coverage of a pixel at a signed `distance` from an edge, negative inside.
fn inside(distance: f32) -> f32 {
    (0.5 - distance).clamp(0.0, 1.0)
}
