use crate::{DataOptions, Error, Result};
use cifar::{Cifar, Dataset, Kind, Progress, SYNTHETIC_TEST, SYNTHETIC_TRAIN, Source};
use std::path::Path;

/// The synthetic data set is the same in every run: only training depends on the run's seed.
const SYNTHETIC_SEED: u64 = 0;

/// The data set that the options name, cut to their limits: found on this machine, fetched, or drawn.
///
/// `listener` hears of downloads.
///
/// # Errors
/// [`Error::Data`] with the remedies if it can't be had; [`Error::Option`] for a name that is neither a data set nor a folder.
pub fn load_data(options: &DataOptions, listener: impl FnMut(Progress<'_>)) -> Result<Dataset> {
    let limit = |limit: Option<usize>, all| limit.map_or(all, |limit| limit.min(all));
    let mut data = match options.dataset.as_str() {
        "auto" | "cifar10" => official(Kind::Cifar10, options, listener)?,
        "cifar100" => official(Kind::Cifar100, options, listener)?,
        "synthetic" => cifar::synthetic(
            SYNTHETIC_SEED,
            limit(options.limit_train, SYNTHETIC_TRAIN),
            limit(options.limit_test, SYNTHETIC_TEST),
        ),
        folder if Path::new(folder).is_dir() => cifar::folder::read(folder)?,
        name => {
            return Err(Error::Option {
                option: "--dataset",
                value: format!("`{name}`"),
                accepted: "auto, cifar10, cifar100, synthetic, or a folder of class folders with pictures"
                    .into(),
            });
        }
    };
    for (split, limit) in [(&mut data.train, options.limit_train), (&mut data.test, options.limit_test)] {
        if let Some(limit) = limit.filter(|&limit| limit < split.len()) {
            *split = split.take(limit);
        }
    }
    if data.train.is_empty() {
        let accepted = "at least 1".to_owned();
        return Err(Error::Option { option: "the number of training samples", value: "0".into(), accepted });
    }
    Ok(data)
}

fn official(kind: Kind, options: &DataOptions, listener: impl FnMut(Progress<'_>)) -> Result<Dataset> {
    if let Some(url) = options.data_url.iter().find(|url| !Source::new(*url).is_address()) {
        return Err(Error::Option {
            option: "--data-url",
            value: format!("`{url}`"),
            accepted: "the http:// or https:// address of an archive".into(),
        });
    }
    let mut cifar = Cifar::new(kind).offline(options.offline).progress(listener);
    if let Some(dir) = &options.data_dir {
        cifar = cifar.data_dir(dir);
    }
    if !options.data_url.is_empty() {
        cifar = cifar.urls(options.data_url.iter().cloned());
    }
    Ok(cifar.load()?)
}
