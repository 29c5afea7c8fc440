//! The known data sets, and the names of their classes in the order of the labels.

use std::fmt;

use crate::sizes::{CHANNELS, SIDE};

/// Which of the known data sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// 50,000 + 10,000 images of 10 classes.
    Cifar10,
    /// 50,000 + 10,000 images of 100 classes, grouped into 20 coarse ones.
    Cifar100,
    /// 60,000 + 10,000 grey images of 28 x 28 pixels: handwritten digits.
    Mnist,
    /// 60,000 + 10,000 grey images of 28 x 28 pixels: clothes of 10 classes.
    FashionMnist,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 4] = [Kind::Cifar10, Kind::Cifar100, Kind::Mnist, Kind::FashionMnist];

    /// The data set of this [name](Kind::name).
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The name in file names and on command lines: `cifar10`, `cifar100`, `mnist` or `fashion-mnist`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Cifar10 => "cifar10",
            Kind::Cifar100 => "cifar100",
            Kind::Mnist => "mnist",
            Kind::FashionMnist => "fashion-mnist",
        }
    }

    /// Height, width and channels of the images.
    pub fn shape(self) -> [usize; 3] {
        match self {
            Kind::Cifar10 | Kind::Cifar100 => [SIDE, SIDE, CHANNELS],
            Kind::Mnist | Kind::FashionMnist => [28, 28, 1],
        }
    }

    /// What an address to download from leads to, in words.
    pub fn at_address(self) -> &'static str {
        match self {
            Kind::Cifar10 | Kind::Cifar100 => "an archive",
            Kind::Mnist | Kind::FashionMnist => "the folder with the four .gz files",
        }
    }

    /// The number of classes: 10 or 100.
    pub fn classes(self) -> usize {
        class_names(self).len()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Cifar10 => "CIFAR-10",
            Kind::Cifar100 => "CIFAR-100",
            Kind::Mnist => "MNIST",
            Kind::FashionMnist => "Fashion-MNIST",
        })
    }
}

/// The names of the classes, in the order of the labels (for CIFAR-100, of the fine labels).
///
/// ```
/// assert_eq!(cifar::class_names(cifar::Kind::Cifar10)[3], "cat");
/// assert_eq!(cifar::class_names(cifar::Kind::Cifar100).len(), 100);
/// ```
pub fn class_names(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Cifar10 => &CIFAR10,
        Kind::Cifar100 => &CIFAR100,
        Kind::Mnist => &DIGITS,
        Kind::FashionMnist => &CLOTHES,
    }
}

/// The names of the 20 coarse classes of CIFAR-100, in the order of the coarse labels; none for the others.
pub fn coarse_class_names(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Cifar100 => &CIFAR100_COARSE,
        Kind::Cifar10 | Kind::Mnist | Kind::FashionMnist => &[],
    }
}

#[rustfmt::skip]
const CIFAR10: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

#[rustfmt::skip]
const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

#[rustfmt::skip]
const CLOTHES: [&str; 10] = [
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
];

#[rustfmt::skip]
const CIFAR100: [&str; 100] = [
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
const CIFAR100_COARSE: [&str; 20] = [
    "aquatic_mammals", "fish", "flowers", "food_containers", "fruit_and_vegetables",
    "household_electrical_devices", "household_furniture", "insects", "large_carnivores",
    "large_man-made_outdoor_things", "large_natural_outdoor_scenes", "large_omnivores_and_herbivores",
    "medium_mammals", "non-insect_invertebrates", "people", "reptiles", "small_mammals", "trees",
    "vehicles_1", "vehicles_2",
];
