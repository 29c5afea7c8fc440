//! CIFAR-10 and CIFAR-100: find, fetch, verify and read; image folders; an embedded synthetic data set.
mod classes;
mod dataset;
mod synthetic;
pub use classes::{class_names, coarse_class_names};
pub use dataset::{CHANNELS, Dataset, IMAGE_BYTES, Kind, SIDE, Split};
pub use synthetic::{SYNTHETIC_TEST, SYNTHETIC_TRAIN, synthetic};
