//! Class activation maps against numeric derivatives of the class scores.
#![allow(clippy::unwrap_used)]

use towers_layers::{
    BatchNormalization, Concatenate, Conv2D, Dense, Draws, Dropout, Error, Flatten, GlobalAveragePooling2D,
    Graph, MaxPooling2D, Mode, Network, Value,
};
use towers_program::{Activation::Relu, Device};
use towers_testkit::on_every_device;

const SIZE: usize = 6;
const CHANNELS: usize = 3;
const LEN: usize = SIZE * SIZE * CHANNELS;
const BATCH: usize = 2;

/// A convolution that copies the image, then all that a head may have.
fn head(classes: usize) -> (Graph, Value) {
    let mut graph = Graph::new("test", [SIZE, SIZE, CHANNELS]);
    let x = graph.add_named("copy", Conv2D::new(CHANNELS, 1), graph.input()).unwrap();
    let x = graph.add(Dropout::new(0.5), x).unwrap();
    let x = graph.add(MaxPooling2D::new(2), x).unwrap();
    let x = graph.add(Flatten, x).unwrap();
    let x = graph.add(Dense::new(7).activation(Relu), x).unwrap();
    let x = graph.add(BatchNormalization::new(), x).unwrap();
    let x = graph.add(Dropout::new(0.5), x).unwrap();
    let logits = graph.add(Dense::new(classes), x).unwrap();
    (graph, logits)
}

fn built(device: &Device, classes: usize) -> Network {
    let (graph, logits) = head(classes);
    let mut network = graph.build(logits, device, BATCH, Mode::Inference).unwrap();
    network.init(5).unwrap();
    for slot in network.arena().slots().to_vec() {
        let values: Option<Vec<f32>> = match &*slot.name {
            "copy/kernel" => {
                Some((0..CHANNELS * CHANNELS).map(|k| f32::from(u8::from(k % (CHANNELS + 1) == 0))).collect())
            }
            "batch_normalization/moving_mean" => Some((0..7_u8).map(|k| 0.1 * f32::from(k)).collect()),
            "batch_normalization/moving_variance" => Some((0..7_u8).map(|k| 0.5 + f32::from(k)).collect()),
            _ => None,
        };
        if let Some(values) = values {
            network.arena_mut().load(device, &slot, &values).unwrap();
        }
    }
    network
}

fn images() -> Vec<f32> {
    towers_testkit::pattern(1, BATCH * LEN, 1.0).into_iter().map(|value| value as f32).collect()
}

/// The maps of the activations `images`, with the derivatives of the scores by differences.
fn expected(network: &mut Network, images: &[f32], classes: &[usize]) -> Vec<f64> {
    const STEP: f32 = 1e-3;
    let known = network.classes();
    let mut maps = Vec::new();
    for (sample, (image, &class)) in images.chunks(LEN).zip(classes).enumerate() {
        let mut score = |place: usize, by: f32| {
            let mut images = images.to_vec();
            images[sample * LEN + place] += by;
            network.set_input(&images, &[0; BATCH]).unwrap();
            network.evaluate_pass().unwrap();
            let scores = network.scores().unwrap();
            let row = &scores[sample * known..][..known];
            // A single score is that of class 1. The score of class 0 is its opposite.
            f64::from(if row[0] == 0.0 && class == 0 && known == 2 { -row[1] } else { row[class] })
        };
        let mut weights = [0.0; CHANNELS];
        for place in 0..LEN {
            let derivative = (score(place, STEP) - score(place, -STEP)) / (2.0 * f64::from(STEP));
            weights[place % CHANNELS] += derivative / (SIZE * SIZE) as f64;
        }
        let pixel =
            |pixel: &[f32]| pixel.iter().zip(weights).map(|(&x, weight)| f64::from(x) * weight).sum::<f64>();
        maps.extend(image.chunks(CHANNELS).map(|values| pixel(values).max(0.0)));
    }
    maps
}

#[test]
fn maps_are_those_of_numeric_derivatives() {
    on_every_device(|device| {
        for (count, classes) in [(4, [2, 0]), (1, [1, 0])] {
            let mut network = built(device, count);
            let mut maps = network.grad_cam(BATCH).unwrap().unwrap();
            assert_eq!(maps.map_size(), [SIZE, SIZE]);
            let own = maps.maps(&images(), &classes).unwrap();
            let expected = expected(&mut network, &images(), &classes);
            let largest = expected.iter().copied().fold(0.0, f64::max);
            assert!(largest > 0.0 && own.len() == expected.len());
            for (k, (own, expected)) in own.iter().zip(&expected).enumerate() {
                assert!(
                    (f64::from(*own) - expected).abs() < 2e-3 * largest,
                    "{count} scores, {k}: {own}, {expected}"
                );
            }
            // A part of a batch has the same maps.
            assert_eq!(maps.maps(&images()[..LEN], &classes[..1]).unwrap(), own[..SIZE * SIZE]);
        }
    });
}

/// With global average pooling and one dense layer, the maps are those of B. Zhou et al., "Learning Deep Features for Discriminative
/// Localization" (2016), but for the number of pixels.
#[test]
fn behind_branches_and_an_average_maps_are_weighted_sums() {
    let device = towers_tensor_cpu::device(1);
    let mut graph = Graph::new("test", [SIZE, SIZE, CHANNELS]);
    let x = graph.add(MaxPooling2D::new(2), graph.input()).unwrap();
    let a = graph.add(Conv2D::new(2, 1).activation(Relu), x).unwrap();
    let b = graph.add(Conv2D::new(2, 3).same(), x).unwrap();
    let x = graph.add(Concatenate, [a, b]).unwrap();
    let (pooled, size) = (graph.add(GlobalAveragePooling2D, x).unwrap(), graph.shape(x));
    let logits = graph.add(Dense::new(5), pooled).unwrap();
    let mut network = graph.build(logits, &device, BATCH, Mode::Inference).unwrap();
    network.init(5).unwrap();
    let mut maps = network.grad_cam(BATCH).unwrap().unwrap();
    assert_eq!((maps.map_size(), size.c), ([3, 3], 4));
    let own = maps.maps(&images(), &[3, 1]).unwrap();

    // The same layers up to the branches give their values.
    let (features, end) =
        graph.split(logits, &[graph.cut_behind("concatenate", logits).unwrap()]).unwrap().remove(0);
    let mut features = features.build_stage(end, &device, BATCH, Mode::Inference, 1).unwrap();
    let read = |network: &Network, name: &str| {
        let slot = network.arena().slots().iter().find(|slot| slot.name == name).unwrap();
        network.arena().storage(slot).to_vec(&device, slot.span.offset, slot.span.len).unwrap()
    };
    for slot in features.arena().slots().to_vec() {
        features.arena_mut().load(&device, &slot, &read(&network, &slot.name)).unwrap();
    }
    features.set_input(&images(), &[0; BATCH]).unwrap();
    features.evaluate_pass().unwrap();
    let values = features.scores().unwrap();
    let kernel = read(&network, "dense/kernel");
    for (k, own) in own.iter().enumerate() {
        let class = if k < 9 { 3 } else { 1 };
        let sum: f32 = (0..4).map(|c| values[k * 4 + c] * kernel[c * 5 + class]).sum();
        assert!((own - (sum / 9.0).max(0.0)).abs() < 1e-6, "{k}: {own}, {sum}");
    }
    assert!(own.iter().any(|&value| value > 0.0) && own.contains(&0.0));
}

#[test]
fn maps_need_a_convolution_and_a_class() {
    let device = towers_tensor_cpu::device(1);
    let mut graph = Graph::new("linear", [SIZE, SIZE, CHANNELS]);
    let x = graph.add(Flatten, graph.input()).unwrap();
    let logits = graph.add(Dense::new(3), x).unwrap();
    let network = graph.build(logits, &device, 1, Mode::Inference).unwrap();
    assert!(network.grad_cam(1).unwrap().is_none());
    let mut maps = built(&device, 4).grad_cam(1).unwrap().unwrap();
    assert!(matches!(maps.maps(&images()[..LEN], &[4]), Err(Error::Label { label: 4, classes: 4 })));
    assert!(matches!(maps.maps(&images(), &[0, 1]), Err(Error::Batch { .. })));
    assert!(maps.maps(&[], &[]).unwrap().is_empty());
}

/// The passes of inference with gradients: a loss without dropout and batch statistics, and its derivatives.
#[test]
fn inference_has_an_input_gradient() {
    on_every_device(|device| {
        let (graph, logits) = head(4);
        let mut network = graph.build(logits, device, BATCH, Mode::InferenceWithInputGradient).unwrap();
        network.init(5).unwrap();
        let loss = |network: &mut Network, place: usize, by: f32| {
            let mut images = images();
            images[place] += by;
            network.set_input(&images, &[1, 3]).unwrap();
            network.evaluate_pass().unwrap();
            network.metrics().unwrap().loss_sum
        };
        let whole = loss(&mut network, 0, 0.0);
        network.train_pass(Draws { seed: 1, step: 0, first_sample: 0 }, 0.0, BATCH).unwrap();
        assert!((network.metrics().unwrap().loss_sum - whole).abs() < 1e-5);
        let layout = network.input_gradient().unwrap();
        let gradient = layout.data.to_vec(device, layout.layout.offset, BATCH * LEN).unwrap();
        let largest = gradient.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
        assert!(largest > 0.0);
        for place in (0..BATCH * LEN).step_by(7) {
            let derivative = (loss(&mut network, place, 0.01) - loss(&mut network, place, -0.01)) / 0.02;
            let own = BATCH as f64 * f64::from(gradient[place]);
            assert!(
                (own - derivative).abs() < 0.02 * BATCH as f64 * f64::from(largest),
                "{place}: {own}, {derivative}"
            );
        }
    });
}
