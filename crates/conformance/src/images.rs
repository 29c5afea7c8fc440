//! Batches cut out of a set of images that lies on the device.

use crate::operand::*;
use crate::{Bench, Case, Output, Source, Subject};
#[cfg(feature = "random")]
use proptest::prelude::*;
use towers_program::ops::CrossEntropy;
use towers_program::{
    Arena, ImageSet, Ints, LoadImages, Place, Result, Shape, Span, StepArgs, Target, ViewMut,
};

/// A batch of a set, placed in a table of draws.
#[derive(Clone, Debug)]
struct Batch {
    load: LoadImages,
    place: Placement,
    /// The rows of the table before the batch's.
    first: usize,
    draws: Vec<Draw>,
}

/// The number of an image, and the places of its rows and columns.
type Draw = (u32, Vec<Place>);

/// Images in the set.
const SET: usize = 6;

/// What a device made of a batch: the images, and the loss of logits against the labels.
type Loaded = (Output, Vec<Output>);

impl Batch {
    /// The batch on a device that holds the set.
    fn load(&self, bench: &Bench) -> Result<Loaded> {
        let (device, len, n) = (bench.device, self.load.image_len(), self.draws.len());
        let mut images = device.alloc_bytes(SET * len)?;
        let bytes: Vec<u8> = numbers("images", SET * len).iter().map(|x| (128.0 + 60.0 * x) as u8).collect();
        device.upload_bytes(&bytes[..len], &mut images, 0)?;
        device.upload_bytes(&bytes[len..], &mut images, len)?;
        let labels = [3, 1, 4, 1, 5, 9].map(|label| match self.load.label {
            1 => vec![label],
            _ => Target { weights: [0.5 * label as f32; 2], ..Target::label(label) }.to_words().to_vec(),
        });
        let labels = bench.labels(&labels.concat())?;
        let words = self.load.words();
        let mut table = vec![u32::MAX; (self.first + n) * words];
        for (row, (image, places)) in table.chunks_mut(words).skip(self.first).zip(&self.draws) {
            self.load.write_draw(row, *image, places.iter().copied());
        }
        let draws = bench.labels(&table)?;
        let mut planes = numbers("planes", 3 * len);
        planes[..len].iter_mut().for_each(|mean| *mean *= 10.0);
        planes[2 * len..].iter_mut().for_each(|divisor| *divisor = 0.5 + divisor.abs());
        let planes = bench.buffer_of(planes)?;
        let operand = Operand::draw("x", self.load.shape(n), self.place);
        let before: Vec<f32> = operand.values.iter().map(|&x| bench.round(x)).collect();
        let mut x = device.alloc_activations(before.len())?;
        device.upload(&before, &mut x, 0)?;
        let mut to = device.alloc_ints(n.max(1) * Target::WORDS)?;
        device.load_images(
            &self.load,
            ImageSet { images: &images, labels: &labels, planes: &planes.data },
            &draws,
            self.first,
            ViewMut::new(&mut x, operand.layout),
            &mut to,
        )?;
        let now = bench.download(&x, Span::new(0, before.len()))?;
        let is_inside = |k: usize| {
            let at = operand.layout;
            !at.shape.is_empty()
                && (at.offset..at.end()).contains(&k)
                && (k - at.offset) % at.stride < at.shape.c
        };
        let (mut values, mut outside) = (Vec::new(), 0);
        for (k, (now, before)) in now.iter().zip(&before).enumerate() {
            if is_inside(k) {
                values.push(*now);
            } else {
                outside += usize::from(now.to_bits() != before.to_bits());
            }
        }
        assert_eq!(outside, 0, "elements outside of the batch were written to");
        let x = Output { name: "x", values, tolerance: 1e-5, source: Source::Stored };
        Ok((x, against_labels(bench, n, to, self.load.label > 1)?))
    }
}

/// The loss of some logits and their gradient, which tell the labels.
fn against_labels(bench: &Bench, n: usize, labels: Ints, targets: bool) -> Result<Vec<Output>> {
    let (shape, mut ops) = (Shape::vectors(n, 10), bench.ops(n, ALONE));
    let (logits, gradient) = (ops.draw("logits", shape), ops.draw("gradient", shape));
    let of_batch = ops.labels(&[]);
    let metrics = ops.numbers(Arena::Gradients, "metrics", 2);
    ops.set(CrossEntropy { gradient: true, multi_label: false }, [logits, of_batch], [gradient, metrics]);
    let args = StepArgs { global_batch: 8, targets, ..StepArgs::inference(n) };
    let mut done = ops.start()?;
    done.run.labels = labels;
    done.run(&args)?;
    let gradient = done.output(gradient, "dlogits", 1e-6)?.times(1.0 / bench.loss_scale);
    Ok(vec![done.output(metrics, "metrics", 1e-6)?, gradient])
}

impl Case for Batch {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (x, mut outputs) = self.load(bench)?;
        outputs.push(x);
        Ok(outputs)
    }
}

/// A place of an axis with `len` pixels.
#[cfg(feature = "random")]
fn place(len: usize) -> impl Strategy<Value = Place> {
    let position = prop_oneof![
        1 => Just(None),
        2 => (0..len as u32).prop_map(|pixel| Some((pixel, 0.0))),
        4 => (0..len as u32, 0.0..1.0_f32).prop_map(move |(pixel, weight)| {
            Some((pixel, if pixel as usize + 1 < len { weight } else { 0.0 }))
        }),
    ];
    (position, any::<bool>()).prop_map(|(position, blank)| Place { position, blank })
}

/// Each row a pixel further down and half a pixel across, with the columns in reverse and a blank patch.
pub fn shifted_and_flipped(subject: &Subject) {
    let load = |label| LoadImages { height: 9, width: 8, channels: 3, constant: 0.5, scale: 0.1, label };
    let rows = (0..9).map(|row| Place { position: (row < 8).then_some((row + 1, 0.0)), blank: row == 2 });
    let columns = (0..8).rev().map(|column| {
        let weight = if column < 7 { 0.5 } else { 0.0 };
        Place { position: Some((column, weight)), blank: column > 4 }
    });
    let places: Vec<Place> = rows.chain(columns).collect();
    let draws = [4, 0, 5].map(|image| (image, places.clone())).to_vec();
    for (place, label) in [(ALONE, 1), (SLICE, Target::WORDS)] {
        subject.agree(&Batch { load: load(label), place, first: 1, draws: draws.clone() });
    }
}

/// Sizes, places and constants at random, and batches of none.
#[cfg(feature = "random")]
pub fn any_batch(subject: &Subject) {
    let label = prop_oneof![Just(1), Just(Target::WORDS)];
    let load = (1..12_usize, 1..12_usize, 1..5_usize, -9.0..9.0_f32, 0.005..2.0_f32, label);
    let load = load.prop_map(|(height, width, channels, constant, scale, label)| LoadImages {
        height,
        width,
        channels,
        constant,
        scale,
        label,
    });
    let cases = load.prop_flat_map(|load| {
        let axis = |len| prop::collection::vec(place(len), len);
        let draw = (0..SET as u32, axis(load.height), axis(load.width))
            .prop_map(|(image, rows, columns)| (image, [rows, columns].concat()));
        let draws = prop::collection::vec(draw, 0..5);
        (placement(), 0..3_usize, draws).prop_map(move |(place, first, draws)| Batch {
            load,
            place,
            first,
            draws,
        })
    });
    subject.agree_on(96, cases);
}

/// An image that the set lacks, a row or a column out of range, or a weight that is no number is refused, or shows
/// in the images and the loss.
pub fn a_draw_that_makes_no_sense_is_seen(subject: &Subject) {
    let load = LoadImages { height: 4, width: 4, channels: 3, constant: 0.0, scale: 1.0, label: 1 };
    let good = vec![Place { position: Some((1, 0.5)), blank: false }; 8];
    let with = |at: usize, position| {
        let mut places = good.clone();
        places[at].position = Some(position);
        (2, places)
    };
    for wrong in [
        (SET as u32, good.clone()),
        (u32::MAX, good.clone()),
        with(1, (4, 0.0)),
        with(0, (u32::MAX >> 2, 0.5)),
        with(6, (4, 0.5)),
        with(2, (0, f32::NAN)),
    ] {
        let is_absent = wrong.0 >= SET as u32;
        let draws = vec![(2, good.clone()), wrong, (2, good.clone())];
        let batch = Batch { load, place: ALONE, first: 1, draws };
        assert!(batch.load(&subject.reference()).is_err());
        for bench in subject.benches() {
            let loaded = batch.load(&bench);
            if !bench.device.runs_ahead() {
                assert!(loaded.is_err(), "it is not refused");
                continue;
            }
            let (x, loss) = loaded.unwrap_or_else(|error| panic!("it does not show: {error}"));
            let (left, rest) = x.values.split_at(48);
            let (middle, right) = rest.split_at(48);
            assert!(left.iter().all(|x| x.is_finite()) && left == right, "{x:?}");
            assert!(middle.iter().any(|x| x.is_nan()), "{x:?}");
            if is_absent {
                assert!(middle.iter().all(|x| x.is_nan()) && loss[0].values[0].is_nan(), "{x:?} {loss:?}");
            }
        }
    }
}
