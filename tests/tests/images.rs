//! Batches that a device makes of its set equal those of `augment`'s loader, on every device.

use ndarray::Array4;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use towers_augment::{
    Draws, FillMode, ImageDataGenerator, Loader, LoaderOptions, Mean, Pipeline, Samples, Scratch, ShiftRange,
};
use towers_program::{
    Arena, Bytes, Device, Error, GraphCache, ImageSet, Ints, Layout, LoadImages, Place, Precision,
    ReplayArgs, Result, StepArgs, Storage, Target, Trial, ViewMut, Write, ops::CrossEntropy,
};

const CLASSES: usize = 10;

/// Every device, and its largest deviation from the pipeline, relative to the largest value.
fn devices() -> Vec<(Device, f32)> {
    let mut devices = vec![
        (towers_tensor_cpu::reference(), 1e-5),
        (towers_tensor_cpu::device(1), 1e-5),
        (towers_tensor_cpu::device(3), 1e-5),
    ];
    for (precision, tolerance) in [(Precision::Fp32, 1e-5), (Precision::Bf16, 4e-3), (Precision::Fp16, 5e-4)]
    {
        match towers_tensor_cuda::emulated(precision) {
            Ok(device) => devices.push((device, tolerance)),
            Err(why) => println!("SKIPPED: emulated cuda in {precision}: {why}"),
        }
    }
    devices
}

fn load_images(pipeline: &Pipeline) -> LoadImages {
    let [height, width, channels] = pipeline.shape();
    let constant = pipeline.options().cval;
    LoadImages { height, width, channels, constant, scale: pipeline.scale(), label: 1 }
}

/// The content of an image's rows and columns.
fn places(pipeline: &Pipeline, draws: &Draws) -> Vec<Place> {
    let place = |place: towers_augment::engine::Place| Place {
        position: place.tap.map(|tap| (tap.low as u32, tap.weight)),
        blank: place.blank,
    };
    pipeline.places(draws).unwrap().map(place).collect()
}

/// A set on a device, with room for a batch.
struct Set {
    load: LoadImages,
    images: Bytes,
    labels: Ints,
    draws: Ints,
    planes: Storage,
    x: Storage,
    to: Ints,
}

/// Guard values between the pixels of a batch, before it and after it, which must not change.
const GAP: usize = 2;

impl Set {
    fn new(device: &Device, samples: &Samples, pipeline: &Pipeline, places: usize, batch: usize) -> Set {
        let load = load_images(pipeline);
        let len = load.image_len();
        let mut set = Set {
            load,
            images: device.alloc_bytes(samples.len() * len).unwrap(),
            labels: device.alloc_ints(samples.len()).unwrap(),
            draws: device.alloc_ints(places * load.words()).unwrap(),
            planes: device.alloc(3 * len).unwrap(),
            x: device.alloc_activations(layout(&load, batch).end() + GAP).unwrap(),
            to: device.alloc_ints(batch * Target::WORDS).unwrap(),
        };
        for sample in 0..samples.len() {
            device
                .upload_bytes(samples.image(sample, &mut Vec::new()).unwrap(), &mut set.images, sample * len)
                .unwrap();
        }
        let labels: Vec<u32> = samples.labels().iter().map(|&label| label.into()).collect();
        device.upload_ints(&labels, &mut set.labels).unwrap();
        device.upload(&pipeline.planes(), &mut set.planes, 0).unwrap();
        set
    }

    fn upload(&mut self, device: &Device, draws: impl Iterator<Item = (u32, Vec<Place>)>) {
        let mut table = Vec::new();
        for (image, places) in draws {
            let mut row = vec![0; self.load.words()];
            self.load.write_draw(&mut row, image, places.into_iter());
            table.extend(row);
        }
        device.upload_ints(&table, &mut self.draws).unwrap();
    }

    fn load(&mut self, device: &Device, first: usize, n: usize) -> Result<()> {
        let x = ViewMut::new(&mut self.x, layout(&self.load, n));
        device.load_images(
            &self.load,
            ImageSet { images: &self.images, labels: &self.labels, planes: &self.planes },
            &self.draws,
            first,
            x,
            &mut self.to,
        )
    }

    /// The batch's images without the gaps, which must still be 0.
    fn batch(&self, device: &Device, n: usize) -> Vec<f32> {
        let at = layout(&self.load, n);
        let mut all = self.x.to_vec(device, 0, at.end() + GAP).unwrap();
        let mut batch = Vec::new();
        for row in 0..at.shape.rows() {
            let pixel = &mut all[at.offset + row * at.stride..][..at.shape.c];
            batch.extend_from_slice(pixel);
            pixel.fill(0.0);
        }
        assert!(all.iter().all(|&x| x == 0.0), "something was written beside the batch");
        batch
    }

    /// The number of the batch's labels that equal these.
    fn right(&mut self, device: &Device, labels: &[u32]) -> f32 {
        let (n, mut trial) = (labels.len(), Trial::new(labels.len()));
        let at = Layout::contiguous(towers_program::Shape::vectors(n, CLASSES));
        let mut values = vec![0.0; at.end()];
        labels.iter().enumerate().for_each(|(k, &label)| values[k * CLASSES + label as usize] = 64.0);
        let (logits, of_batch) = (trial.activations(at, &values), trial.labels(&[]));
        let metrics = trial.run(Arena::Gradients, &[0.0; 2]);
        trial.step(
            CrossEntropy { gradient: false, multi_label: false },
            &[logits, of_batch],
            &[metrics],
            Write::Set,
        );
        let mut run = trial.on(&**device).unwrap();
        core::mem::swap(&mut run.labels, &mut self.to);
        run.run(&StepArgs::inference(n)).unwrap();
        core::mem::swap(&mut run.labels, &mut self.to);
        run.read(metrics, n).unwrap()[1]
    }
}

fn layout(load: &LoadImages, n: usize) -> Layout {
    Layout { offset: GAP, shape: load.shape(n), stride: load.channels + GAP }
}

fn samples(n: usize, [h, w, c]: [usize; 3]) -> Samples {
    let images = Array4::from_shape_fn((n, h, w, c), |(n, y, x, c)| {
        (((n * 31 + y) * 37 + x) * 41 + c * 43).wrapping_mul(2_654_435_761) as u8
    });
    Samples::new(images, (0..n).map(|k| (k * 7 % CLASSES) as u16).collect::<Vec<u16>>()).unwrap()
}

/// Panics at the first number that deviates too much.
fn assert_close(what: &str, device: &Device, got: &[f32], expected: &[f32], tolerance: f32) {
    let largest = expected.iter().fold(256.0 / 255.0, |m: f32, x| m.max(x.abs()));
    assert_eq!(got.len(), expected.len());
    for (k, (got, expected)) in got.iter().zip(expected).enumerate() {
        let far = (got - expected).abs() / largest;
        assert!(far <= tolerance, "{what} on {device:?}: x[{k}] is {got}, not {expected}");
    }
}

fn range() -> impl Strategy<Value = ShiftRange> {
    prop_oneof![
        Just(ShiftRange::Float(0.0)),
        (0.05..0.9_f64).prop_map(ShiftRange::Float),
        (1.0..40.0_f64).prop_map(ShiftRange::Float),
        (1..9_i64).prop_map(ShiftRange::Int),
        Just(ShiftRange::Choices(vec![0.0, 1.5, 7.0])),
        Just(ShiftRange::Choices(vec![0.25, 0.5])),
    ]
}

fn options(shape: [usize; 3]) -> impl Strategy<Value = ImageDataGenerator> {
    let side = shape[0].min(shape[1]);
    let per_pixel: Vec<f32> = (0..shape.iter().product()).map(|k: usize| (k * 97 % 255) as f32).collect();
    let modes = proptest::sample::select(FillMode::ALL.to_vec());
    let switches = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), 0..3);
    (range(), range(), modes, switches, 0..side, 0..=side).prop_map(
        move |(width, height, mode, (horizontal, vertical, rescale, before, after), crop, cutout)| {
            let mut options = ImageDataGenerator::new()
                .width_shift_range(0)
                .fill_mode(mode)
                .cval(17.5)
                .horizontal_flip(horizontal)
                .vertical_flip(vertical)
                .random_crop(crop)
                .cutout(cutout);
            options.width_shift_range = width;
            options.height_shift_range = height;
            if rescale {
                options = options.rescale(1.0 / 255.0);
            }
            if before {
                options = options.subtract_mean_first(Mean::PerPixel { shape, values: per_pixel.clone() });
            }
            let channels = |first: f32| (0..shape[2]).map(|c| first + c as f32).collect();
            if after > 0 {
                options = options.mean(Mean::PerChannel(channels(0.25)));
            }
            if after > 1 {
                options = options.std(channels(0.5));
            }
            options
        },
    )
}

#[derive(Clone, Debug)]
struct Case {
    shape: [usize; 3],
    options: ImageDataGenerator,
    n: usize,
    loader: LoaderOptions,
}

fn case() -> impl Strategy<Value = Case> {
    let shape =
        (1..12_usize, 1..12_usize, prop_oneof![Just(3_usize), 1..6_usize]).prop_map(|(h, w, c)| [h, w, c]);
    let loader = (1..6_usize, any::<u64>(), any::<bool>(), proptest::bool::weighted(0.9), any::<bool>());
    (shape, 1..12_usize, loader).prop_flat_map(|(shape, n, (batch, seed, shuffle, augment, drop_last))| {
        let loader = LoaderOptions::new().batch_size(batch).seed(seed).shuffle(shuffle).augment(augment);
        let loader = loader.drop_last(drop_last).workers(0);
        options(shape).prop_map(move |options| Case { shape, options, n, loader: loader.clone() })
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(20),
        failure_persistence: None,
        ..ProptestConfig::with_cases(200)
    })]

    #[test]
    fn batches_are_those_of_the_loader(case in case()) {
        let Case { shape, options, n, loader: flow } = case;
        let (samples, pipeline) = (samples(n, shape), options.build(shape).unwrap());
        let epoch = 3;
        let order = flow.order(epoch, samples.labels());
        let draw = |&image: &u32| match flow.augment {
            true => (image, places(&pipeline, &pipeline.draw(flow.seed, epoch, image))),
            false => (image, places(&pipeline, &Draws::default())),
        };
        for (device, tolerance) in devices() {
            let mut set = Set::new(&device, &samples, &pipeline, n, flow.batch_size);
            set.upload(&device, order.iter().map(draw));
            let mut loader = Loader::new(samples.clone(), pipeline.clone(), flow.clone()).unwrap();
            let mut steps = 0;
            for batch in loader.epoch(epoch, 0).unwrap() {
                let batch = batch.unwrap();
                let places = flow.batch(batch.step, n);
                set.load(&device, places.start, places.len()).unwrap();
                assert_close("a batch", &device, &set.batch(&device, places.len()), &batch.x, tolerance);
                assert_eq!(set.right(&device, &batch.labels), batch.len() as f32, "labels on {device:?}");
                steps += 1;
            }
            assert_eq!(steps, flow.steps(n));
        }
    }
}

/// Shifts to and over the edges by whole pixels, and by the smallest f64 differences from these.
fn edges(len: usize) -> Vec<f64> {
    let whole =
        [0, 1, 2, 3, 5].iter().flat_map(|k| [k - 1, k - len as i32, len as i32 * k, len as i32 - 1 - k]);
    let near = |at: i32| {
        let at = f64::from(at);
        [
            at,
            at + 1e-15,
            at - 1e-15,
            at + 1e-17,
            at - 1e-17,
            at.next_up(),
            at.next_down(),
            at + 0.5,
            at + 1e-6,
        ]
    };
    whole.flat_map(near).chain([1e9 + 0.25, -1e12 - 0.75]).collect()
}

#[test]
fn positions_at_the_edges_read_the_same_pixels() {
    for shape in [[1, 5, 1], [2, 1, 3], [4, 7, 3]] {
        let samples = samples(1, shape);
        let shifts = [edges(shape[0]), edges(shape[1])];
        let all: Vec<Draws> = (0..shifts[0].len().max(shifts[1].len()) * 4)
            .map(|k| Draws {
                height_shift: shifts[0][k % shifts[0].len()],
                width_shift: shifts[1][(k * 7 + 3) % shifts[1].len()],
                horizontal_flip: k & 1 == 1,
                vertical_flip: k & 2 == 2,
                ..Draws::default()
            })
            .collect();
        for mode in FillMode::ALL {
            let pipeline = ImageDataGenerator::new().fill_mode(mode).cval(-300.0).build(shape).unwrap();
            let mut expected = vec![0.0; all.len() * pipeline.image_len()];
            for (draws, out) in all.iter().zip(expected.chunks_mut(pipeline.image_len())) {
                pipeline
                    .apply(draws, samples.image(0, &mut Vec::new()).unwrap(), out, &mut Scratch::default())
                    .unwrap();
            }
            for (device, tolerance) in devices() {
                let mut set = Set::new(&device, &samples, &pipeline, all.len(), all.len());
                set.upload(&device, all.iter().map(|draws| (0, places(&pipeline, draws))));
                set.load(&device, 0, all.len()).unwrap();
                assert_close(mode.name(), &device, &set.batch(&device, all.len()), &expected, tolerance);
            }
        }
    }
}

#[test]
fn a_recorded_step_walks_through_the_epoch() {
    let shape = [6, 5, 3];
    let (samples, pipeline) =
        (samples(7, shape), ImageDataGenerator::new().random_crop(2).build(shape).unwrap());
    let flow = LoaderOptions::new().batch_size(2).drop_last(true).workers(0);
    let order = flow.order(0, samples.labels());
    for (device, tolerance) in devices() {
        let mut set = Set::new(&device, &samples, &pipeline, order.len(), 2);
        let draw = |&image: &u32| (image, places(&pipeline, &pipeline.draw(flow.seed, 0, image)));
        set.upload(&device, order.iter().map(draw));
        let mut recorder = GraphCache::default();
        for step in 0..flow.steps(samples.len()) {
            let first = flow.batch(step, samples.len()).start;
            let turn = ReplayArgs { first: first as u32, ..ReplayArgs::default() };
            recorder.run::<Error>(&device, "load", &turn, || set.load(&device, first, 2)).unwrap();
            let mut expected = vec![0.0; 2 * pipeline.image_len()];
            for (k, out) in expected.chunks_mut(pipeline.image_len()).enumerate() {
                let image = order[first + k];
                let draws = pipeline.draw(0, 0, image);
                pipeline
                    .apply(
                        &draws,
                        samples.image(image as usize, &mut Vec::new()).unwrap(),
                        out,
                        &mut Scratch::default(),
                    )
                    .unwrap();
            }
            assert_close("a replay", &device, &set.batch(&device, 2), &expected, tolerance);
        }
        assert_eq!(recorder.refusal(), None);
    }
}

#[test]
fn a_replay_past_the_table_reads_nothing() {
    let samples = samples(3, [2, 3, 3]);
    let pipeline = ImageDataGenerator::new().build([2, 3, 3]).unwrap();
    for (device, _) in devices().into_iter().filter(|(device, _)| device.runs_ahead()) {
        let mut set = Set::new(&device, &samples, &pipeline, 3, 2);
        let mut recorder = GraphCache::default();
        for first in [0, 1, 2, u32::MAX] {
            let turn = ReplayArgs { first, ..ReplayArgs::default() };
            recorder.run::<Error>(&device, "load", &turn, || set.load(&device, 0, 2)).unwrap();
            let x = set.batch(&device, 2);
            let nan = x.chunks(pipeline.image_len()).map(|image| image.iter().all(|x| x.is_nan()));
            let inside = |k: u64| u64::from(first) + k < 3;
            assert!(nan.eq([!inside(0), !inside(1)]), "first {first}: {x:?}");
        }
    }
}
