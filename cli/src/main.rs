//! Train convolutional image classifiers on one or many GPUs, or on the CPU alone.
fn main() {}
