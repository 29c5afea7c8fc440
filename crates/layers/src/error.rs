/// The result of building or running a network.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// What can go wrong in a network.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A layer's op failed.
    #[error("layer {layer}: {source}")]
    Layer {
        /// The layer's name.
        layer: String,
        /// What the device said.
        source: Box<program::Error>,
    },
    /// The device failed outside of any layer.
    #[error(transparent)]
    Tensor(#[from] program::Error),
    /// Tensors that a layer can't join.
    #[error("layer {layer}: {what}")]
    Graph {
        /// The layer's name.
        layer: String,
        /// What does not fit.
        what: String,
    },
    /// A place where a network can't be cut into stages.
    #[error("the network can't be cut behind `{layer}`: {what}{}", if names.is_empty() { String::new() } else { format!("; it can be cut behind {names}") })]
    Cut {
        /// The layer's name, as it was given.
        layer: String,
        /// Why not.
        what: String,
        /// Where else, as a list; empty where that is no help.
        names: String,
    },
    /// Images that a network can't take. Nothing in this crate says so, since a layer knows its own input alone; the crate `models`, which
    /// has no error type of its own, and whoever makes networks for images of any size may.
    #[error("{network} can't take images of {given} (height x width): it needs at least {smallest}")]
    Images {
        /// The network's name.
        network: String,
        /// Their height and width, as in `48x24`.
        given: String,
        /// The smallest that it can take, likewise.
        smallest: String,
    },
    /// A batch that the network was not built for.
    #[error("the network was built for {accepted}, but was given {given}")]
    Batch {
        /// What it was built for.
        accepted: String,
        /// What it was given.
        given: String,
    },
    /// A label that is none of the network's classes.
    #[error("a label is {label}, but the network has {classes} classes, which are counted from 0")]
    Label {
        /// The label, as it was given.
        label: u32,
        /// How many classes there are.
        classes: usize,
    },
    /// A global batch that is smaller than this network's part of it.
    #[error("the global batch has {global_batch} samples, but this network alone has {own} of them")]
    GlobalBatch {
        /// The samples of all replicas, as they were given.
        global_batch: usize,
        /// This network's samples.
        own: usize,
    },
    /// A training pass on a network built for inference.
    #[error("the network was built for inference and cannot train; build it with Mode::Training")]
    InferenceOnly,
}

/// Names the layer whose op failed.
pub(crate) trait InLayer<T> {
    fn in_layer(self, name: &str) -> Result<T>;
}

impl<T> InLayer<T> for program::Result<T> {
    fn in_layer(self, name: &str) -> Result<T> {
        self.map_err(|source| Error::Layer { layer: name.to_owned(), source: Box::new(source) })
    }
}
