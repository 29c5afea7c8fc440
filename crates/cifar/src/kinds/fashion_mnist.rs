use crate::official::{Files, Format, Official};

/// The MD5s are those of torchvision's `datasets/mnist.py`, the sizes those of TensorFlow Datasets' `checksums.tsv`.
pub(super) const FASHION_MNIST: Official = Official {
    name: "fashion-mnist",
    title: "Fashion-MNIST",
    shape: [28, 28, 1],
    images: [60_000, 10_000],
    classes: &[
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ],
    coarse: &[],
    begins: &[9, 0, 0, 3, 0, 2, 7, 2, 5, 5],
    layouts: &[Files {
        single: &[
            ("train-images-idx3-ubyte", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            ("train-labels-idx1-ubyte", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
            ("t10k-images-idx3-ubyte", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            ("t10k-labels-idx1-ubyte", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        ],
        ..Files::new(Format::Idx, "FashionMNIST/raw")
    }],
    // Those of Keras and of the authors.
    hosts: &[
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ],
    wanted: "the four official .gz files",
    at_address: "the folder with the four .gz files",
};
