use crate::{Layer, Lower};
use towers_program::{Result, TensorId, ops};

/// Channels in another order: those of `groups` equal parts take turns, as between the grouped convolutions of ShuffleNet.
///
/// PyTorch's `channel_shuffle`; Keras has no such layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelShuffle {
    groups: usize,
}

impl ChannelShuffle {
    /// The number of parts, which must divide the number of channels.
    pub fn new(groups: usize) -> Self {
        ChannelShuffle { groups }
    }
}

impl Layer for ChannelShuffle {
    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        to.push(ops::ChannelShuffle { groups: self.groups }, inputs)
    }
}

/// Some channels: a part of PyTorch's `chunk` or `split`.
///
/// Keras has no such layer. Where parts of a tensor are read by different layers, each is one of these. It costs nothing forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelSlice {
    start: usize,
    channels: usize,
}

impl ChannelSlice {
    /// `channels` channels from `start` on.
    pub fn new(start: usize, channels: usize) -> Self {
        ChannelSlice { start, channels }
    }
}

impl Layer for ChannelSlice {
    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        to.push(ops::Slice { from: self.start, channels: self.channels }, inputs)
    }
}
