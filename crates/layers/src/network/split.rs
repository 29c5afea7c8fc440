//! Cutting a graph into stages that run one after the other, on separate devices.

use super::graph::{Graph, Mode, Value};
use crate::{Error, Result};
use std::collections::HashMap;
use strsim::levenshtein;
use towers_program::passes::{fold, leave_out_biases};

/// A place where a graph may be cut: after a layer whose output is the only earlier tensor that later layers
/// read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The layer's name.
    pub layer: String,
    /// Its number in the graph, including concatenations.
    pub(super) node: usize,
}

impl Graph {
    /// The places where the graph may be cut, in order.
    pub fn cuts(&self, output: Value) -> Vec<Cut> {
        let node = |node: usize| Cut { layer: self.nodes[node].name.clone(), node };
        // A graph that can't be built can't be cut. Building it returns the reason.
        let Ok(bound) = self.bound(output) else { return Vec::new() };
        (0..self.nodes.len()).filter(|&k| self.obstacle(k, output, &bound).is_none()).map(node).collect()
    }

    /// The cut after the layer called `layer`.
    ///
    /// # Errors
    /// [`Error::Cut`] if there is no such layer, or the graph can't be cut there, with the reason and the
    /// possible cuts.
    pub fn cut_behind(&self, layer: &str, output: Value) -> Result<Cut> {
        let refuse = |what: String, known: &[String]| {
            let names = known.join(", ");
            Err(Error::Cut { layer: layer.to_owned(), what, names })
        };
        let cuts: Vec<String> = self.cuts(output).into_iter().map(|cut| cut.layer).collect();
        let Some(node) = self.nodes.iter().position(|node| node.name == layer) else {
            let near = self.nodes.iter().map(|node| &node.name).min_by_key(|name| levenshtein(name, layer));
            let near = near.filter(|name| levenshtein(name, layer) <= layer.len().min(name.len()) / 2);
            let hint = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            return refuse(format!("there is no such layer{hint}"), &cuts);
        };
        match self.obstacle(node, output, &self.bound(output)?) {
            None => Ok(Cut { layer: layer.to_owned(), node }),
            Some(what) => refuse(what, &cuts),
        }
    }

    /// Cuts the graph into stages, each a graph with its output. The input of each is the output of the one
    /// before. Layers keep their names, and so their parameters, first values and dropout masks.
    ///
    /// # Errors
    /// [`Error::Cut`] if the cuts are not in order, or not this graph's.
    pub fn split(&self, output: Value, cuts: &[Cut]) -> Result<Vec<(Graph, Value)>> {
        let mut stages = Vec::with_capacity(cuts.len() + 1);
        let (mut from, mut input) = (0, self.input());
        for cut in cuts {
            self.cut_behind(&cut.layer, output)?;
            if cut.node < from || cut.node >= self.nodes.len() {
                let what = "a stage would have no layers; name each layer once, in their order".to_owned();
                return Err(Error::Cut { layer: cut.layer.clone(), what, names: String::new() });
            }
            let to = self.nodes[cut.node].output;
            stages.push(self.stage(from..cut.node + 1, input, to, output));
            (from, input) = (cut.node + 1, to);
        }
        stages.push(self.stage(from..self.nodes.len(), input, output, output));
        Ok(stages)
    }

    fn stage(
        &self,
        nodes: core::ops::Range<usize>,
        input: Value,
        output: Value,
        end: Value,
    ) -> (Graph, Value) {
        let mut stage = Graph {
            name: self.name.clone(),
            nodes: Vec::new(),
            shapes: vec![self.shapes[input.0]],
            flat: vec![self.flat[input.0]],
            counts: HashMap::new(),
            receives: input != self.input(),
            sends: output != end,
            multi_label: self.multi_label,
        };
        let mut values = HashMap::from([(input, stage.input())]);
        for node in &self.nodes[nodes] {
            let mut node = node.clone();
            node.inputs.iter_mut().for_each(|value| *value = values[value]);
            let own = Value(stage.shapes.len());
            stage.shapes.push(self.shapes[node.output.0]);
            stage.flat.push(self.flat[node.output.0]);
            values.insert(node.output, own);
            node.output = own;
            stage.nodes.push(node);
        }
        (stage, values[&output])
    }

    /// Why the graph can't be cut after a node. `None` if it can.
    fn obstacle(&self, node: usize, output: Value, bound: &[(String, String)]) -> Option<String> {
        let own = self.nodes[node].output;
        if own == output {
            return Some("it is the last one".to_owned());
        }
        let (before, behind) = self.nodes.split_at(node + 1);
        let is_read = |value: Value| behind.iter().any(|reader| reader.inputs.contains(&value));
        let inputs = [self.input()].into_iter().chain(before.iter().map(|node| node.output));
        if let Some(other) = inputs.filter(|&value| value != own).find(|&value| is_read(value)) {
            let other = before.iter().find(|node| node.output == other);
            let other = other.map_or("the network's input", |node| &node.name);
            return Some(format!("two tensors cross there: its output and that of {other}"));
        }
        bound
            .iter()
            .find(|(of, _)| *of == self.nodes[node].name)
            .map(|(_, by)| format!("{by} does a part of its work, so both belong together"))
    }

    /// Layers whose ops a pass merges with those of another layer, with that layer: a convolution and the
    /// normalization that reads it.
    fn bound(&self, output: Value) -> Result<Vec<(String, String)>> {
        let programs = [
            leave_out_biases(self.forward(output, Mode::Training)?),
            fold(self.forward(output, Mode::Inference)?),
        ];
        let mut bound = Vec::new();
        for program in programs {
            let changed = program.steps.iter().filter(|step| step.pass != "lower");
            bound.extend(changed.filter_map(|step| {
                let of = self.nodes.iter().position(|node| node.name == program.layers[step.layer])?;
                let reader = self.nodes.iter().find(|node| node.inputs.contains(&self.nodes[of].output))?;
                Some((self.nodes[of].name.clone(), reader.name.clone()))
            }));
        }
        Ok(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchNormalization, Concatenate, Conv2D, Dense, Flatten};
    use towers_program::Activation::Relu;

    /// Convolution and normalization, two branches that are joined, a dense layer.
    fn graph() -> (Graph, Value) {
        let mut graph = Graph::new("test", [6, 6, 3]);
        let x = graph.add(Conv2D::new(4, 3).same(), graph.input()).unwrap();
        let x = graph.add(BatchNormalization::new(), x).unwrap();
        let a = graph.add(Conv2D::new(2, 1), x).unwrap();
        let b = graph.add(Conv2D::new(3, 3).same(), x).unwrap();
        let x = graph.add(Concatenate, [a, b]).unwrap();
        let x = graph.add(Flatten, x).unwrap();
        let logits = graph.add(Dense::new(10), x).unwrap();
        (graph, logits)
    }

    #[test]
    fn a_graph_is_cut_where_one_tensor_crosses() {
        let (graph, logits) = graph();
        let names: Vec<_> = graph.cuts(logits).into_iter().map(|cut| cut.layer).collect();
        assert_eq!(names, ["batch_normalization", "concatenate", "flatten"]);
        for (layer, says) in [
            ("conv2d", "batch_normalization does a part of its work, so both belong together"),
            ("conv2d_1", "two tensors cross there: its output and that of batch_normalization"),
            ("conv2d_2", "two tensors cross there: its output and that of conv2d_1"),
            ("dense", "it is the last one"),
            ("flaten", "did you mean `flatten`?"),
            (
                "pool",
                "there is no such layer; it can be cut behind batch_normalization, concatenate, flatten",
            ),
        ] {
            let error = graph.cut_behind(layer, logits).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn stages_have_the_layers_and_shapes_of_the_whole() {
        let (graph, logits) = graph();
        let cuts = graph.cuts(logits);
        for chosen in [&cuts[..0], &cuts[..1], &cuts[1..2], &cuts[..]] {
            let stages = graph.split(logits, chosen).unwrap();
            assert_eq!(stages.len(), chosen.len() + 1);
            let work: Vec<_> =
                stages.iter().flat_map(|(stage, _)| stage.work()).map(|work| work.name).collect();
            assert_eq!(work, graph.work().into_iter().map(|work| work.name).collect::<Vec<_>>());
            for ((before, output), (behind, _)) in stages.iter().zip(&stages[1..]) {
                assert_eq!(before.shape(*output), behind.shape(behind.input()));
            }
        }
        assert!(graph.split(logits, &[cuts[1].clone(), cuts[0].clone()]).is_err());
        assert!(graph.split(logits, &[cuts[1].clone(), cuts[1].clone()]).is_err());
    }

    #[test]
    fn a_part_of_a_later_concatenation_is_copied_there() {
        let mut graph = Graph::new("test", [6, 6, 3]);
        let x = graph.add(Relu, graph.input()).unwrap();
        let y = graph.add(Conv2D::new(2, 1), x).unwrap();
        let both = graph.add(Concatenate, [x, y]).unwrap();
        let names: Vec<_> = graph.cuts(both).into_iter().map(|cut| cut.layer).collect();
        assert_eq!(names, ["re_lu"]);
    }
}
