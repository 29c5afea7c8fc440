//! The front door: find the data or fetch it.

use std::fmt;
use std::path::{Path, PathBuf};
#[cfg(feature = "download")]
use std::time::Duration;

use towers_dataset::Dataset;

#[cfg(feature = "download")]
use crate::download::{Network, Source};
use crate::error::{Error, Result};
use crate::fetch::Fetch;
use crate::find::{Search, folders_in, other_programs};
use crate::kinds::Kind;
use crate::layout::Layout;
use crate::progress::{Listener, Progress};

/// CIFAR-10, CIFAR-100, MNIST or Fashion-MNIST, from wherever it can be had.
///
/// [`load`](Cifar::load) looks for the files in the data folder, then where Keras and torchvision keep
/// theirs. If there are none it unpacks an official archive that lies in the data folder, and else downloads
/// one (with the feature `download`). Whatever it finds is checked completely before it is used.
///
/// ```no_run
/// use towers_cifar::{Cifar, Kind};
///
/// let data = Cifar::new(Kind::Cifar10).data_dir("data").progress(|p| eprintln!("{p}")).load()?;
/// assert_eq!(data.train.images.dim(), (50_000, 32, 32, 3));
/// # Ok::<(), towers_cifar::Error>(())
/// ```
pub struct Cifar<'a> {
    kind: Kind,
    data_dir: PathBuf,
    also: Vec<PathBuf>,
    offline: bool,
    #[cfg(feature = "download")]
    network: Network,
    listener: Box<Listener<'a>>,
}

impl<'a> Cifar<'a> {
    /// The data set `kind`, kept in the folder `data`, from the public sources.
    pub fn new(kind: Kind) -> Cifar<'a> {
        Cifar {
            kind,
            data_dir: "data".into(),
            also: other_programs(),
            offline: false,
            #[cfg(feature = "download")]
            network: Network::official(kind),
            listener: Box::new(|_| {}),
        }
    }

    /// Where the data is or goes: the folder of the files or its parent. It is created if need be.
    pub fn data_dir(self, dir: impl Into<PathBuf>) -> Self {
        Cifar { data_dir: dir.into(), ..self }
    }

    /// Other folders to look into, in place of Keras' and torchvision's. Nothing is written there.
    pub fn also_look_in(self, folders: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        Cifar { also: folders.into_iter().map(Into::into).collect(), ..self }
    }

    /// Whether to leave the network alone. Without the feature `download` it always is.
    pub fn offline(self, offline: bool) -> Self {
        Cifar { offline, ..self }
    }

    /// A function that hears how it goes.
    pub fn progress(self, listener: impl FnMut(Progress<'_>) + 'a) -> Self {
        Cifar { listener: Box::new(listener), ..self }
    }

    /// Finds or fetches the data and reads it.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it isn't there and fetching is off, [`Error::NoSource`] if no source has it,
    /// [`Error::File`] if the data folder can't be written.
    pub fn load(mut self) -> Result<Dataset> {
        self.obtain().map(|(_, data)| data)
    }

    /// Finds or fetches the data, checks it, and tells the folder of its files.
    ///
    /// # Errors
    /// As [`load`](Cifar::load).
    pub fn fetch(mut self) -> Result<PathBuf> {
        self.obtain().map(|(dir, _)| dir)
    }

    fn obtain(&mut self) -> Result<(PathBuf, Dataset)> {
        let root = self.root();
        let roots = [&self.data_dir, &root].into_iter().chain(&self.also);
        let mut looked: Vec<PathBuf> = Vec::new();
        for folder in roots.flat_map(|dir| folders_in(self.kind, dir)) {
            if !looked.contains(&folder) {
                looked.push(folder);
            }
        }
        let mut search = Search::default();
        let listener = &mut *self.listener;
        let mut found =
            search.first(self.kind, &looked, &mut |reason| listener(Progress::Rejected { reason }));
        if found.is_none() {
            let mut fetch = Fetch {
                kind: self.kind,
                root: &root,
                #[cfg(feature = "download")]
                network: (!self.offline).then_some(&self.network),
                listener: &mut *listener,
                rejected: &mut search.rejected,
            };
            found = fetch.run()?;
        }
        let Some((dir, data)) = found else {
            let mut places = vec![self.data_dir.clone()];
            places.extend(self.also.iter().filter(|also| **also != self.data_dir).cloned());
            let rejected = search.rejected.iter().map(Error::to_string).collect();
            return Err(Error::NotFound { kind: self.kind, looked: places, rejected });
        };
        listener(Progress::Ready { dir: &dir });
        Ok((dir, data))
    }

    /// The parent of the batch files' folder, whichever of the two the data folder names.
    fn root(&self) -> PathBuf {
        let named = Layout::all(self.kind).map(Layout::folder).find(|folder| self.data_dir.ends_with(folder));
        let parents = named.map_or(0, |folder| Path::new(folder).components().count());
        self.data_dir.ancestors().nth(parents).unwrap_or(&self.data_dir).to_path_buf()
    }
}

/// Where downloads come from.
#[cfg(feature = "download")]
impl Cifar<'_> {
    /// Download from these addresses instead of the public ones; their checksums are not known, see
    /// [`sources`](Cifar::sources). An address is an archive's; of MNIST and Fashion-MNIST it is the folder's that has the four
    /// `.gz` files.
    pub fn urls(self, urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.sources(urls.into_iter().map(Source::new))
    }

    /// Download from these sources instead of the public ones, tried in this order.
    pub fn sources(mut self, sources: impl IntoIterator<Item = Source>) -> Self {
        self.network.sources = sources.into_iter().collect();
        self
    }

    /// How long a server may take to be reached, to answer, and to send the next bytes. Default: 5 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.network.patience.timeout = timeout;
        self
    }

    /// When a source crawls: less than so many bytes a second, over so long. It is then left, as long as
    /// another one is untried; if all crawl, the fastest one is used, down to 1 kB/s. Default: 200 kB/s over
    /// 8 seconds.
    pub fn slow(mut self, bytes_per_second: u64, over: Duration) -> Self {
        let patience = &mut self.network.patience;
        (patience.slow, patience.slow_over) = (bytes_per_second, over);
        self
    }
}

impl fmt::Debug for Cifar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Cifar");
        shown.field("kind", &self.kind).field("data_dir", &self.data_dir).field("also_look_in", &self.also);
        shown.field("offline", &self.offline);
        #[cfg(feature = "download")]
        shown.field("network", &self.network);
        shown.finish_non_exhaustive()
    }
}
