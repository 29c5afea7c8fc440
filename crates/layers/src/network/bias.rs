//! Biases that make no difference: a normalization takes each channel's mean away, and with it a bias added just before.

use super::graph::{Graph, Kind, Node, Value};

/// A bias that a training pass leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TakenAway {
    /// The node that has it.
    pub(super) of: usize,
    /// Which of that node's parameters it is.
    pub(super) bias: usize,
    /// The node that takes it away, and counts it into its running mean.
    pub(super) by: usize,
}

impl Graph {
    /// The biases of layers whose output a normalization reads, and nobody else.
    pub(super) fn biases_taken_away(&self, output: Value) -> Vec<TakenAway> {
        let taker = |(by, node): (usize, &Node)| {
            let Kind::Layer(layer) = &node.kind else { return None };
            let input = *node.inputs.first().filter(|_| layer.takes_bias_away())?;
            let alone =
                input != output && self.nodes.iter().filter(|n| n.inputs.contains(&input)).count() == 1;
            let of = self.nodes.iter().position(|n| n.output == input).filter(|_| alone)?;
            let Kind::Layer(before) = &self.nodes[of].kind else { return None };
            Some(TakenAway { of, bias: before.bias()?, by })
        };
        self.nodes.iter().enumerate().filter_map(taker).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchNormalization, Conv2D, Layer, Relu};
    use tensor::Activation;

    /// What is taken away behind a layer, whose output something else may read too.
    fn taken(layer: impl Layer + 'static, read_twice: bool) -> Vec<TakenAway> {
        let mut graph = Graph::new("test", [4, 4, 3]);
        let x = graph.add(layer, graph.input()).unwrap();
        let mut y = graph.add(BatchNormalization::new(), x).unwrap();
        if read_twice {
            let other = graph.add(Relu, x).unwrap();
            y = graph.concat(&[y, other]).unwrap();
        }
        graph.biases_taken_away(y)
    }

    #[test]
    fn a_bias_is_left_out_where_a_normalization_alone_reads_it() {
        let conv = || Conv2D::new(5, 3);
        assert_eq!(taken(conv(), false), [TakenAway { of: 0, bias: 1, by: 1 }]);
        assert_eq!(taken(conv(), true), []);
        assert_eq!(taken(conv().use_bias(false), false), []);
        assert_eq!(taken(conv().activation(Activation::Relu), false), []);
        assert_eq!(taken(Relu, false), []);
    }

    #[test]
    fn an_output_of_the_network_keeps_its_bias() {
        let mut graph = Graph::new("test", [1, 1, 3]);
        let logits = graph.add(Conv2D::new(5, 1), graph.input()).unwrap();
        graph.add(BatchNormalization::new(), logits).unwrap();
        assert_eq!(graph.biases_taken_away(logits), []);
    }
}
