//! Single safetensors files.

use crate::{Error, Header, Result, TensorRef, Tensors, format};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Writes `tensors` to `path` as a safetensors file. A reader of `path` finds the whole old file or the whole
/// new one, even after a power failure.
///
/// The tensors keep their order, and the same input gives the same bytes. `metadata` is free text; readers
/// written for PyTorch like to find `format` = `pt` there. A digest of the tensors is added as `towers.sha256`, which
/// [`load_tensors`] verifies and takes out again. What a process killed in the middle leaves, the next save removes: see
/// [`towers_files::replace`].
///
/// # Errors
/// When a name or a shape is unsound or a name occurs twice, or when the file can't be written.
///
/// ```
/// use towers_checkpoint::{TensorRef, load_tensors, save_tensors};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("model.safetensors");
/// let arena = [1.0, 2.0, 3.0, -0.0, f32::NAN, 6.0];
/// let slots = [("kernel", [2, 2], 0..4), ("bias", [2, 1], 4..6)];
/// let tensors = slots.iter().map(|(name, shape, range)| {
///     TensorRef { name, shape, data: &arena[range.clone()] }
/// });
/// save_tensors(&path, tensors, &[("format".into(), "pt".into())].into())?;
///
/// let loaded = load_tensors(&path)?;
/// let kernel = loaded.get("kernel").ok_or("it was saved")?;
/// assert_eq!((kernel.shape(), kernel.data()), (&[2, 2][..], &[1.0, 2.0, 3.0, -0.0][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn save_tensors<'a>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = TensorRef<'a>>,
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    let path = path.as_ref();
    let tensors: Vec<_> = tensors.into_iter().collect();
    let mut metadata = metadata.clone();
    metadata.insert(DIGEST.to_owned(), digest(tensors.iter().copied()));
    let header = format::header(path, &tensors, &metadata)?;
    towers_files::replace(path, |file| {
        file.write_all(&header)?;
        format::write_data(file, &tensors)
    })?;
    Ok(towers_files::sync_parent(path)?)
}

/// Reads a safetensors file, from any program: tensors of f32, and of f16, bf16 and i64, whose values become f32. A file of
/// [`save_tensors`] is verified by its digest.
///
/// # Errors
/// When `path` is not a regular file, or not a sound safetensors file, or has a tensor of another type; when f32 can't
/// hold a whole number exactly; when the tensors are not those that were written.
pub fn load_tensors(path: impl AsRef<Path>) -> Result<Tensors> {
    let path = path.as_ref();
    let (mut file, len) = towers_files::open_regular(path)?;
    let mut tensors = format::read(path, &mut file, len, |_| true)?;
    match take_digest(tensors.metadata_mut()) {
        Some(written) if written != digest(tensors.iter()) => {
            let why = format!(
                "its tensors are not those that were written: the file is damaged, or another program changed them and kept `{DIGEST}` in its metadata"
            );
            Err(Error::format(path, why))
        }
        _ => Ok(tensors),
    }
}

/// Reads the tensors whose names `keep` accepts from a safetensors file of another program. The others may have any
/// type. No digest is verified: the program may have copied the metadata of other tensors.
///
/// # Errors
/// As [`load_tensors`], but for the digest.
pub fn load_tensors_named(path: impl AsRef<Path>, keep: impl Fn(&str) -> bool) -> Result<Tensors> {
    let path = path.as_ref();
    let (mut file, len) = towers_files::open_regular(path)?;
    format::read(path, &mut file, len, keep)
}

/// Reads the header of a safetensors file, but no tensor.
///
/// # Errors
/// When `path` is not a regular file, or begins with no header of a safetensors file.
///
/// ```
/// use towers_checkpoint::{Tensors, load_tensors_named, read_header, save_tensors};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("model.safetensors");
/// let mut tensors = Tensors::new();
/// tensors.insert("dense.weight", [2], vec![1.0, 2.0])?;
/// tensors.insert("dense.bias", [1], vec![3.0])?;
/// save_tensors(&path, &tensors, &[("format".into(), "pt".into())].into())?;
///
/// let header = read_header(&path)?;
/// assert_eq!(header.metadata()["format"], "pt");
/// let names: Vec<_> = header.tensors().collect();
/// assert_eq!(names, [("dense.weight", "F32".into()), ("dense.bias", "F32".into())]);
/// let biases = load_tensors_named(&path, |name| name.ends_with("bias"))?;
/// assert_eq!(biases.get("dense.bias").map(|bias| bias.data()), Some(&[3.0][..]));
/// assert_eq!(biases.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_header(path: impl AsRef<Path>) -> Result<Header> {
    let path = path.as_ref();
    let (mut file, len) = towers_files::open_regular(path)?;
    Ok(format::read_header(path, &mut file, len)?.0)
}

/// Opens a file of a checkpoint and gives its length. A link is refused: it could lead to any file.
pub(crate) fn open_own(path: &Path) -> Result<(File, u64)> {
    if path.is_symlink() {
        let link = io::Error::new(ErrorKind::InvalidInput, "it is not a regular file");
        return Err(Error::io("read", path)(link));
    }
    Ok(towers_files::open_regular(path)?)
}

/// What the keys of towers' own metadata begin with.
const OWN: &str = "towers.";

/// The key of the metadata under which a file keeps the digest of its tensors.
const DIGEST: &str = "towers.sha256";

/// The same in files of earlier versions. Other programs may use this key too.
const OLD_DIGEST: &str = "sha256";

/// Takes the digest that [`save_tensors`] added out of a file's metadata. Towers wrote an [`OLD_DIGEST`] only if it
/// stands beside other keys of towers.
fn take_digest(metadata: &mut BTreeMap<String, String>) -> Option<String> {
    let is_ours = metadata.keys().any(|key| key.starts_with(OWN));
    let key = if metadata.contains_key(DIGEST) || !is_ours { DIGEST } else { OLD_DIGEST };
    metadata.remove(key)
}

/// The SHA-256 of names, shapes and bits, in the order of the tensors.
fn digest<'a>(tensors: impl Iterator<Item = TensorRef<'a>>) -> String {
    let mut hash = Sha256::new();
    for TensorRef { name, shape, data } in tensors {
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update((shape.len() as u64).to_le_bytes());
        shape.iter().for_each(|&n| hash.update((n as u64).to_le_bytes()));
        let mut words = [[0; 4]; 1024];
        for numbers in data.chunks(words.len()) {
            words.iter_mut().zip(numbers).for_each(|(word, number)| *word = number.to_le_bytes());
            hash.update(words[..numbers.len()].as_flattened());
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
