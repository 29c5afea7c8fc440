//! One topic a file: the host's side of the kernels.

pub(crate) mod channels;
pub(crate) mod convolution;
pub(crate) mod depthwise;
pub(crate) mod dropout;
pub(crate) mod elementwise;
pub(crate) mod group_norm;
pub(crate) mod images;
pub(crate) mod merge;
pub(crate) mod normalization;
pub(crate) mod optimizer;
pub(crate) mod pixel_norm;
pub(crate) mod pooling;
pub(crate) mod prelu;
pub(crate) mod rows;
pub(crate) mod softmax;
pub(crate) mod spatial;
pub(crate) mod tiles;
