//! The tensor facade of towers: Device, Tensor and the layer-sized ops.
