//! Where a layer's weights are in a file.

use super::unit::Unit;
use crate::text::shortened;

/// The place of a layer's weights in a file.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The layer's name in the network.
    pub(super) layer: String,
    /// Keras 3: the classes of the models around it, and its own with a number: `sequential/conv2d_1`.
    pub(super) numbered: String,
    /// `.h5`: the names of the models around it, and its own.
    pub(super) names: Vec<String>,
}

impl Place {
    /// The layer at this place. `named` tells whether the file has the names of layers, or numbers.
    pub(super) fn find(&self, units: &[Unit], named: bool) -> Result<usize, String> {
        let found = match named {
            true => self.by_names(units),
            false => units.iter().position(|unit| unit.path == self.numbered),
        };
        found.ok_or_else(|| format!("it has no weights of its layer `{}`", self.own_name()))
    }

    /// The layer by the names in `.h5`: a file lists a layer of the model, or a model inside of it, with all that it has. The
    /// names of the tensors tell the layers of an inner model apart, by their own names or with those of models around them.
    fn by_names(&self, units: &[Unit]) -> Option<usize> {
        let own: Vec<usize> = (0..units.len()).filter(|&k| units[k].group == self.names[0]).collect();
        if self.names.len() == 1 {
            return own.first().copied().filter(|_| own.len() == 1);
        }
        let is_called = |path: &str| own.iter().copied().find(|&k| units[k].path == path);
        let tails = (0..self.names.len()).map(|first| self.names[first..].join("/"));
        // The scope of another model may stand before it.
        let scoped = || {
            let ending = format!("/{}", self.names.last()?);
            let mut alike = own.iter().copied().filter(|&k| units[k].path.ends_with(&ending));
            alike.next().filter(|_| alike.next().is_none())
        };
        // TensorFlow adds a number to a name that a session has already: a copy of the layer `conv` has `conv_1`.
        let copied = || {
            let own_name = self.names.last()?;
            let is_copy = |path: &str| {
                let number = path.rsplit('/').next()?.strip_prefix(own_name)?.strip_prefix('_')?;
                Some(!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
            };
            let mut alike = own.iter().copied().filter(|&k| is_copy(&units[k].path) == Some(true));
            alike.next().filter(|_| alike.next().is_none())
        };
        let exact = tails.map(|path| is_called(&path)).find(Option::is_some).flatten();
        exact.or_else(scoped).or_else(copied)
    }

    /// The layer's name in the file, behind those of the models around it.
    pub(super) fn own_name(&self) -> String {
        shortened(&self.names.join("/"))
    }
}
