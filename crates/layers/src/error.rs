/// The result of building or running a network.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The errors of networks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A layer's op failed.
    #[error("layer {layer}: {source}")]
    Layer {
        /// The layer's name.
        layer: String,
        /// The device's error.
        source: Box<towers_program::Error>,
    },
    /// The device failed outside of any layer.
    #[error(transparent)]
    Tensor(#[from] towers_program::Error),
    /// Tensors that a layer can't combine.
    #[error("layer {layer}: {what}")]
    Graph {
        /// The layer's name.
        layer: String,
        /// The mismatch.
        what: String,
    },
    /// A place where a network can't be cut into stages.
    #[error("the network can't be cut behind `{layer}`: {what}{}", if names.is_empty() { String::new() } else { format!("; it can be cut behind {names}") })]
    Cut {
        /// The layer's name, as it was given.
        layer: String,
        /// Why not.
        what: String,
        /// The possible cuts as a list, or an empty string.
        names: String,
    },
    /// Images that a network can't take. This crate never returns it, since a layer only knows its own input.
    /// It is for the crate `models`, which has no error type, and for other makers of networks for images of
    /// any size.
    #[error("{network} can't take images of {given} (height x width): it needs at least {smallest}")]
    Images {
        /// The network's name.
        network: String,
        /// Their height and width, as in `48x24`.
        given: String,
        /// The smallest size that it can take.
        smallest: String,
    },
    /// A batch that the network was not built for.
    #[error("the network was built for {accepted}, but was given {given}")]
    Batch {
        /// The batches that it was built for.
        accepted: String,
        /// The given batch.
        given: String,
    },
    /// A label that is none of the network's classes.
    #[error("a label is {label}, but the network has {classes} classes, which are counted from 0")]
    Label {
        /// The given label.
        label: u32,
        /// The number of classes.
        classes: usize,
    },
    /// A global batch that is smaller than this network's part of it.
    #[error("the global batch has {global_batch} samples, but this network alone has {own} of them")]
    GlobalBatch {
        /// The given number of samples of all replicas.
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

impl<T> InLayer<T> for towers_program::Result<T> {
    fn in_layer(self, name: &str) -> Result<T> {
        self.map_err(|source| Error::Layer { layer: name.to_owned(), source: Box::new(source) })
    }
}
