//! Where a layer's weights are in a file.

use super::unit::Unit;

/// The place of a layer's weights in a file.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The layer's name in the network.
    pub(super) layer: String,
    /// Keras 3: the classes of the models around it, and its own with a number: `sequential/conv2d_1`.
    pub(super) numbered: String,
    /// `.h5`: the names of the models around it, and its own.
    pub(super) named: String,
}

impl Place {
    /// The layer at this place. In `.h5` of Keras 2 a layer of a model inside of another has its own name alone.
    pub(super) fn find(&self, units: &[Unit], named: bool) -> Result<usize, String> {
        let path = if named { &self.named } else { &self.numbered };
        let last = |path: &str| path.rsplit('/').next().map(str::to_owned);
        let exact = units.iter().position(|unit| unit.path == *path);
        let alike = || {
            let mut alike = (0..units.len()).filter(|&k| named && last(&units[k].path) == last(path));
            alike.next().filter(|_| alike.next().is_none())
        };
        exact.or_else(alike).ok_or_else(|| format!("it has no weights of its layer `{}`", self.layer))
    }
}
