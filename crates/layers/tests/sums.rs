//! Sums of two tensors: gradients, memory, and that sharing memory changes no result, whatever else reads the
//! operands.
#![allow(clippy::unwrap_used)]

use towers_layers::{
    Add, AveragePooling2D, BatchNormalization, Concatenate, Conv2D, Dense, Draws, Dropout, Flatten,
    GlobalAveragePooling2D, Graph, MaxPooling2D, Mode, Padding, Value,
};
use towers_philox::Philox;
use towers_program::Activation::{None as Plain, Relu as Rectified};
use towers_program::{Span, Storage};
use towers_testkit::{GradientCheck, Tolerance, compare, on_every_device, pattern, read};

/// Flattens `x`, adds a dense layer and checks everything.
fn check(mut graph: Graph, x: Value) {
    let x = graph.add(Flatten, x).unwrap();
    let logits = graph.add(Dense::new(4), x).unwrap();
    GradientCheck::new().assert(&graph, logits);
    GradientCheck::new().batch(1).max_batch(3).elements(10).assert(&graph, logits);
}

fn conv_norm(graph: &mut Graph, x: Value, filters: usize, stride: usize, relu: bool) -> Value {
    let conv = Conv2D::new(filters, 3).strides(stride).padding(Padding::Pixels(1)).use_bias(false);
    let x = graph.add(conv, x).unwrap();
    graph.add(BatchNormalization::new().activation(if relu { Rectified } else { Plain }), x).unwrap()
}

/// A basic block, with its shortcut computed before or after the rest.
fn block(graph: &mut Graph, x: Value, filters: usize, stride: usize, shortcut_first: bool) -> Value {
    let same = stride == 1 && graph.shape(x).c == filters;
    let shortcut = |graph: &mut Graph| {
        if same {
            return x;
        }
        let y = graph.add(Conv2D::new(filters, 1).strides(stride), x).unwrap();
        graph.add(BatchNormalization::new(), y).unwrap()
    };
    let early = shortcut_first.then(|| shortcut(graph));
    let y = conv_norm(graph, x, filters, stride, true);
    let y = conv_norm(graph, y, filters, 1, false);
    let late = early.unwrap_or_else(|| shortcut(graph));
    graph.add(Add::new().activation(Rectified), [y, late]).unwrap()
}

#[test]
fn residual_blocks() {
    for shortcut_first in [true, false] {
        let mut graph = Graph::new("residual", [4, 4, 2]);
        let images = graph.input();
        let mut x = conv_norm(&mut graph, images, 2, 1, true);
        for (filters, stride) in [(2, 1), (3, 2)] {
            x = block(&mut graph, x, filters, stride, shortcut_first);
        }
        let x = graph.add(GlobalAveragePooling2D, x).unwrap();
        let logits = graph.add(Dense::new(4), x).unwrap();
        GradientCheck::new().batch(3).assert(&graph, logits);
    }
}

#[test]
fn operands_that_nobody_lends() {
    let mut graph = Graph::new("relus", [3, 3, 2]);
    let [a, b] =
        [2, 3].map(|k| graph.add(Conv2D::new(2, k).same().activation(Rectified), graph.input()).unwrap());
    let x = graph.add(Add::new(), [a, b]).unwrap();
    check(graph, x);
}

#[test]
fn a_tensor_and_itself_and_the_images() {
    for activation in [Plain, Rectified] {
        let mut graph = Graph::new("twice", [3, 3, 2]);
        let x = graph.add(Conv2D::new(2, 1), graph.input()).unwrap();
        let x = graph.add(Add::new().activation(activation), [x, x]).unwrap();
        let x = graph.add(Add::new().activation(activation), [graph.input(), x]).unwrap();
        check(graph, x);
        let mut graph = Graph::new("images", [3, 3, 2]);
        let x = graph.add(Add::new(), [graph.input(), graph.input()]).unwrap();
        let x = graph.add(Conv2D::new(2, 3), x).unwrap();
        check(graph, x);
    }
}

#[test]
fn sums_in_concatenations_and_concatenations_in_sums() {
    let mut graph = Graph::new("joined", [3, 3, 2]);
    let [a, b, c] = [(), (), ()].map(|()| graph.add(Conv2D::new(2, 1), graph.input()).unwrap());
    let sum = graph.add(Add::new().activation(Rectified), [a, b]).unwrap();
    let both = graph.add(Concatenate, [sum, c]).unwrap();
    let d = graph.add(Conv2D::new(4, 3).same(), both).unwrap();
    let x = graph.add(Add::new(), [both, d]).unwrap();
    check(graph, x);
}

/// The gradient of the second operand of a sum is added to before the first one's was used, or its memory is
/// in use for two sums.
#[test]
fn operands_that_are_read_at_any_time() {
    for activation in [Plain, Rectified] {
        let mut graph = Graph::new("early", [3, 3, 2]);
        let conv = |graph: &mut Graph, x| graph.add(Conv2D::new(2, 3).same(), x).unwrap();
        let add = Add::new().activation(activation);
        let x = graph.add(Rectified, graph.input()).unwrap();
        let a = conv(&mut graph, x);
        let d = conv(&mut graph, x);
        let between = conv(&mut graph, d);
        let c = conv(&mut graph, x);
        let first = graph.add(add, [c, d]).unwrap();
        let second = graph.add(add, [a, first]).unwrap();
        let behind = conv(&mut graph, d);
        let third = graph.add(add, [second, between]).unwrap();
        let x = graph.add(add, [behind, third]).unwrap();
        check(graph, x);
    }
}

/// A random graph of layers and sums, in which every tensor is read.
fn any_graph(rng: &mut Philox, norms: bool) -> (Graph, Value) {
    let mut graph = Graph::new("any", [3, 3, 2]);
    let mut values = vec![graph.input()];
    let mut unread: Vec<Value> = Vec::new();
    let relu = |rng: &mut Philox| if rng.below(2) == 0 { Plain } else { Rectified };
    for _ in 0..3 + rng.below(7) {
        let mut pick = || values[values.len().saturating_sub(1 + rng.below(4) as usize)];
        let (a, b) = (pick(), pick());
        let (kind, act) = (rng.below(9), relu(rng));
        let value = match kind {
            0..=2 => graph.add(Conv2D::new(2, 1 + 2 * (kind as usize % 2)).same().activation(act), a),
            3 if norms => graph.add(BatchNormalization::new().activation(act), a),
            3 => graph.add(AveragePooling2D::new(2).strides(1).padding(Padding::Same), a),
            4 => graph.add(MaxPooling2D::new(2).strides(1).padding(Padding::Same), a),
            5 if norms => graph.add(Dropout::new(0.3), a),
            _ => graph.add(Add::new().activation(act), [a, b]),
        };
        let value = value.unwrap();
        unread.retain(|&v| v != a && (v != b || kind < 6));
        unread.push(value);
        values.push(value);
    }
    while let [a, b, ..] = unread[..] {
        let sum = graph.add(Add::new().activation(relu(rng)), [a, b]).unwrap();
        unread.drain(..2);
        unread.push(sum);
    }
    let x = graph.add(Flatten, unread[0]).unwrap();
    let logits = graph.add(Dense::new(3), x).unwrap();
    (graph, logits)
}

/// All devices compute the same as the reference.
#[test]
fn on_every_device_the_same() {
    let mut graph = Graph::new("residual", [6, 6, 3]);
    let mut x = graph.add(Conv2D::new(4, 3).same(), graph.input()).unwrap();
    for (filters, stride) in [(4, 1), (8, 2)] {
        x = block(&mut graph, x, filters, stride, true);
    }
    let relu = graph.add(Rectified, x).unwrap();
    let x = graph.add(Add::new(), [relu, x]).unwrap();
    let x = graph.add(GlobalAveragePooling2D, x).unwrap();
    let logits = graph.add(Dense::new(4), x).unwrap();
    let mut expected: Option<Vec<f64>> = None;
    on_every_device(|device| {
        let mut network = graph.build(logits, device, 4, Mode::Training).unwrap();
        network.init(7).unwrap();
        let images: Vec<f32> = pattern(1, 3 * network.sample_len(), 1.0).iter().map(|&x| x as f32).collect();
        network.set_input(&images, &[3, 0, 1]).unwrap();
        network.train_pass(Draws { seed: 1, step: 2, first_sample: 0 }, 0.0, 3).unwrap();
        let grads = &network.arena().grads;
        let got = read(device, grads, Span::new(0, grads.len())).unwrap();
        let expected = expected.get_or_insert(got.clone());
        compare("gradients", &got, expected, Tolerance::new(1e-5, 1e-3)).unwrap_or_else(|e| panic!("{e}"));
    });
}

fn all(storage: &Storage) -> &[f64] {
    storage.as_f64().unwrap()
}

#[test]
fn any_graph_has_the_gradients_of_its_loss() {
    let mut rng = Philox::new(7, towers_philox::domain("sums"), [0, 0]);
    for number in 0..60 {
        let (graph, logits) = any_graph(&mut rng, number % 2 == 0);
        println!("{number}:\n{}", graph.summary(logits));
        GradientCheck::new().elements(6).assert(&graph, logits);
        // Whether the gradient of the images is computed or not changes no other gradient.
        let draws = Draws { seed: 5, step: 1, first_sample: 0 };
        let network = |mode| {
            let mut network = graph.build(logits, &towers_tensor_cpu::reference(), 2, mode).unwrap();
            network.init(3).unwrap();
            let images: Vec<f32> =
                pattern(1, 2 * network.sample_len(), 1.0).iter().map(|&x| x as f32).collect();
            network.set_input(&images, &[1, 2]).unwrap();
            network
        };
        let (mut plain, mut input) = (network(Mode::Training), network(Mode::TrainingWithInputGradient));
        plain.train_pass(draws, 0.0, 2).unwrap();
        input.train_pass(draws, 0.0, 2).unwrap();
        assert_eq!(all(&plain.arena().grads), all(&input.arena().grads));
        let mut inference = network(Mode::Inference);
        inference.evaluate_pass().unwrap();
        plain.evaluate_pass().unwrap();
        let metrics = |network: &towers_layers::Network| network.metrics().unwrap();
        assert_eq!(metrics(&inference), metrics(&plain));
    }
}

/// A residual block with an identity shortcut needs no separate tensor for the sum, nor for its gradient.
#[test]
fn a_sum_takes_no_memory() {
    let mut graph = Graph::new("block", [4, 4, 8]);
    let images = graph.input();
    let stem = conv_norm(&mut graph, images, 8, 1, true);
    let x = block(&mut graph, stem, 8, 1, true);
    let x = graph.add(Flatten, x).unwrap();
    let logits = graph.add(Dense::new(2), x).unwrap();
    let len = |mode| graph.activation_len(logits, 1, mode, true).unwrap();
    let tensor = 4 * 4 * 8;
    // The images and the results of three convolutions are kept. Gradients and recomputed tensors share three
    // more. The class scores take some memory too.
    assert!(len(Mode::Training) <= (1 + 3 + 3) * tensor + 32, "{}", len(Mode::Training));
    assert!(len(Mode::Inference) <= 4 * tensor, "{}", len(Mode::Inference));
}

#[test]
fn names_and_errors_are_kerass() {
    let mut graph = Graph::new("names", [4, 4, 3]);
    let a = graph.add(Conv2D::new(5, 1), graph.input()).unwrap();
    let error = graph.add(Add::new(), [a, graph.input()]).unwrap_err().to_string();
    assert_eq!(
        error,
        "layer add: add_spread: the second operand has shape (1, 4, 4, 3), but (1, 4, 4, 5) is needed"
    );
    let mut graph = Graph::new("names", [4, 4, 3]);
    let b = graph.add(Rectified, graph.input()).unwrap();
    let first = graph.add(Add::new(), [b, graph.input()]).unwrap();
    let second = graph.add(Add::new().activation(Rectified), [first, b]).unwrap();
    let summary = graph.summary(second);
    let rows: Vec<_> = summary.rows.iter().map(|row| (row.name.as_str(), row.kind.as_str())).collect();
    assert_eq!(rows[2..], [("add", "Add"), ("add_1", "Add+ReLU")]);
    assert_eq!(summary.rows[3].inputs, ["add", "re_lu"]);
}
