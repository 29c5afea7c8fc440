use crate::official::{Files, Format, Official};
use crate::sizes::{CHANNELS, SIDE};

/// The sizes of the archives are those that the official host has served since 2009, the MD5s those of its page.
pub(super) const CIFAR100: Official = Official {
    name: "cifar100",
    title: "CIFAR-100",
    shape: [SIDE, SIDE, CHANNELS],
    images: [50_000, 10_000],
    classes: CLASSES,
    coarse: COARSE,
    begins: &[],
    layouts: &[
        Files {
            archive: Some(("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", 168_513_733)),
            batches: &[("train.bin", 50_000), ("test.bin", 10_000)],
            extras: &["fine_label_names.txt", "coarse_label_names.txt"],
            ..Files::new(Format::Binary, "cifar-100-binary")
        },
        Files {
            archive: Some(("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437)),
            batches: &[("train", 50_000), ("test", 10_000)],
            extras: &["meta"],
            ..Files::new(Format::Python, "cifar-100-python")
        },
    ],
    hosts: &["https://www.cs.toronto.edu/~kriz/"],
    wanted: "the official .tar.gz archive",
    at_address: "an archive",
};

#[rustfmt::skip]
const CLASSES: &[&str] = &[
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle",
    "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle",
    "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur",
    "dolphin", "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard",
    "lamp", "lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain",
    "mouse", "mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree",
    "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket",
    "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider",
    "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger", "tractor",
    "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm",
];

#[rustfmt::skip]
const COARSE: &[&str] = &[
    "aquatic_mammals", "fish", "flowers", "food_containers", "fruit_and_vegetables",
    "household_electrical_devices", "household_furniture", "insects", "large_carnivores",
    "large_man-made_outdoor_things", "large_natural_outdoor_scenes", "large_omnivores_and_herbivores",
    "medium_mammals", "non-insect_invertebrates", "people", "reptiles", "small_mammals", "trees",
    "vehicles_1", "vehicles_2",
];
