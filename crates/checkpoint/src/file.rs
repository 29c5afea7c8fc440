//! Single safetensors files.

use crate::durable;
use crate::{Error, Result, TensorRef, Tensors, format, replace_file};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

/// Writes `tensors` to `path` as a safetensors file: whoever opens `path` finds the whole old file or the
/// whole new one, even after a power failure.
///
/// The tensors keep their order, and the same input gives the same bytes. `metadata` is free text; readers
/// written for PyTorch like to find `format` = `pt` there. A digest of the tensors is added as `towers.sha256`, which
/// [`load_tensors`] verifies and takes out again. What a process killed in the middle leaves, the next save removes: see
/// [`replace_file`].
///
/// # Errors
/// When a name or a shape is unsound or a name occurs twice, or when the file can't be written.
///
/// ```
/// use checkpoint::{TensorRef, load_tensors, save_tensors};
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
    let written = replace_file(path, |file| {
        file.write_all(&header)?;
        format::write_data(file, &tensors)
    });
    written.map_err(Error::io("write", path))?;
    durable::sync_folder(durable::parent(path))
}

/// Reads a safetensors file of f32 tensors, whoever wrote it. A file of [`save_tensors`] is verified by its digest.
///
/// # Errors
/// When `path` is not a regular file, or not a sound safetensors file, or has a tensor of another type; when the
/// tensors are not those that were written.
pub fn load_tensors(path: impl AsRef<Path>) -> Result<Tensors> {
    let path = path.as_ref();
    // Here, unlike inside a checkpoint, a link is the user's own choice.
    let target = fs::canonicalize(path).map_err(Error::io("read", path))?;
    let (mut file, len) = durable::open(&target)?;
    let mut tensors = format::read(path, &mut file, len)?;
    match take_digest(tensors.metadata_mut()) {
        Some(written) if written != digest(tensors.iter()) => {
            let why = format!(
                "its tensors are not those that were written: the file is damaged, or another program changed them and                  kept `{DIGEST}` in its metadata"
            );
            Err(Error::format(path, why))
        }
        _ => Ok(tensors),
    }
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
        let mut bytes = [0; 4096];
        for numbers in data.chunks(bytes.len() / 4) {
            let pairs = bytes.chunks_exact_mut(4).zip(numbers);
            pairs.for_each(|(place, number)| place.copy_from_slice(&number.to_le_bytes()));
            hash.update(&bytes[..4 * numbers.len()]);
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
