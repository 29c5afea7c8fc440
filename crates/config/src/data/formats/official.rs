use super::format::{Format, Request};
use crate::Progress;
use crate::{Error, Result};
use towers_cifar::{Cifar, Kind};
use towers_dataset::Dataset;

/// A known data set, which is found or downloaded.
pub(crate) struct Official {
    pub(crate) names: &'static [&'static str],
    pub(crate) kind: Kind,
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
        let told = |progress: towers_cifar::Progress<'_>| listener(Progress::Fetch(progress));
        let mut cifar = Cifar::new(self.kind).offline(files.offline).progress(told);
        if let Some(dir) = &files.data_dir {
            cifar = cifar.data_dir(dir);
        }
        if !files.data_url.is_empty() {
            cifar = from_urls(cifar, self.kind, &files.data_url)?;
        }
        Ok(cifar.load()?)
    }
}

impl Official {
    fn is_grey(&self) -> bool {
        self.kind.shape()[2] == 1
    }
}

#[cfg(feature = "download")]
fn from_urls<'a>(cifar: Cifar<'a>, kind: Kind, urls: &[String]) -> Result<Cifar<'a>> {
    if let Some(url) = urls.iter().find(|url| !towers_cifar::Source::new(*url).is_address()) {
        let accepted = format!("the http:// or https:// address of {}", kind.at_address());
        return Err(Error::option("data.data_url", format!("`{url}`"), accepted));
    }
    Ok(cifar.urls(urls.iter().cloned()))
}

#[cfg(not(feature = "download"))]
fn from_urls<'a>(_: Cifar<'a>, _: Kind, urls: &[String]) -> Result<Cifar<'a>> {
    let accepted = "left out of a program that was built without the feature `download` of towers-config";
    Err(Error::option("data.data_url", format!("`{}`", urls.join("`, `")), accepted))
}

#[cfg(all(test, not(feature = "download")))]
mod tests {
    use super::*;
    use crate::{DataFiles, recipe};

    #[test]
    fn without_the_feature_nothing_is_downloaded() {
        let data_dir = tempfile::tempdir().unwrap();
        let set = recipe("quick").unwrap().training.data;
        let refusal = |files: &DataFiles| {
            let request = Request { set: &set, files, whole: false, listener: &mut |_| () };
            Official { names: &[], kind: Kind::Cifar10 }.read(request).unwrap_err().to_string()
        };
        let files = DataFiles { data_dir: Some(data_dir.path().into()), ..DataFiles::default() };
        let error = refusal(&files);
        assert!(error.contains("its feature `download`"), "{error}");
        let error = refusal(&DataFiles { data_url: vec!["https://example.org/a".into()], ..files });
        assert!(
            error.starts_with("`data.data_url` is `https://example.org/a`, but must be left out"),
            "{error}"
        );
    }
}
