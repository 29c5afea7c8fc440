//! What a graph refuses.
#![allow(clippy::unwrap_used)]

use towers_layers::{
    Add, AveragePooling2D, BatchNormalization, Concatenate, Conv2D, Dense, Dropout, Graph, Initializer,
    Layer, Lower, MaxPooling2D, Padding, ParamSpec, Rescaling, Role, Value,
};
use towers_program::Activation::Gelu;
use towers_program::{Activation, BatchNorm, Shape, TensorId, ops};

const SIZE: [usize; 3] = [6, 6, 3];
const WHITENING: Initializer = Initializer::Whitening { epsilon: 1e-3 };

#[test]
fn graphs_refuse_what_they_cannot_join() {
    fn conv(filters: usize) -> Conv2D {
        Conv2D::new(filters, 1)
    }
    type Build = fn(&mut Graph, Value) -> towers_layers::Result<Value>;
    let gelu = "must be a layer of its own behind this one";
    let cases: [(Build, &str); 17] = [
        (|g, _| g.add(Concatenate, []), "layer concatenate: it reads 1 or more tensors, but was given 0"),
        (|g, x| g.add(Add::new(), [x; 3]), "layer add: it reads 2 tensors, but was given 3"),
        (|g, x| g.add(conv(2), [x, x]), "layer conv2d: it reads 1 tensor, but was given 2"),
        (
            |g, x| {
                let (a, b) = (g.add(conv(2), x)?, g.add(Conv2D::new(2, 3), x)?);
                g.add(Concatenate, [a, b])
            },
            "layer concatenate: concat: an operand has shape (1, 4, 4, 2), but (1, 6, 6, 2) is needed",
        ),
        (
            |g, x| {
                g.add_named("a", conv(2), x)?;
                g.add_named("a", conv(2), x)
            },
            "layer a: this name is taken",
        ),
        (|g, x| g.add(Dense::new(3), x), "layer dense: dense: the input (flatten it first)"),
        (
            |g, x| g.add(Conv2D::new(3, 7), x),
            "layer conv2d: conv2d: the kernel is 7x7, moved by 1x1 over an input of 6x6, but must be from 1x1 to",
        ),
        (
            |g, x| g.add(Conv2D::new(3, 9).padding(Padding::Pixels(1)), x),
            "9x9, moved by 1x1 over an input of 6x6, 8x8 with its padding, but",
        ),
        (
            |g, x| g.add(AveragePooling2D::new(7), x),
            "layer average_pooling2d: pool2d: the window is 7x7, moved by 7x7 over an input of 6x6, but",
        ),
        (
            |g, x| g.add(MaxPooling2D::new(2).strides(0), x),
            "the window is 2x2, moved by 0x0 over an input of 6x6, but must be larger than the padding",
        ),
        (|g, x| g.add(conv(2).kernel_initializer(WHITENING), x), "filters is 2, but must be twice"),
        (|g, x| g.add(conv(2).activation(Gelu), x), gelu),
        (|g, x| g.add(Add::new().activation(Gelu), [x, x]), gelu),
        (|g, x| g.add(Dropout::new(1.0), x), "the rate is 1, but must be at least 0 and below 1"),
        (
            |g, x| g.add(BatchNormalization::new().momentum(1.5), x),
            "momentum is 1.5, but must be from 0 to 1",
        ),
        (
            |g, x| g.add(BatchNormalization::new().epsilon(-1.0), x),
            "epsilon is -1, but must be a finite number of at least 0",
        ),
        (|g, x| g.add(Rescaling::new(f32::NAN), x), "the factor is NaN, but must be a finite number"),
    ];
    for (build, expected) in cases {
        let mut graph = Graph::new("refused", SIZE);
        let x = graph.input();
        let message = build(&mut graph, x).unwrap_err().to_string();
        assert!(message.contains(expected), "{message:?} does not contain {expected:?}");
    }
}

/// Custom layers whose ops would write to read-only memory, read the wrong memory, or give no output.
#[test]
fn graphs_refuse_layers_whose_ops_do_not_fit() {
    type Ops = fn(&mut Lower, TensorId) -> towers_program::Result<TensorId>;

    #[derive(Debug)]
    struct Custom(Ops);

    impl Layer for Custom {
        fn params(&self, inputs: &[Shape]) -> Vec<ParamSpec> {
            let (shape, init) = (vec![inputs[0].c], Initializer::Ones);
            ["gamma", "beta"]
                .map(|name| ParamSpec { name, shape: shape.clone(), init, role: Role::Trainable })
                .into()
        }

        fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> towers_program::Result<TensorId> {
            (self.0)(to, inputs[0])
        }
    }

    let cases: [(Ops, &str); 4] = [
        (
            |to, _| to.push(ops::Slice { from: 0, channels: 1 }, &[to.params()[0]]),
            "layer custom: slice: the input must be in the activations, not in the parameters",
        ),
        (
            |to, x| {
                let bn = BatchNorm { epsilon: 1e-3, act: Activation::None };
                to.push_with_sums(ops::BatchNormTrain { bn }, &[x, to.params()[0], to.params()[1]])
            },
            "batch_norm: the sums must be at a place that the caller gives, not free",
        ),
        (
            |to, x| to.push(ops::Add { act: Gelu }, &[x, to.params()[0]]),
            "layer custom: add: the second operand has shape (1, 1, 1, 3)",
        ),
        (
            |to, x| to.push(ops::Send { to: ops::Neighbor::Next }, &[x]),
            "send: the list of results has 0 elements, but 1 are needed",
        ),
    ];
    for (lower, expected) in cases {
        let mut graph = Graph::new("refused", SIZE);
        let message = graph.add(Custom(lower), graph.input()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message:?} does not contain {expected:?}");
    }
}
