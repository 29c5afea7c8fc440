//! Where an archive can be downloaded from.

use std::fmt;

use md5::{Digest, Md5};

use crate::Kind;
use crate::checksum::hex;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::official::Download;

/// An address of a CIFAR archive (`.tar.gz`, binary or python layout), with its known size and checksum; or of a folder with the
/// four `.gz` files of MNIST or Fashion-MNIST.
///
/// ```
/// let mirror = towers_cifar::Source::new("https://mirror.example/cifar-10-python.tar.gz")
///     .md5("c58f30108f718f92721af3b95e74349a")
///     .size(170_498_071);
/// # assert_eq!(mirror.to_string(), "https://mirror.example/cifar-10-python.tar.gz");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub(super) url: String,
    pub(super) md5: Option<String>,
    pub(super) size: Option<u64>,
    /// Whether it is a folder with the official files, byte for byte.
    pub(super) official: bool,
}

impl Source {
    /// The archive at `url`, of unknown size and checksum: its contents are checked all the same.
    pub fn new(url: impl Into<String>) -> Source {
        Source { url: url.into(), md5: None, size: None, official: false }
    }

    /// The official files of a data set in a folder of another host, whose sizes and checksums are known: CIFAR's python archive, or
    /// the four files of MNIST or Fashion-MNIST.
    ///
    /// ```
    /// use towers_cifar::{Cifar, Kind, Source};
    ///
    /// let mirror = Source::mirror(Kind::Mnist, "https://mirror.example/mnist/");
    /// let digits = Cifar::new(Kind::Mnist).sources([mirror]);
    /// # let _ = digits;
    /// ```
    pub fn mirror(kind: Kind, folder: impl Into<String>) -> Source {
        let folder = folder.into();
        let archive = Layout::all(kind).filter_map(Layout::archive).last();
        match archive {
            Some(archive) => Source::archive(&folder, archive),
            None => Source { official: true, ..Source::new(folder) },
        }
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
    /// use towers_cifar::Source;
    /// assert!(Source::new("https://mirror.example/cifar-10-python.tar.gz").is_address());
    /// assert!(!Source::new("cifar-10-python.tar.gz").is_address());
    /// ```
    pub fn is_address(&self) -> bool {
        reqwest::Url::parse(&self.url)
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
    }

    /// The public sources of a data set, in the order they are tried.
    ///
    /// CIFAR-10's python archive comes first since it has byte-identical mirrors, and so have the files of MNIST and
    /// Fashion-MNIST: the bytes that one of them sent before it stalled, the next one completes.
    pub fn official(kind: Kind) -> Vec<Source> {
        let hosts = kind.official().hosts;
        let mirrors = hosts.iter().map(|&host| Source::mirror(kind, host));
        let binary = Layout::all(kind).find_map(Layout::archive);
        mirrors
            .chain(hosts.first().zip(binary).map(|(host, archive)| Source::archive(host, archive)))
            .collect()
    }

    /// An official archive in a folder of some host.
    fn archive(folder: &str, (name, md5, size): Download) -> Source {
        Source::new(format!("{folder}{name}")).md5(md5).size(size)
    }

    /// The files to download: the archive itself, or those in a folder.
    ///
    /// # Errors
    /// [`Error::NoMd5`] for one checksum of several files.
    pub(super) fn files(&self, kind: Kind) -> Result<Vec<Source>> {
        let Some(layout) = Layout::in_pieces(kind) else { return Ok(vec![self.clone()]) };
        if let Some(md5) = &self.md5 {
            let md5 = format!("{md5}, of a folder with several files");
            return Err(Error::NoMd5 { url: self.url.clone(), md5 });
        }
        let folder = self.url.trim_end_matches('/');
        let file = |&(name, md5, size): &Download| {
            let file = Source::new(format!("{folder}/{name}.gz"));
            if self.official { file.md5(md5).size(size) } else { file }
        };
        Ok(layout.files.single.iter().map(file).collect())
    }

    /// The name, but for its ends, of the file in which an unfinished download waits: the same for the same
    /// bytes, wherever they come from.
    pub(super) fn part_name(&self) -> String {
        let identity = self.md5.clone().unwrap_or_else(|| hex(&Md5::digest(&self.url)));
        let ending = if self.url.ends_with(".tar.gz") || self.md5.is_none() { ".tar.gz" } else { ".gz" };
        format!("{identity:.8}{ending}")
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}
