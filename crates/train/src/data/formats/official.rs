use super::format::{Format, Request};
use crate::data::progress::Progress;
use crate::{Error, Result};
use cifar::{Cifar, Kind, Source};
use dataset::Dataset;

/// A known data set, which is found or downloaded.
pub(super) struct Official {
    pub(super) names: &'static [&'static str],
    pub(super) kind: Kind,
}

impl Format for Official {
    fn names(&self) -> &'static [&'static str] {
        self.names
    }

    fn shape(&self) -> [usize; 3] {
        self.kind.shape()
    }

    fn is_scaled(&self) -> bool {
        self.is_grey()
    }

    fn recipe(&self) -> (&'static str, Option<&'static str>) {
        if self.is_grey() { ("mnist", Some("for small grey images")) } else { ("minigooglenet", None) }
    }

    fn read(&self, Request { files, listener, .. }: Request<'_>) -> Result<Dataset> {
        if let Some(url) = files.data_url.iter().find(|url| !Source::new(*url).is_address()) {
            let accepted = format!("the http:// or https:// address of {}", self.kind.at_address());
            return Err(Error::option("`data.data_url`", format!("`{url}`"), accepted));
        }
        let told = |progress: cifar::Progress<'_>| listener(Progress::Fetch(progress));
        let mut cifar = Cifar::new(self.kind).offline(files.offline).progress(told);
        if let Some(dir) = &files.data_dir {
            cifar = cifar.data_dir(dir);
        }
        if !files.data_url.is_empty() {
            cifar = cifar.urls(files.data_url.iter().cloned());
        }
        Ok(cifar.load()?)
    }
}

impl Official {
    fn is_grey(&self) -> bool {
        self.kind.shape()[2] == 1
    }
}
