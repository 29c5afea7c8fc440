//! In inference, a convolution with a folded normalization computes the same as both one after the other.
#![allow(clippy::unwrap_used)]

use towers_layers::{
    BatchNormalization, Concatenate, Conv2D, Dense, Draws, Flatten, Graph, MaxPooling2D, Mode, Value,
};
use towers_program::{Activation, Device};
use towers_testkit::{Tolerance, compare, on_every_device, pattern};

const SAMPLES: usize = 5;

/// A convolution and its normalization, for direct sums or transforms. An optional pooling of single pixels
/// changes no number and keeps both apart.
fn module(g: &mut Graph, x: Value, conv: Conv2D, apart: bool) -> Value {
    let mut y = g.add(conv, x).unwrap();
    if apart {
        y = g.add(MaxPooling2D::new(1), y).unwrap();
    }
    g.add(BatchNormalization::new().momentum(0.5).activation(Activation::Relu), y).unwrap()
}

/// Branches into one tensor. One of them also reads a slice beside the one that it writes.
fn graph(apart: bool) -> (Graph, Value) {
    let mut g = Graph::new("test", [12, 12, 3]);
    let input = g.input();
    let x = module(&mut g, input, Conv2D::new(24, 3).same(), apart);
    let a = module(&mut g, x, Conv2D::new(17, 1).use_bias(false), apart);
    let b = module(&mut g, x, Conv2D::new(20, 3).same(), apart);
    let c = module(&mut g, b, Conv2D::new(9, 3).same(), apart);
    let x = g.add(Concatenate, [a, b, c]).unwrap();
    let x = module(&mut g, x, Conv2D::new(6, 3).strides(2), apart);
    let x = g.add(Flatten, x).unwrap();
    let logits = g.add(Dense::new(4), x).unwrap();
    (g, logits)
}

/// The probabilities before and after two steps' running averages, at the end from a network for `mode`.
fn predictions(device: &Device, apart: bool, mode: Mode) -> Vec<f64> {
    let (graph, logits) = graph(apart);
    let mut training = graph.build(logits, device, SAMPLES, Mode::Training).unwrap();
    training.init(3).unwrap();
    let images: Vec<f32> = pattern(1, SAMPLES * 12 * 12 * 3, 1.0).iter().map(|&x| x as f32).collect();
    training.set_input(&images, &[0, 1, 2, 3, 0]).unwrap();
    let mut all = training.predict().unwrap();
    for step in 0..2 {
        training.train_pass(Draws { seed: 3, step, first_sample: 0 }, 0.0, SAMPLES).unwrap();
        training.finish_step(SAMPLES).unwrap();
        all.extend(training.predict().unwrap());
    }
    if mode == Mode::Inference {
        // The same numbers in a network without memory for training.
        let mut network = graph.build(logits, device, SAMPLES, mode).unwrap();
        for slot in training.arena().slots().to_vec() {
            let values =
                training.arena().storage(&slot).to_vec(device, slot.span.offset, slot.span.len).unwrap();
            network.arena_mut().load(device, &slot, &values).unwrap();
        }
        network.set_input(&images, &[0; SAMPLES]).unwrap();
        all.truncate(all.len() - SAMPLES * 4);
        all.extend(network.predict().unwrap());
    }
    all.into_iter().map(f64::from).collect()
}

#[test]
fn folded_normalizations_compute_the_same() {
    on_every_device(|device| {
        let expected = predictions(device, true, Mode::Training);
        let folded = predictions(device, false, Mode::Inference);
        assert!(expected[..4] != expected[20..24], "the running averages make a difference");
        compare("probabilities", &folded, &expected, Tolerance::new(1e-6, 1e-5)).unwrap();
    });
}

#[test]
fn inference_has_no_memory_for_what_is_not_computed() {
    let len = |apart| {
        let (graph, logits) = graph(apart);
        graph.activation_len(logits, SAMPLES, Mode::Inference, true).unwrap()
    };
    assert!(len(false) < len(true), "{} {}", len(false), len(true));
}
