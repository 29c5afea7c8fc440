//! The known data sets, a file each. A new one is its file and a line each of [`Kind`], `ALL` and `official`.

mod cifar10;
mod cifar100;
mod fashion_mnist;
mod mnist;

use std::fmt;

use crate::official::Official;

/// Which of the known data sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
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

    /// Its description.
    pub(crate) fn official(self) -> &'static Official {
        match self {
            Kind::Cifar10 => &cifar10::CIFAR10,
            Kind::Cifar100 => &cifar100::CIFAR100,
            Kind::Mnist => &mnist::MNIST,
            Kind::FashionMnist => &fashion_mnist::FASHION_MNIST,
        }
    }

    /// The name in file names and on command lines: `cifar10`, `cifar100`, `mnist` or `fashion-mnist`.
    pub fn name(self) -> &'static str {
        self.official().name
    }

    /// Height, width and channels of the images.
    pub fn shape(self) -> [usize; 3] {
        self.official().shape
    }

    /// What an address to download from leads to, in words.
    pub fn at_address(self) -> &'static str {
        self.official().at_address
    }

    /// The number of classes: 10 or 100.
    pub fn classes(self) -> usize {
        class_names(self).len()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.official().title)
    }
}

/// The names of the classes, in the order of the labels (for CIFAR-100, of the fine labels).
///
/// ```
/// assert_eq!(towers_cifar::class_names(towers_cifar::Kind::Cifar10)[3], "cat");
/// assert_eq!(towers_cifar::class_names(towers_cifar::Kind::Cifar100).len(), 100);
/// ```
pub fn class_names(kind: Kind) -> &'static [&'static str] {
    kind.official().classes
}

/// The names of the 20 coarse classes of CIFAR-100, in the order of the coarse labels; none for the others.
pub fn coarse_class_names(kind: Kind) -> &'static [&'static str] {
    kind.official().coarse
}
