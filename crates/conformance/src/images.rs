//! Batches cut out of a set of images that lies on the device.

use crate::operand::*;
use crate::{Bench, Case, Output, Source, Subject};
use core::ops::Range;
use program::ops::CrossEntropy;
use program::{
    Arena, AxisDraw, Execute, Fill, ImageDraw, ImageSet, LoadImages, Result, Shape, Span, StepArgs, Target,
    ViewMut,
};
use proptest::prelude::*;

/// A batch of a set, placed in a table of draws.
#[derive(Clone, Debug)]
struct Batch {
    load: LoadImages,
    place: Placement,
    /// The rows of the table before the batch's.
    first: usize,
    draws: Vec<ImageDraw>,
}

/// Images in the set.
const SET: usize = 6;

/// What a device made of a batch: the images, and the loss of logits against the labels.
type Loaded = (Output, Vec<Output>);

impl Batch {
    /// The batch on a device that holds the set.
    fn load<B: Execute>(&self, bench: &Bench<B>) -> Result<Loaded> {
        let (device, len, n) = (bench.device, self.load.image_len(), self.draws.len());
        let mut images = device.alloc_bytes(SET * len)?;
        let bytes: Vec<u8> = numbers("images", SET * len).iter().map(|x| (128.0 + 60.0 * x) as u8).collect();
        device.upload_bytes(&bytes[..len], &mut images, 0)?;
        device.upload_bytes(&bytes[len..], &mut images, len)?;
        let labels = bench.labels(&[3, 1, 4, 1, 5, 9])?;
        let unused = ImageDraw { image: u32::MAX, ..ImageDraw::default() };
        let table = vec![unused; self.first].into_iter().chain(self.draws.iter().cloned());
        let draws = bench.labels(&table.flat_map(|draw| draw.to_words()).collect::<Vec<_>>())?;
        let means = numbers("means", 2 * len);
        let means = bench
            .buffer_of((0..2 * len).map(|k| if k < len { 10.0 * means[k] } else { means[k] }).collect())?;
        let operand = Operand::draw("x", self.load.shape(n), self.place);
        let before: Vec<f32> = operand.values.iter().map(|&x| bench.round(x)).collect();
        let mut x = device.alloc_activations(before.len())?;
        device.upload(&before, &mut x, 0)?;
        let mut to = device.alloc_ints(n.max(1) * Target::WORDS)?;
        device.load_images(
            &self.load,
            ImageSet { images: &images, labels: &labels, means: &means.data },
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
        Ok((x, against_labels(bench, n, to)?))
    }
}

/// The loss of some logits and their gradient, which tell the labels.
fn against_labels<B: Execute>(bench: &Bench<B>, n: usize, labels: B::Ints) -> Result<Vec<Output>> {
    let (shape, mut ops) = (Shape::vectors(n, 10), bench.ops(n, ALONE));
    let (logits, gradient) = (ops.draw("logits", shape), ops.draw("gradient", shape));
    let of_batch = ops.labels(&[]);
    let metrics = ops.numbers(Arena::Gradients, "metrics", 2);
    ops.set(CrossEntropy { gradient: true }, &[logits, of_batch], &[gradient, metrics]);
    let args = StepArgs { global_batch: 8, ..StepArgs::inference(n) };
    let mut done = ops.start()?;
    done.run.labels = labels;
    done.run(&args)?;
    let gradient = done.output(gradient, "dlogits", 1e-6)?.times(1.0 / bench.loss_scale);
    Ok(vec![done.output(metrics, "metrics", 1e-6)?, gradient])
}

impl Case for Batch {
    fn run<B: Execute>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
        let (x, mut outputs) = self.load(bench)?;
        outputs.push(x);
        Ok(outputs)
    }
}

fn axis() -> impl Strategy<Value = AxisDraw> {
    let weight = prop_oneof![Just(0.0_f32), 0.0..0.999_f32];
    let blank = (0..9_u32, 0..5_u32).prop_map(|(start, len)| Range { start, end: start + len });
    (-25..25_i32, weight, any::<bool>(), -9..9_i32, blank)
        .prop_map(|(shift, weight, flip, crop, blank)| AxisDraw { shift, weight, flip, crop, blank })
}

/// Sizes, moves and edges at random, and batches of none.
pub fn any_batch<B: Execute>(subject: &Subject<B>) {
    let fill = prop_oneof![
        (-9.0..9.0_f32).prop_map(Fill::Constant),
        Just(Fill::Nearest),
        Just(Fill::Reflect),
        Just(Fill::Wrap),
        Just(Fill::Mirror),
    ];
    let draw = (0..SET as u32, axis(), axis());
    let draw = draw.prop_map(|(image, rows, columns)| ImageDraw { image, rows, columns });
    let load = (1..12_usize, 1..12_usize, 1..5_usize, fill, 0.005..2.0_f32);
    let cases = (load, placement(), 0..3_usize, prop::collection::vec(draw, 0..5));
    let case = |((height, width, channels, fill, scale), place, first, draws)| {
        let load = LoadImages { height, width, channels, fill, scale };
        Batch { load, place, first, draws }
    };
    subject.agree_on(96, cases.prop_map(case));
}

/// A draw of an image that the set lacks is refused, or shows in the images and the loss.
pub fn a_draw_that_makes_no_sense_is_seen<B: Execute>(subject: &Subject<B>) {
    let load = LoadImages { height: 4, width: 4, channels: 3, fill: Fill::Nearest, scale: 1.0 };
    let good = ImageDraw { image: 2, ..ImageDraw::default() };
    let absent = ImageDraw { image: SET as u32, ..ImageDraw::default() };
    let batch = Batch { load, place: ALONE, first: 1, draws: vec![good.clone(), absent, good] };
    assert!(batch.load(&subject.reference()).is_err());
    for bench in subject.benches() {
        let Ok((x, loss)) = batch.load(&bench) else { continue };
        let lost = |k: usize| (48..96).contains(&k);
        assert!(x.values.iter().enumerate().all(|(k, x)| x.is_nan() == lost(k)), "{x:?}");
        assert!(loss[0].values[0].is_nan(), "{loss:?}");
    }
}
