//! From a state dict of PyTorch to our layers.

use super::IMAGE_SIZE;
use super::about::{self, Named};
use crate::{Error, Pixels, Result, file, layout};
use checkpoint::{MAX_RANK, Tensors};
use layers::Step;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensorError, SafeTensors};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// The longest header of a safetensors file that is looked at.
const MAX_HEADER: u64 = 16 << 20;

/// What a normalization counts and nobody needs.
const COUNTER: &str = "num_batches_tracked";

/// What wrappers of PyTorch put before every name.
const WRAPPERS: [&str; 2] = ["module.", "_orig_mod."];

/// The state dict of a module with the names that [`module`](super::module()) gives its layers, in a safetensors file.
#[derive(Debug)]
pub struct TorchWeights {
    path: PathBuf,
    metadata: HashMap<String, String>,
    tensors: BTreeMap<String, Stored>,
}

#[derive(Debug)]
struct Stored {
    shape: Vec<usize>,
    data: Vec<f32>,
}

/// The header of a safetensors file, if it is one.
fn header(path: &Path) -> Option<HashMap<String, serde_json::Value>> {
    // Opening a pipe would wait for its writer.
    let mut file = path.is_file().then(|| File::open(path).ok())??;
    let mut len = [0; 8];
    file.read_exact(&mut len).ok()?;
    let len = Some(u64::from_le_bytes(len)).filter(|&len| len <= MAX_HEADER)?;
    serde_json::from_reader(BufReader::new(file.take(len))).ok()
}

/// Whether a file looks like a state dict of PyTorch in the safetensors format: by the names in its header, not its ending.
pub fn is_state_dict(path: &Path) -> bool {
    let header = header(path).unwrap_or_default();
    // Names of towers, and of Keras, have a slash.
    header.keys().any(|name| name.ends_with(".weight")) && !header.keys().any(|name| name.contains('/'))
}

/// Whether the header of a state dict names the classes of its network.
pub fn names_classes(path: &Path) -> bool {
    let metadata = header(path).and_then(|mut header| header.remove("__metadata__"));
    metadata
        .and_then(|metadata| serde_json::from_value(metadata).ok())
        .is_some_and(|m| about::names_classes::<String>(&m))
}

impl TorchWeights {
    /// Reads what `safetensors.torch.save_file(network.state_dict(), path)` wrote, in a wrapper such as `DataParallel` or not.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::File`] if it is no safetensors file, is too large or damaged, or has weights of another type than
    /// float32.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = file::read(path)?;
        let damaged =
            |error: SafeTensorError| Error::file(path, format!("it is no safetensors file: {error}"));
        let stored = SafeTensors::deserialize(&bytes).map_err(damaged)?;
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(damaged)?;
        // One may stand around another.
        let mut wrapped = 0;
        while let Some(wrapper) = WRAPPERS.into_iter().find(|wrapper| {
            let starts = |name: &&str| name.get(wrapped..).is_some_and(|name| name.starts_with(wrapper));
            !stored.is_empty() && stored.names().iter().all(starts)
        }) {
            wrapped += wrapper.len();
        }
        let mut tensors = BTreeMap::new();
        for (name, view) in stored.iter().filter(|(name, _)| !name.ends_with(COUNTER)) {
            let name = name.get(wrapped..).unwrap_or(name);
            tensors.insert(name.to_owned(), read(path, name, &view)?);
        }
        let metadata = header.metadata().clone().unwrap_or_default();
        Ok(TorchWeights { path: path.to_owned(), metadata, tensors })
    }

    /// The outputs of the last dense layer, by the names: the number of classes.
    pub fn classes(&self) -> Option<usize> {
        let dense = self.tensors.iter().filter(|(name, w)| w.shape.len() == 2 && name.ends_with(".weight"));
        // `dense_10` is behind `dense_9`.
        dense.max_by_key(|(name, _)| (name.len(), *name)).map(|(_, weight)| weight.shape[0])
    }

    /// Height and width of the images, where the file says it: by its metadata, or by a mean of each pixel.
    pub fn image_size(&self) -> Option<[usize; 2]> {
        let told = || {
            let (h, w) = self.metadata.get(IMAGE_SIZE)?.split_once('x')?;
            Some([h.parse().ok()?, w.parse().ok()?])
        };
        let shift = || match self.tensors.get(layout::SHIFT)?.shape[..] {
            [_, h, w] if h.saturating_mul(w) > 1 => Some([h, w]),
            _ => None,
        };
        told().or_else(shift)
    }

    /// What the file says about the classes: what an export wrote, or whoever gave the module's `METADATA` to `save_file`.
    ///
    /// # Errors
    /// [`Error::File`] if their names can't be read, or are more or fewer than the [`classes`](TorchWeights::classes).
    pub fn named(&self) -> Result<Option<Named>> {
        about::read(&self.path, &self.metadata, self.classes().unwrap_or_default())
    }

    /// What happens to pixels first, if the module has it in it.
    pub fn pixels(&self) -> Option<Pixels> {
        let (scale, shift) = (self.tensors.get(layout::SCALE)?, self.tensors.get(layout::SHIFT)?);
        // From (channels, rows, columns) to (rows, columns, channels).
        let channels = scale.data.len();
        let rows = shift.data.len().checked_div(channels)?;
        let fits = rows * channels == shift.data.len();
        let shift = || layout::channels_first(&shift.data, channels, rows);
        fits.then(|| Pixels { scale: scale.data.clone(), shift: shift() })
    }

    /// The tensors of a network with these layers, under the names of its slots. Layers are matched by their names.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the first thing that differs.
    pub fn assign(&self, steps: &[Step]) -> Result<Tensors> {
        let refuse = |reason: String| Error::Mismatch { path: self.path.clone(), reason };
        let (mut tensors, mut taken) =
            (Tensors::new(), vec![layout::SCALE.to_owned(), layout::SHIFT.to_owned()]);
        for (step, spec) in steps.iter().flat_map(|step| step.params.iter().map(move |spec| (step, spec))) {
            let (name, shape) = (layout::name(&step.name, spec.name), layout::shape(&spec.shape));
            let found = self.tensors.get(&name).ok_or_else(|| refuse(format!("it has no `{name}`")))?;
            if found.shape != shape {
                let (is, needs) = (&found.shape, &shape);
                return Err(refuse(format!(
                    "its `{name}` has the shape {is:?}, but the network's has {needs:?}"
                )));
            }
            let data = layout::from_torch(&spec.shape, &found.data);
            tensors.insert(format!("{}/{}", step.name, spec.name), spec.shape.clone(), data)?;
            taken.push(name);
        }
        match self.tensors.keys().find(|name| !taken.contains(name)) {
            Some(more) => Err(refuse(format!("it has `{more}`, which the network has not"))),
            None => Ok(tensors),
        }
    }
}

fn read(path: &Path, name: &str, view: &TensorView<'_>) -> Result<Stored> {
    if view.dtype() != Dtype::F32 {
        let kind = view.dtype();
        let reason = format!("its `{name}` is {kind}, but must be F32; save network.float().state_dict()");
        return Err(Error::file(path, reason));
    }
    if view.shape().len() > MAX_RANK {
        return Err(Error::file(path, format!("its `{name}` has more than {MAX_RANK} dimensions")));
    }
    let data = view.data().as_chunks::<4>().0.iter().map(|&word| f32::from_le_bytes(word)).collect();
    Ok(Stored { shape: view.shape().to_vec(), data })
}

#[cfg(test)]
mod tests {
    use super::*;
    use checkpoint::save_tensors;

    /// The state dict of `small_cnn`, as it would be in a file, under names that `rename` makes.
    fn saved(folder: &Path, rename: impl Fn(&str) -> String) -> PathBuf {
        let mut tensors = Tensors::new();
        for step in models::small_cnn(3).unwrap().steps() {
            for spec in &step.params {
                let len = spec.shape.iter().product();
                let name = rename(&layout::name(&step.name, spec.name));
                tensors.insert(name, layout::shape(&spec.shape), vec![0.5; len]).unwrap();
            }
        }
        let path = folder.join("net.safetensors");
        save_tensors(&path, &tensors, &BTreeMap::new()).unwrap();
        path
    }

    #[test]
    fn wrappers_of_pytorch_are_looked_through() {
        let folder = tempfile::tempdir().unwrap();
        let steps = models::small_cnn(3).unwrap().steps();
        for wrapper in ["", "module.", "_orig_mod.", "_orig_mod.module.", "module._orig_mod."] {
            let path = saved(folder.path(), |name| format!("{wrapper}{name}"));
            assert!(is_state_dict(&path));
            let weights = TorchWeights::read(&path).unwrap();
            assert_eq!(weights.classes(), Some(3));
            assert!(weights.assign(&steps).is_ok() && weights.pixels().is_none());
        }
    }

    #[test]
    fn names_of_classes_are_read_with_care() {
        let folder = tempfile::tempdir().unwrap();
        let path = saved(folder.path(), str::to_owned);
        let tensors = checkpoint::load_tensors(&path).unwrap();
        let named = |entries: &[(&str, &str)]| {
            let metadata =
                entries.iter().map(|(key, value)| (format!("towers.{key}"), (*value).to_owned())).collect();
            save_tensors(&path, &tensors, &metadata).unwrap();
            (
                names_classes(&path),
                TorchWeights::read(&path).unwrap().named().map_err(|error| error.to_string()),
            )
        };
        assert_eq!(named(&[("dataset", "pets")]), (false, Ok(None)));
        let pets = Named {
            classes: ["cat", "dog", "p\u{e4}rchen"].map(String::from).to_vec(),
            dataset: Some("pets".into()),
        };
        let classes = r#"["cat", "dog", "p\u00e4rchen"]"#;
        assert_eq!(named(&[("classes", classes), ("dataset", "pets")]), (true, Ok(Some(pets.clone()))));
        assert_eq!(named(&[("classes", classes)]).1, Ok(Some(Named { dataset: None, ..pets })));
        let long = format!(r#"["cat", "dog", "{}"]"#, "x".repeat(2000));
        let more_than_there_is_memory_for = format!("{}1", "[".repeat(9 << 20));
        for (classes, dataset, says) in [
            (r#"["cat", "dog"]"#, "pets", "its metadata name 2 classes, but the network has 3"),
            ("3", "pets", "are no list in JSON"),
            (r#"["cat", "dog", 3]"#, "pets", "are no list in JSON"),
            (&more_than_there_is_memory_for[..1000], "pets", "are no list in JSON"),
            (&more_than_there_is_memory_for, "pets", "are no list in JSON"),
            (&long, "pets", "longer than 1024 bytes"),
            (r#"["cat", "dog", ""]"#, "pets", "are empty"),
            (r#"["cat", "dog", "\u001b[2J"]"#, "pets", "control characters"),
            (classes, "a\nb", "control characters"),
        ] {
            let error = named(&[("classes", classes), ("dataset", dataset)]).1.unwrap_err();
            assert!(error.contains(says) && error.len() < 500, "{error}");
        }
    }

    #[test]
    fn what_differs_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let of = |rename: &dyn Fn(&str) -> String, classes| {
            let weights = TorchWeights::read(&saved(folder.path(), rename)).unwrap();
            weights.assign(&models::small_cnn(classes).unwrap().steps()).unwrap_err().to_string()
        };
        let other = of(&|name| name.replace("conv2d.", "stem."), 3);
        assert!(other.ends_with("it has no `conv2d.weight`"), "{other}");
        let classes = of(&str::to_owned, 4);
        assert!(classes.contains("`dense") && classes.contains("but the network's has [4, "), "{classes}");
        let path = folder.path().join("net.safetensors");
        std::fs::write(&path, b"not at all").unwrap();
        assert!(!is_state_dict(&path) && !is_state_dict(folder.path()));
        assert!(TorchWeights::read(&path).unwrap_err().to_string().contains("no safetensors file"));
    }
}
