//! Layers whose output a normalization reads, and nobody else.
//!
//! A normalization takes each channel's mean away, and with it a bias added just before: training passes leave that out. In
//! inference it is a factor and an addend for each channel, which the layer before can apply to what it computes.

use super::graph::{Graph, Kind, Node, Value};

/// A layer that a normalization follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Normalized {
    /// The layer's node.
    pub(super) of: usize,
    /// Which of its parameters is a bias that training passes leave out.
    pub(super) bias: Option<usize>,
    /// Whether it does the normalization too in inference passes.
    pub(super) folds: bool,
    /// The normalization's node, which counts the bias into its running mean.
    pub(super) by: usize,
}

impl Graph {
    /// The layers whose output a normalization alone reads, where that makes a difference.
    pub(super) fn normalized(&self, output: Value) -> Vec<Normalized> {
        let normalized = |(by, node): (usize, &Node)| {
            let Kind::Layer(layer) = &node.kind else { return None };
            let input = *node.inputs.first()?;
            let alone =
                input != output && self.nodes.iter().filter(|n| n.inputs.contains(&input)).count() == 1;
            let of = self.nodes.iter().position(|n| n.output == input).filter(|_| alone)?;
            let Kind::Layer(before) = &self.nodes[of].kind else { return None };
            let bias = before.bias().filter(|_| layer.takes_bias_away());
            let folds = before.folds_normalization() && layer.normalization().is_some();
            (folds || bias.is_some()).then_some(Normalized { of, bias, folds, by })
        };
        self.nodes.iter().enumerate().filter_map(normalized).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchNormalization, Conv2D, Layer, Relu};
    use tensor::Activation;

    /// What is found behind a layer, whose output something else may read too.
    fn found(layer: impl Layer + 'static, read_twice: bool) -> Vec<Normalized> {
        let mut graph = Graph::new("test", [4, 4, 3]);
        let x = graph.add(layer, graph.input()).unwrap();
        let mut y = graph.add(BatchNormalization::new(), x).unwrap();
        if read_twice {
            let other = graph.add(Relu, x).unwrap();
            y = graph.concat(&[y, other]).unwrap();
        }
        graph.normalized(y)
    }

    #[test]
    fn only_what_a_normalization_alone_reads_is_found() {
        let conv = || Conv2D::new(5, 3);
        let both = Normalized { of: 0, bias: Some(1), folds: true, by: 1 };
        assert_eq!(found(conv(), false), [both]);
        assert_eq!(found(conv(), true), []);
        assert_eq!(found(conv().use_bias(false), false), [Normalized { bias: None, ..both }]);
        assert_eq!(found(conv().activation(Activation::Relu), false), []);
        assert_eq!(found(Relu, false), []);
    }

    #[test]
    fn an_output_of_the_network_stays_what_it_is() {
        let mut graph = Graph::new("test", [1, 1, 3]);
        let logits = graph.add(Conv2D::new(5, 1), graph.input()).unwrap();
        graph.add(BatchNormalization::new(), logits).unwrap();
        assert_eq!(graph.normalized(logits), []);
    }
}
