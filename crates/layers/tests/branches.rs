//! Gradients of tensors with several readers or writers: concatenations, shared inputs, gradients written in
//! several parts.
#![allow(clippy::unwrap_used)]

use towers_layers::{
    AveragePooling2D, BatchNormalization, Concatenate, Conv2D, Dense, Dropout, Flatten, Graph, MaxPooling2D,
    Value,
};
use towers_program::Activation::Relu as Rectified;
use towers_testkit::GradientCheck;

/// Flattens `x`, adds a dense layer and checks everything.
fn check(mut graph: Graph, x: Value) {
    let x = graph.add(Flatten, x).unwrap();
    let logits = graph.add(Dense::new(4), x).unwrap();
    GradientCheck::new().assert(&graph, logits);
    GradientCheck::new().batch(1).max_batch(3).elements(10).assert(&graph, logits);
}

fn conv_module(graph: &mut Graph, x: Value, filters: usize, kernel: usize) -> Value {
    let x = graph.add(Conv2D::new(filters, kernel).same(), x).unwrap();
    graph.add(BatchNormalization::new().activation(Rectified), x).unwrap()
}

#[test]
fn two_inception_modules() {
    let mut graph = Graph::new("inception", [4, 4, 2]);
    let mut x = graph.input();
    for (ones, threes) in [(2, 3), (3, 2)] {
        let a = conv_module(&mut graph, x, ones, 1);
        let b = conv_module(&mut graph, x, threes, 3);
        x = graph.add(Concatenate, [a, b]).unwrap();
    }
    check(graph, x);
}

#[test]
fn a_downsampling_module() {
    let mut graph = Graph::new("downsample", [5, 5, 2]);
    let x = graph.add(Conv2D::new(3, 1), graph.input()).unwrap();
    let a = graph.add(Conv2D::new(2, 3).strides(2), x).unwrap();
    let b = graph.add(MaxPooling2D::new(3).strides(2), x).unwrap();
    let x = graph.add(Concatenate, [a, b]).unwrap();
    check(graph, x);
}

/// Every kind of layer adds to a gradient that another one has set.
#[test]
fn a_value_that_layers_of_every_kind_read() {
    let mut graph = Graph::new("shared", [4, 4, 2]);
    let x = graph.add(Conv2D::new(3, 1), graph.input()).unwrap();
    let readers = [
        graph.add(Conv2D::new(2, 3).same().activation(Rectified), x),
        graph.add(Rectified, x),
        graph.add(BatchNormalization::new(), x),
        graph.add(MaxPooling2D::new(2).strides(1).padding(towers_layers::Padding::Same), x),
        graph.add(AveragePooling2D::new(3).strides(1).padding(towers_layers::Padding::Same), x),
        graph.add(Dropout::new(0.4), x),
        graph.add(Conv2D::new(2, 1), x),
    ];
    let x = graph.add(Concatenate, readers.map(Result::unwrap)).unwrap();
    check(graph, x);
}

#[test]
fn vectors_that_several_dense_layers_read() {
    let mut graph = Graph::new("heads", [2, 2, 2]);
    let x = graph.add(Flatten, graph.input()).unwrap();
    let x = graph.add(Dense::new(5).activation(Rectified), x).unwrap();
    let heads = [3, 1, 2].map(|units| graph.add(Dense::new(units), x).unwrap());
    let logits = graph.add(Concatenate, heads).unwrap();
    GradientCheck::new().batch(3).assert(&graph, logits);
}

/// `Flatten` adds its gradient to a slice of a concatenation.
#[test]
fn a_flattened_slice_of_a_concatenation() {
    let mut graph = Graph::new("slices", [3, 3, 2]);
    let a = graph.add(Conv2D::new(2, 1), graph.input()).unwrap();
    let b = graph.add(Conv2D::new(3, 1), graph.input()).unwrap();
    let both = graph.add(Concatenate, [a, b]).unwrap();
    let heads = [both, b].map(|x| {
        let x = graph.add(Flatten, x).unwrap();
        graph.add(Dense::new(2), x).unwrap()
    });
    let logits = graph.add(Concatenate, heads).unwrap();
    GradientCheck::new().assert(&graph, logits);
}

/// A slice is also read by itself, before or after the reader of the whole. Its gradient is half written when
/// the other one comes.
#[test]
fn half_written_gradients() {
    for slice_first in [true, false] {
        for which in [0, 1] {
            let mut graph = Graph::new("half", [3, 3, 2]);
            let parts = [2, 3].map(|filters| graph.add(Conv2D::new(filters, 1), graph.input()).unwrap());
            let whole = graph.add(Concatenate, parts).unwrap();
            let mut read = |x: Value, filters| graph.add(Conv2D::new(filters, 3).same(), x).unwrap();
            let ends = if slice_first {
                [read(parts[which], 2), read(whole, 3)]
            } else {
                [read(whole, 3), read(parts[which], 2)]
            };
            let x = graph.add(Concatenate, ends).unwrap();
            check(graph, x);
        }
    }
}

#[test]
fn a_concatenation_of_concatenations() {
    let mut graph = Graph::new("nested", [3, 3, 2]);
    let [a, b, c] = [2, 3, 1].map(|filters| graph.add(Conv2D::new(filters, 1), graph.input()).unwrap());
    let inner = graph.add(Concatenate, [a, b]).unwrap();
    let outer = graph.add(Concatenate, [c, inner]).unwrap();
    let ends = [inner, outer, b].map(|x| graph.add(Conv2D::new(2, 3).same(), x).unwrap());
    let x = graph.add(Concatenate, ends).unwrap();
    check(graph, x);
}

/// Memory is reused as soon as it is free. A deep chain with a skip connection would show a tensor that was
/// placed too early.
#[test]
fn a_long_chain_with_a_long_skip() {
    let mut graph = Graph::new("skip", [3, 3, 2]);
    let start = graph.add(Conv2D::new(3, 1), graph.input()).unwrap();
    let mut x = start;
    for k in 0..6 {
        let conv = Conv2D::new(2 + k % 3, 3).same();
        x = graph.add(if k % 2 == 0 { conv } else { conv.activation(Rectified) }, x).unwrap();
    }
    let short = graph.add(Rectified, start).unwrap();
    let x = graph.add(Concatenate, [x, short]).unwrap();
    check(graph, x);
}
