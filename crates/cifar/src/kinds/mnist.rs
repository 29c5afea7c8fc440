use crate::official::{Files, Format, Official};

/// The MD5s are those of torchvision's `datasets/mnist.py`, the sizes those of TensorFlow Datasets' `checksums.tsv`.
pub(super) const MNIST: Official = Official {
    name: "mnist",
    title: "MNIST",
    shape: [28, 28, 1],
    images: [60_000, 10_000],
    classes: &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"],
    coarse: &[],
    begins: &[5, 0, 4, 1, 9, 2, 1, 3, 1, 4],
    layouts: &[
        Files {
            single: &[
                ("train-images-idx3-ubyte", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
                ("train-labels-idx1-ubyte", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
                ("t10k-images-idx3-ubyte", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
                ("t10k-labels-idx1-ubyte", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
            ],
            ..Files::new(Format::Idx, "MNIST/raw")
        },
        Files::new(Format::Npz, "MNIST/raw"),
    ],
    // Those of torchvision and of TensorFlow Datasets.
    hosts: &[
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ],
    wanted: "the four official .gz files or Keras' mnist.npz",
    at_address: "the folder with the four .gz files",
};
