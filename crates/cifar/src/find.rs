//! Looking for data that is already on this machine.

use std::env;
use std::path::{Path, PathBuf};

use towers_dataset::Dataset;

use crate::error::{Error, Result};
use crate::kinds::Kind;
use crate::layout::Layout;

/// Reads a data set from `dir` or from the folder of the official name inside it: CIFAR's batch files, binary or python layout
/// (`cifar-10-batches-bin`, `cifar-10-batches-py`, `cifar-100-binary`, `cifar-100-python`); the `idx` files of MNIST and
/// Fashion-MNIST, compressed or not (`MNIST/raw`, `FashionMNIST/raw`, `fashion-mnist`); or Keras' `mnist.npz`.
///
/// Nothing is taken on trust: file sizes, the number of records, every label, and that each class occurs.
///
/// # Errors [`Error::NotFound`] if there is no such file, otherwise the error of the first that fails.
///
/// ```no_run
/// let data = towers_cifar::read_dir(towers_cifar::Kind::Cifar10, "data/cifar-10-batches-py")?;
/// assert_eq!(data.train.len(), 50_000);
/// # Ok::<(), towers_cifar::Error>(())
/// ```
pub fn read_dir(kind: Kind, dir: impl AsRef<Path>) -> Result<Dataset> {
    let dir = dir.as_ref();
    let mut search = Search::default();
    if let Some((_, data)) = search.first(kind, &folders_in(kind, dir), &mut |_| {}) {
        return Ok(data);
    }
    let nothing = Error::NotFound { kind, looked: vec![dir.into()], rejected: vec![] };
    Err(search.rejected.into_iter().next().unwrap_or(nothing))
}

/// What a search has turned down on its way.
#[derive(Default)]
pub(crate) struct Search {
    pub rejected: Vec<Error>,
}

impl Search {
    /// The first of `folders` that holds complete and sound files, and their content.
    pub fn first(
        &mut self,
        kind: Kind,
        folders: &[PathBuf],
        on_reject: &mut dyn FnMut(&Error),
    ) -> Option<(PathBuf, Dataset)> {
        for dir in folders {
            for layout in Layout::all(kind).filter(|layout| layout.is_in(dir)) {
                match layout.read(dir) {
                    Ok(data) => return Some((dir.clone(), data)),
                    Err(reason) => {
                        on_reject(&reason);
                        self.rejected.push(reason);
                    }
                }
            }
        }
        None
    }
}

/// Where the files may lie, given a folder that is theirs or holds theirs.
pub(crate) fn folders_in(kind: Kind, dir: &Path) -> Vec<PathBuf> {
    let within = Layout::all(kind).flat_map(Layout::folders).map(|name| dir.join(name));
    std::iter::once(dir.to_path_buf()).chain(within).collect()
}

/// Where Keras (`$KERAS_HOME` or `~/.keras`) and torchvision (`data` in the working directory, as in its
/// documentation) keep their data sets.
pub(crate) fn other_programs() -> Vec<PathBuf> {
    let keras =
        env::var_os("KERAS_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".keras")));
    keras.map(|keras| keras.join("datasets")).into_iter().chain([PathBuf::from("data")]).collect()
}
