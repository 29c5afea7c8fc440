//! From a state dict of PyTorch to our layers.

use super::BY_ONNX;
use super::about::{self, IMAGE_SIZE, MULTI_LABEL, Named};
use super::module::identifiers;
use crate::text::shortened;
use crate::{Error, Pixels, Result, layout};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use towers_checkpoint::{Tensor, TensorRef, Tensors, load_tensors_named, read_header};
use towers_layers::Step;

/// The batch counter of a normalization, which inference does not need.
const COUNTER: &str = "num_batches_tracked";

/// The parts that wrappers of PyTorch add to names, wherever they wrap a module, and what adds them.
const WRAPPERS: [(&str, &str); 3] = [
    ("_orig_mod", "torch.compile"),
    ("_fsdp_wrapped_module", "FSDP"),
    ("_checkpoint_wrapped_module", "activation checkpointing"),
];

/// The prefixes of all names that wrappers add, and modules that hold the whole network, as those of Lightning do.
const AROUND: [(&str, &str); 4] = [
    ("module.", "DataParallel or DistributedDataParallel"),
    ("model.", "a module around the network, as in Lightning"),
    ("net.", "a module around the network"),
    ("state_dict.", "a checkpoint of Lightning"),
];

/// The state dict of a module with the names that [`module`](super::module()) gives its layers, in a safetensors file.
#[derive(Debug)]
pub struct TorchWeights {
    path: PathBuf,
    tensors: Tensors,
    /// The names in the file by those without wrappers.
    names: BTreeMap<String, String>,
    /// What was left out of them, and what adds it.
    left_out: Vec<(&'static str, &'static str)>,
    /// The types of weights in the file other than F32.
    narrow: Vec<String>,
}

/// Whether a file looks like a state dict of PyTorch in the safetensors format: by the names in its header, not its ending.
pub fn is_state_dict(path: &Path) -> bool {
    let Ok(header) = read_header(path) else { return false };
    // Names of towers, and of Keras, have a slash.
    header.tensors().any(|(name, _)| name.ends_with(".weight"))
        && !header.tensors().any(|(name, _)| name.contains('/'))
}

/// Whether the header of a state dict names the classes of its network.
pub fn names_classes(path: &Path) -> bool {
    read_header(path).is_ok_and(|header| about::names_classes(header.metadata()))
}

impl TorchWeights {
    /// Reads a file of `safetensors.torch.save_file(network.state_dict(), path)`, in a wrapper such as
    /// `DataParallel` or not.
    ///
    /// # Errors
    /// [`Error::Io`] if it can't be read or is not a sound safetensors file; [`Error::File`] if it has weights of another type
    /// than float32, float16 and bfloat16, or its names don't tell one network.
    pub fn read(path: &Path) -> Result<Self> {
        let is_weight = |name: &str| !name.ends_with(COUNTER);
        let header = read_header(path)?;
        let mut narrow = BTreeSet::new();
        for (name, kind) in header.tensors().filter(|(name, _)| is_weight(name)) {
            match &kind[..] {
                "F32" => {}
                "F16" | "BF16" => drop(narrow.insert(kind)),
                _ => {
                    let reason = format!(
                        "its `{name}` is {kind}, but must be F32, F16 or BF16; save network.float().state_dict()"
                    );
                    return Err(Error::file(path, reason));
                }
            }
        }
        let tensors = load_tensors_named(path, is_weight)?;
        let names = unwrapped(tensors.iter().map(|tensor| tensor.name));
        let (names, left_out) = names.map_err(|reason| Error::file(path, reason))?;
        let narrow = narrow.into_iter().collect();
        Ok(TorchWeights { path: path.to_owned(), tensors, names, left_out, narrow })
    }

    /// Notes on the file, a sentence each: the parts of names that are left out, and types other than F32.
    pub fn told(&self) -> Vec<String> {
        let part = |(part, by): &(&str, &str)| format!("`{part}` ({by})");
        let parts: Vec<String> = self.left_out.iter().map(part).collect();
        let told = || format!("the names of its tensors are read without {}", parts.join(" and "));
        let widened = || format!("weights of {} are read as F32", self.narrow.join(" and "));
        let names = (!parts.is_empty()).then(told);
        names.into_iter().chain((!self.narrow.is_empty()).then(widened)).collect()
    }

    /// A tensor by its name without wrappers.
    fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(self.names.get(name)?)
    }

    /// The outputs of the last dense layer, by the names: the number of classes.
    pub fn classes(&self) -> Option<usize> {
        let is_dense = |weight: &TensorRef<'_>| weight.shape.len() == 2 && weight.name.ends_with(".weight");
        let dense: Vec<TensorRef<'_>> = self.tensors.iter().filter(is_dense).collect();
        let is_read = |outputs: usize| dense.iter().any(|weight| weight.shape[1] == outputs);
        // `dense_10` is behind `dense_9`, and so is a layer whose outputs no other one reads.
        let last =
            dense.iter().max_by_key(|weight| (!is_read(weight.shape[0]), weight.name.len(), weight.name));
        last.map(|weight| weight.shape[0])
    }

    /// Height and width of the images, where the file says it: by its metadata, or by a mean of each pixel.
    pub fn image_size(&self) -> Option<[usize; 2]> {
        let told = || {
            let (h, w) = self.tensors.metadata().get(IMAGE_SIZE)?.split_once('x')?;
            Some([h.parse().ok()?, w.parse().ok()?])
        };
        let shift = || match self.get(layout::SHIFT)?.shape()[..] {
            [_, h, w] if h.saturating_mul(w) > 1 => Some([h, w]),
            _ => None,
        };
        told().or_else(shift)
    }

    /// The classes in the file, from an export or from the module's `METADATA` given to `save_file`.
    ///
    /// # Errors
    /// [`Error::File`] if their names can't be read, or are more or fewer than the [`classes`](TorchWeights::classes).
    pub fn named(&self) -> Result<Option<Named>> {
        about::read(&self.path, self.tensors.metadata(), self.classes().unwrap_or_default())
    }

    /// Whether the metadata say that an image has any number of classes.
    pub fn is_multi_label(&self) -> bool {
        self.tensors.metadata().contains_key(MULTI_LABEL)
    }

    /// What happens to pixels first, if the module has it in it.
    pub fn pixels(&self) -> Option<Pixels> {
        let (scale, shift) = (self.get(layout::SCALE)?.data(), self.get(layout::SHIFT)?.data());
        // From (channels, rows, columns) to (rows, columns, channels).
        let channels = scale.len();
        let rows = shift.len().checked_div(channels)?;
        let fits = rows * channels == shift.len();
        let shift = || layout::channels_first(shift, channels, rows);
        fits.then(|| Pixels { scale: scale.to_vec(), shift: shift() })
    }

    /// The tensors of a network with these layers, under the names of its slots. Layers are matched by their names.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the first thing that differs.
    pub fn assign(&self, steps: &[Step]) -> Result<Tensors> {
        let refuse = |reason: String| Error::Mismatch { path: self.path.clone(), reason };
        let (mut tensors, mut taken) =
            (Tensors::new(), vec![layout::SCALE.to_owned(), layout::SHIFT.to_owned()]);
        let names = identifiers(steps);
        let layers = steps.iter().zip(&names);
        for (step, layer, spec) in
            layers.flat_map(|(step, layer)| step.params.iter().map(move |spec| (step, layer, spec)))
        {
            let own = layout::own(spec);
            let (name, shape) = (layout::name(layer, spec.name), layout::shape(&own));
            let found = self.get(&name).ok_or_else(|| refuse(self.lacks(&name)))?;
            if found.shape() != shape {
                let (is, needs) = (found.shape(), &shape);
                return Err(refuse(format!(
                    "its `{name}` has the shape {is:?}, but the network's has {needs:?}"
                )));
            }
            let data = layout::from_torch(&own, found.data());
            tensors.insert(format!("{}/{}", step.name, spec.name), spec.shape.clone(), data)?;
            taken.push(name);
        }
        match self.names.keys().find(|name| !taken.contains(name)) {
            Some(more) => Err(refuse(format!("it has `{}`, which the network has not", shortened(more)))),
            None => Ok(tensors),
        }
    }

    /// That the file lacks a tensor, and why that may be so.
    fn lacks(&self, name: &str) -> String {
        let before = AROUND
            .into_iter()
            .map(|(around, _)| around)
            .find(|around| self.names.contains_key(&format!("{around}{name}")));
        let other = before.and_then(|around| self.names.keys().find(|other| !other.starts_with(around)));
        match before.zip(other) {
            Some((around, other)) => format!(
                "it has no `{name}`, but `{around}{name}`; with `{}` beside it, nothing says that `{around}` may be left out: save the \
                 state dict of that module alone",
                shortened(other)
            ),
            None => format!("it has no `{name}`; if its network was not exported by towers, {BY_ONNX}"),
        }
    }
}

/// Names, as keys the ones without wrappers; and the parts that were left out.
type Unwrapped = (BTreeMap<String, String>, Vec<(&'static str, &'static str)>);

/// The names in a file by those without wrappers.
fn unwrapped<'a>(names: impl Iterator<Item = &'a str>) -> Result<Unwrapped, String> {
    let (mut own, mut left_out): Unwrapped = Default::default();
    for name in names {
        let wrapper = |part: &&str| WRAPPERS.iter().find(|(wrapper, _)| wrapper == part);
        let (wrappers, parts): (Vec<&str>, Vec<&str>) =
            name.split('.').partition(|part| wrapper(part).is_some());
        for wrapper in wrappers.iter().filter_map(wrapper) {
            if !left_out.contains(wrapper) {
                left_out.push(*wrapper);
            }
        }
        if let Some(other) = own.insert(parts.join("."), name.to_owned()) {
            let [a, b] = [&other, name].map(shortened);
            return Err(format!(
                "its `{a}` and `{b}` are one tensor, if wrappers are left out of their names"
            ));
        }
    }
    // One may stand around another. A layer may have such a name too: then the name of a parameter follows, without a dot.
    let is_own = |name: &str| name.contains('.') || [layout::SCALE, layout::SHIFT].contains(&name);
    let around = |own: &BTreeMap<String, String>, around: &str| {
        !own.is_empty() && own.keys().all(|name| name.strip_prefix(around).is_some_and(is_own))
    };
    while let Some(outer) = AROUND.into_iter().find(|(outer, _)| around(&own, outer)) {
        own = own.into_iter().map(|(name, of_file)| (name[outer.0.len()..].to_owned(), of_file)).collect();
        left_out.push(outer);
    }
    Ok((own, left_out))
}

#[cfg(test)]
mod tests {
    use super::super::is_pickle;
    use super::*;
    use towers_checkpoint::save_tensors;

    /// The state dict of `small_cnn`, as it would be in a file, under names that `rename` makes.
    fn saved(folder: &Path, rename: impl Fn(&str) -> String) -> PathBuf {
        let mut tensors = Tensors::new();
        for step in towers_models::small_cnn(3).unwrap().steps() {
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
        let steps = towers_models::small_cnn(3).unwrap().steps();
        for wrapper in [
            "",
            "module.",
            "_orig_mod.",
            "_orig_mod.module.",
            "module._orig_mod.",
            "model.",
            "net.",
            "model.net.",
            "_fsdp_wrapped_module.",
            "model._orig_mod.module._fsdp_wrapped_module.net.",
            "_checkpoint_wrapped_module.",
            "state_dict.model.",
        ] {
            let path = saved(folder.path(), |name| format!("{wrapper}{name}"));
            assert!(is_state_dict(&path));
            let weights = TorchWeights::read(&path).unwrap();
            assert_eq!(weights.classes(), Some(3));
            assert!(weights.assign(&steps).is_ok() && weights.pixels().is_none(), "{wrapper}");
            let told = weights.told().concat();
            assert!(wrapper.split_terminator('.').all(|part| told.contains(part)), "{told}");
            assert_eq!(told.is_empty(), wrapper.is_empty());
        }
        // Modules inside of the network may be wrapped too.
        let inside = |name: &str| name.replace("conv2d_1.", "conv2d_1._fsdp_wrapped_module.");
        let weights = TorchWeights::read(&saved(folder.path(), inside)).unwrap();
        assert!(weights.assign(&steps).is_ok());
        let says = "the names of its tensors are read without `_fsdp_wrapped_module` (FSDP)";
        assert_eq!(weights.told(), [says]);
    }

    /// A prefix is only left out where it can't be a layer's name.
    #[test]
    fn names_that_may_be_layers_stay() {
        let own = |names: &[&str]| {
            unwrapped(names.iter().copied()).map(|(names, _)| names.into_keys().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(own(&["model.weight", "model.bias"]).unwrap(), "model.bias model.weight");
        assert_eq!(own(&["net.net.weight", "net.pixel_scale"]).unwrap(), "net.weight pixel_scale");
        assert_eq!(own(&["model.a.weight", "loss.weight"]).unwrap(), "loss.weight model.a.weight");
        assert_eq!(own(&["module.a.weight", "module.model.weight"]).unwrap(), "a.weight model.weight");
        let told = own(&["a.weight", "a._orig_mod.weight"]).unwrap_err();
        assert!(told.starts_with("its `a.weight` and `a._orig_mod.weight` are one tensor"), "{told}");
        let folder = tempfile::tempdir().unwrap();
        let rename =
            |name: &str| if name == "dense.bias" { "loss.bias".into() } else { format!("model.{name}") };
        let weights = TorchWeights::read(&saved(folder.path(), rename)).unwrap();
        let told = weights.assign(&towers_models::small_cnn(3).unwrap().steps()).unwrap_err().to_string();
        assert!(
            told.contains("it has no `conv2d.weight`, but `model.conv2d.weight`; with `loss.bias`"),
            "{told}"
        );
    }

    #[test]
    fn pickles_are_known_by_their_first_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.pth");
        let is_one = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            is_pickle(&path)
        };
        assert!(is_one(b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20"));
        assert!(!is_one(b"\x80\x02\0\0\0\0\0\0{\"a\":") && !is_one(b"\x80\x02") && !is_pickle(folder.path()));
    }

    #[test]
    fn names_of_classes_are_read_with_care() {
        let folder = tempfile::tempdir().unwrap();
        let path = saved(folder.path(), str::to_owned);
        let tensors = towers_checkpoint::load_tensors(&path).unwrap();
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
            weights.assign(&towers_models::small_cnn(classes).unwrap().steps()).unwrap_err().to_string()
        };
        let other = of(&|name| name.replace("conv2d.", "stem."), 3);
        let says = "it has no `conv2d.weight`; if its network was not exported by towers, export the network to ONNX";
        assert!(other.contains(says), "{other}");
        let classes = of(&str::to_owned, 4);
        assert!(classes.contains("`dense") && classes.contains("but the network's has [4, "), "{classes}");
        let path = folder.path().join("net.safetensors");
        std::fs::write(&path, b"not at all").unwrap();
        assert!(!is_state_dict(&path) && !is_state_dict(folder.path()));
        assert!(
            TorchWeights::read(&path).unwrap_err().to_string().contains("not a readable safetensors file")
        );
    }

    #[test]
    fn counters_are_passed_over_and_halves_are_widened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.safetensors");
        let write = |kind: &str, len: usize| {
            let header = format!(
                r#"{{"bn.num_batches_tracked":{{"dtype":"I64","shape":[],"data_offsets":[0,8]}},"bn.weight":{{"dtype":"{kind}","shape":[2],"data_offsets":[8,{}]}}}}"#,
                8 + len
            );
            let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; 8 + len]].concat();
            std::fs::write(&path, bytes).unwrap();
            TorchWeights::read(&path)
        };
        let weights = write("F32", 8).unwrap();
        assert_eq!((weights.tensors.len(), weights.get("bn.weight").unwrap().data()), (1, &[0.0; 2][..]));
        assert!(weights.told().is_empty());
        let weights = write("BF16", 4).unwrap();
        assert_eq!(weights.get("bn.weight").unwrap().data(), [0.0; 2]);
        assert_eq!(weights.told(), ["weights of BF16 are read as F32"]);
        for (kind, len) in [("F64", 16), ("I64", 16)] {
            let told = write(kind, len).unwrap_err().to_string();
            let says =
                format!("its `bn.weight` is {kind}, but must be F32, F16 or BF16; save network.float().");
            assert!(told.contains(&says), "{told}");
        }
    }
}
