//! In which order the calls of a functional model's layers are made.

use super::layer::Layer;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The output of a layer: its name and the number of its call.
pub(super) type Key = (String, usize);

/// Calls of layers, by their places in a list, that wait for others, whose outputs they read.
#[derive(Default)]
pub(super) struct Calls {
    /// The names of the outputs so far in the network.
    outputs: HashMap<Key, String>,
    /// Calls by the order in which they were listed, with the outputs that each reads, and the number of those that are missing.
    waiting: BTreeMap<usize, (usize, usize, Vec<Key>, usize)>,
    /// Those that lack nothing.
    ready: BTreeSet<usize>,
    /// The calls that a missing output holds up.
    held_up: HashMap<Key, Vec<usize>>,
    listed: usize,
}

impl Calls {
    /// Adds call `number` of a layer.
    pub(super) fn wait(&mut self, layer: usize, number: usize, reads: Vec<Key>) {
        let call = self.listed;
        self.listed += 1;
        let mut missing = 0;
        for key in reads.iter().filter(|key| !self.outputs.contains_key(key)) {
            self.held_up.entry(key.clone()).or_default().push(call);
            missing += 1;
        }
        self.waiting.insert(call, (layer, number, reads, missing));
        if missing == 0 {
            self.ready.insert(call);
        }
    }

    /// Adds an output, with its name in the network.
    pub(super) fn made(&mut self, key: Key, name: String) {
        for call in self.held_up.remove(&key).unwrap_or_default() {
            if let Some((.., missing)) = self.waiting.get_mut(&call) {
                *missing -= 1;
                if *missing == 0 {
                    self.ready.insert(call);
                }
            }
        }
        self.outputs.insert(key, name);
    }

    /// The first listed call that can be made: the layer, the number of the call, and the names of its inputs.
    pub(super) fn next(&mut self) -> Option<(usize, usize, Vec<String>)> {
        let (layer, number, reads, _) = self.waiting.remove(&self.ready.pop_first()?)?;
        Some((layer, number, reads.iter().map(|key| self.outputs[key].clone()).collect()))
    }

    /// A layer that waits.
    pub(super) fn waiting(&self) -> Option<usize> {
        self.waiting.values().next().map(|(layer, ..)| *layer)
    }

    pub(super) fn output(&self, key: &Key) -> Option<String> {
        self.outputs.get(key).cloned()
    }
}

/// The number of the first call of each inner model that has one other than 0. Keras 2 counts an inner model's calls from 1, for
/// number 0 is its own input and output; Keras 3 counts from 0. A file has those calls alone that lead to its `output`, so all
/// of them are read.
pub(super) fn first_numbers<'a>(
    layers: impl Iterator<Item = &'a Layer<'a>> + Clone,
    output: &Key,
) -> HashMap<String, usize> {
    let models = layers.clone().filter(|layer| layer.is_model());
    let mut first: HashMap<String, usize> = models.map(|layer| (layer.name.to_owned(), 1)).collect();
    for (name, number) in layers.flat_map(Layer::calls).flatten().chain([output.clone()]) {
        if number == 0 {
            first.remove(&name);
        }
    }
    first
}
