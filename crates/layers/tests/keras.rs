//! Layers with Keras' defaults give Keras' names, shapes, numbers and gradients: `tests/golden/layers.py` made the values.
#![allow(clippy::unwrap_used)]

use towers_layers::{
    AveragePooling2D, BatchNormalization, Concatenate, Conv2D, Dense, Draws, Flatten, Graph, MaxPooling2D,
    Mode, Padding, Result, Role, Value,
};
use towers_program::{Activation, Device, Span, View};
use towers_testkit::{Golden, Tolerance, on_every_device, pattern, read};

const BATCH: usize = 4;

/// Keras computes its dense layers and its loss in f32 even in an f64 model, so the reference agrees only to
/// f32. The other devices round on top of that.
fn tolerance(device: &Device) -> Tolerance {
    match device.kind() {
        "reference" => Tolerance::new(1e-8, 5e-7),
        _ => Tolerance::new(1e-7, 5e-6),
    }
}

/// As `fill` in the script.
fn parameter(number: usize, name: &str, shape: &[usize]) -> Vec<f32> {
    let len = shape.iter().product();
    let (middle, scale) = match shape {
        _ if name.ends_with("moving_mean") => (0.0, 0.0),
        _ if name.ends_with("moving_variance") => (1.0, 0.0),
        [inputs @ .., _] if !inputs.is_empty() => {
            (0.0, (6.0 / inputs.iter().product::<usize>() as f64).sqrt().log2().round().exp2())
        }
        _ => (0.25, 0.5),
    };
    pattern(number as u32 + 2, len, scale).iter().map(|x| (x + middle) as f32).collect()
}

fn check(name: &str, size: [usize; 3], label_smoothing: f32, build: fn(&mut Graph) -> Result<Value>) {
    let golden = Golden::open("layers").unwrap();
    let mut graph = Graph::new(name, size);
    let logits = build(&mut graph).unwrap();
    check_names_and_shapes(&golden, &graph, logits);
    on_every_device(|device| {
        let check = |what: &str, got: &[f64]| {
            golden.check(&format!("{name}/{what}"), got, tolerance(device)).unwrap_or_else(|e| panic!("{e}"));
        };
        let mut network = graph.build(logits, device, BATCH, Mode::TrainingWithInputGradient).unwrap();
        for (number, slot) in network.arena().slots().to_vec().iter().enumerate() {
            let values = parameter(number, &slot.name, &slot.shape);
            network.arena_mut().load(device, slot, &values).unwrap();
        }
        let len = BATCH * network.sample_len();
        let images: Vec<f32> = pattern(1, len, 1.0).iter().map(|&x| x as f32).collect();
        network.set_input(&images, &[0, 1, 2, 3]).unwrap();
        let scores = |network: &towers_layers::Network| {
            let View { data, layout } = network.logits();
            read(device, data, Span::new(layout.offset, layout.shape.len())).unwrap()
        };
        network.evaluate_pass().unwrap();
        check("inferred", &scores(&network));
        let draws = Draws { seed: 0, step: 0, first_sample: 0 };
        network.train_pass(draws, label_smoothing, BATCH).unwrap();
        check("logits", &scores(&network));
        let arena = network.arena();
        let gradients = |span| read(device, &arena.grads, span).unwrap();
        check("loss", &[gradients(arena.metrics)[0] / BATCH as f64]);
        let View { data, layout } = network.input_gradient().unwrap();
        check("input", &read(device, data, Span::new(layout.offset, len)).unwrap());
        for slot in arena.slots().iter().filter(|slot| slot.role == Role::Trainable) {
            check(&slot.name, &gradients(slot.span));
        }
    });
}

/// Every layer has Keras' name and the shape under this name, and there are no others.
fn check_names_and_shapes(golden: &Golden, graph: &Graph, logits: Value) {
    let prefix = format!("{}/shape/", graph.name());
    let summary = graph.summary(logits);
    for row in &summary.rows[1..] {
        let shape = golden.get(&format!("{prefix}{}", row.name)).unwrap();
        let numbers = shape.iter().map(|size| format!(", {size}")).collect::<String>();
        assert_eq!(row.shape, format!("(None{numbers})"), "{}", row.name);
    }
    assert_eq!(golden.names().filter(|name| name.starts_with(&prefix)).count(), summary.rows.len() - 1);
}

#[test]
fn same_padding_with_strides_and_even_kernels() {
    check("strided", [9, 8, 3], 0.0, |g| {
        let relu = Activation::Relu;
        let x = g.add(Conv2D::new(6, 3).strides(2).padding(Padding::Same).activation(relu), g.input())?;
        let x = g.add(Conv2D::new(5, 2).same().use_bias(false), x)?;
        let x = g.add(Conv2D::new(4, 1).strides(3), x)?;
        let x = g.add(Flatten, x)?;
        g.add(Dense::new(4), x)
    });
}

#[test]
fn pooling_and_smoothed_labels() {
    check("pooled", [10, 7, 3], 0.125, |g| {
        let x = g.add(Conv2D::new(4, 1), g.input())?;
        let x = g.add(MaxPooling2D::new(3).strides(2).padding(Padding::Same), x)?;
        let x = g.add(AveragePooling2D::new(2).strides(1).padding(Padding::Same), x)?;
        let x = g.add(MaxPooling2D::new(2), x)?;
        let x = g.add(Flatten, x)?;
        let x = g.add(Dense::new(6).activation(Activation::Relu), x)?;
        g.add(Dense::new(4), x)
    });
}

#[test]
fn normalization_and_concatenation() {
    check("joined", [5, 5, 3], 0.0, |g| {
        let a = g.add(Conv2D::new(4, 3).strides(2), g.input())?;
        let a = g.add(BatchNormalization::new(), a)?;
        let a = g.add(Activation::Relu, a)?;
        let b = g.add(AveragePooling2D::new(3).strides(2), g.input())?;
        let x = g.add(Concatenate, [a, b])?;
        let x = g.add(Flatten, x)?;
        g.add(Dense::new(4), x)
    });
}
