//! The python layout: a pickled dictionary a batch, with `data`, an `[n, 3072]` array of bytes, and `labels`
//! (CIFAR-100: `fine_labels` and `coarse_labels`), a list of n whole numbers.
//!
//! The official files were written by Python 2; Keras, torchvision and their users have rewritten some with
//! Python 3, under whose protocols the same array looks different. All of these are understood:
//!
//! - `numpy.core.multiarray._reconstruct(..)` with the state `(1, shape, dtype, fortran_order, bytes)`;
//! - `numpy.core.numeric._frombuffer(bytes, dtype, shape, order)`, protocol 5;
//! - bytes as such, or as `_codecs.encode(text, "latin1")`, which is how Python 3 writes them under protocol 2.

use std::borrow::Cow;
use std::io::Read;
use std::path::Path;

use towers_files::open_regular;

use crate::error::{Error, Result};
use crate::pickle::{self, Fault, Id, Node, Tree};
use crate::records::Records;
use crate::sizes::IMAGE_BYTES;

/// Appends the records of the file at `path`, which must be `images` of them in `max_bytes` at most.
pub(crate) fn read(path: &Path, images: usize, max_bytes: u64, records: &mut Records) -> Result<()> {
    let (file, found) = open_regular(path)?;
    let too_long = |found| Error::FileSize { path: path.into(), expected: max_bytes, found };
    if found > max_bytes {
        return Err(too_long(found));
    }
    let mut bytes = Vec::with_capacity(found as usize);
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    if bytes.len() as u64 > max_bytes {
        return Err(too_long(bytes.len() as u64));
    }
    decode(path, &bytes, images, records)
}

/// The same for a file that is in memory.
pub(crate) fn decode(path: &Path, bytes: &[u8], images: usize, records: &mut Records) -> Result<()> {
    let fault = |Fault { offset, reason }| Error::Pickle { path: path.into(), offset, reason };
    let malformed = |reason| fault(Fault { offset: bytes.len(), reason });
    let batch = Batch { tree: pickle::parse(bytes).map_err(fault)?, images };

    let coarse = !records.kind.official().coarse.is_empty();
    let fine = if coarse { "fine_labels" } else { "labels" };
    for (k, label) in batch.labels(fine).map_err(malformed)?.into_iter().enumerate() {
        records.push_label(path, k, label)?;
    }
    if coarse {
        for (k, label) in batch.labels("coarse_labels").map_err(malformed)?.into_iter().enumerate() {
            records.push_coarse(path, k, label)?;
        }
    }
    let pixels = batch.pixels().map_err(malformed)?;
    for planes in pixels.chunks_exact(IMAGE_BYTES) {
        records.push_planes(planes);
    }
    Ok(())
}

struct Batch<'a> {
    tree: Tree<'a>,
    images: usize,
}

type Found<T> = Result<T, String>;

impl<'a> Batch<'a> {
    fn entry(&self, name: &str) -> Found<&Node<'a>> {
        let Node::Dict(entries) = self.tree.root() else { return Err("the file holds no dictionary".into()) };
        let found = entries.iter().find(|&&(key, _)| self.is_text(key, name));
        found.map(|&(_, value)| self.tree.get(value)).ok_or_else(|| format!("the dictionary lacks `{name}`"))
    }

    /// Whether a node is this text. A long one, which a file may have as each of its many keys, is never
    /// decoded.
    fn is_text(&self, id: Id, text: &str) -> bool {
        match self.tree.get(id) {
            // Python 3 writes a key of bytes as a call, under protocol 2.
            Node::Call { .. } => {
                self.encoded(id).is_some_and(|utf8| utf8.len() <= 2 * text.len())
                    && self.bytes(id).is_ok_and(|bytes| *bytes == *text.as_bytes())
            }
            node => *node == Node::Bytes(text.as_bytes()),
        }
    }

    fn labels(&self, name: &str) -> Found<Vec<i64>> {
        let Node::List(items) = self.entry(name)? else { return Err(format!("`{name}` is no list")) };
        if items.len() != self.images {
            return Err(format!("`{name}` has {} items, expected {}", items.len(), self.images));
        }
        let whole = |&id| match self.tree.get(id) {
            Node::Int(label) => Ok(*label),
            _ => Err(format!("`{name}` holds something else than whole numbers")),
        };
        items.iter().map(whole).collect()
    }

    /// The bytes of `data`, image after image.
    fn pixels(&self) -> Found<Cow<'a, [u8]>> {
        let Node::Call { callable, args, state } = self.entry("data")? else {
            return Err("`data` is no array".into());
        };
        let (shape, dtype, fortran, raw) = match (self.numpy_function(*callable), state) {
            (Some(b"_reconstruct"), Some(state)) => match self.tuple(*state) {
                [_version, shape, dtype, order, raw] => {
                    (*shape, *dtype, matches!(self.tree.get(*order), Node::Bool(true) | Node::Int(1)), *raw)
                }
                other => return Err(format!("an array's state has {} items, expected 5", other.len())),
            },
            (Some(b"_frombuffer"), None) => match self.tuple(*args) {
                [raw, dtype, shape, order] => {
                    (*shape, *dtype, *self.tree.get(*order) == Node::Bytes(b"F"), *raw)
                }
                other => return Err(format!("an array has {} parts, expected 4", other.len())),
            },
            _ => return Err("`data` is no NumPy array".into()),
        };
        self.check_dtype(dtype)?;
        self.check_shape(shape)?;
        let raw = self.bytes(raw)?;
        if raw.len() != self.images * IMAGE_BYTES {
            return Err(format!("`data` has {} bytes, expected {}", raw.len(), self.images * IMAGE_BYTES));
        }
        Ok(if fortran { Cow::Owned(transposed(&raw, self.images)) } else { raw })
    }

    /// The name of a function of NumPy, in whichever of its modules the version at hand had it.
    fn numpy_function(&self, callable: Id) -> Option<&'a [u8]> {
        match *self.tree.get(callable) {
            Node::Global(module, name) if module == b"numpy" || module.starts_with(b"numpy.") => Some(name),
            _ => None,
        }
    }

    /// The items of a tuple; none of anything else.
    fn tuple(&self, id: Id) -> &[Id] {
        match self.tree.get(id) {
            Node::Tuple(items) => items,
            _ => &[],
        }
    }

    fn check_dtype(&self, id: Id) -> Found<()> {
        if let Node::Call { callable, args, .. } = self.tree.get(id)
            && self.numpy_function(*callable) == Some(b"dtype")
            && let Some(&code) = self.tuple(*args).first()
            && let Node::Bytes(b"u1" | b"|u1") = self.tree.get(code)
        {
            return Ok(());
        }
        Err("`data` is no array of unsigned bytes".into())
    }

    fn check_shape(&self, id: Id) -> Found<()> {
        let sizes: Vec<_> = self.tuple(id).iter().map(|&size| self.tree.get(size)).collect();
        match sizes[..] {
            [Node::Int(n), Node::Int(bytes)] if *n == self.images as i64 && *bytes == IMAGE_BYTES as i64 => {
                Ok(())
            }
            _ => Err(format!("`data` has another shape than [{}, {IMAGE_BYTES}]", self.images)),
        }
    }

    fn bytes(&self, id: Id) -> Found<Cow<'a, [u8]>> {
        match *self.tree.get(id) {
            Node::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
            _ => match self.encoded(id) {
                Some(text) => {
                    latin1(text).map(Cow::Owned).ok_or_else(|| "encoded bytes that are not Latin-1".into())
                }
                None => Err("`data` holds no bytes".into()),
            },
        }
    }

    /// The text of bytes that are written as the call `_codecs.encode(text, "latin1")`.
    fn encoded(&self, id: Id) -> Option<&'a [u8]> {
        match *self.tree.get(id) {
            Node::Call { callable, args, .. }
                if *self.tree.get(callable) == Node::Global(b"_codecs", b"encode") =>
            {
                match *self.tree.get(*self.tuple(args).first()?) {
                    Node::Bytes(text) => Some(text),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

fn latin1(utf8: &[u8]) -> Option<Vec<u8>> {
    std::str::from_utf8(utf8).ok()?.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
}

/// Column-major bytes of an `[n, IMAGE_BYTES]` array, row-major.
fn transposed(columns: &[u8], n: usize) -> Vec<u8> {
    (0..n).flat_map(|row| columns.iter().skip(row).step_by(n)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Kind;

    /// A batch of two images written by `tests/golden/cifar_pickle.py`.
    fn golden(kind: Kind, name: &str) -> Result<Records> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/cifar_pickle");
        let path = folder.join(format!("{name}.pickle"));
        let mut records = Records::with_capacity(kind, 2);
        read(&path, 2, 1 << 20, &mut records).map(|()| records)
    }

    #[test]
    fn every_protocol_and_order_of_bytes_gives_the_same_images() {
        let names = (2..=5)
            .flat_map(|protocol| ["protocol", "column_major"].map(|name| format!("{name}_{protocol}")));
        for name in names.chain(["text_keys".to_owned()]) {
            let split = golden(Kind::Cifar10, &name).unwrap().into_split().unwrap();
            assert_eq!(split.labels.to_vec(), [3, 9], "{name}");
            for ((image, y, x, channel), &byte) in split.images.indexed_iter() {
                let place = channel * 1024 + y * 32 + x;
                assert_eq!(usize::from(byte), (7 * image + 13 * place) % 256, "{name}");
            }
        }
    }

    #[test]
    fn cifar100_has_coarse_labels() {
        let split = golden(Kind::Cifar100, "cifar100").unwrap().into_split().unwrap();
        assert_eq!((split.labels.to_vec(), split.coarse.unwrap().to_vec()), (vec![3, 99], vec![1, 19]));
    }

    /// One long text as each of many keys: decoding it for each of them took hours.
    #[test]
    fn a_long_key_that_occurs_often_takes_no_time() {
        let long = vec![b'x'; 16 << 20];
        let len = (long.len() as u32).to_le_bytes();
        let encode = b"c_codecs\nencode\n".as_slice();
        let key = [b"\x80\x02}(", encode, b"X", &len, &long, b"X\x06\0\0\0latin1\x86Rq\x01K\0"].concat();
        let batch = [key, b"h\x01K\0".repeat(100_000), b"u.".to_vec()].concat();
        let mut records = Records::with_capacity(Kind::Cifar10, 2);
        let error = decode(Path::new("x"), &batch, 2, &mut records).unwrap_err().to_string();
        assert!(error.ends_with("the dictionary lacks `labels`"), "{error}");
    }

    #[test]
    fn another_shape_type_or_set_of_labels_is_refused() {
        let reason = |kind, name| golden(kind, name).err().expect("an error").to_string();
        assert!(reason(Kind::Cifar10, "floats").contains("unsigned bytes"));
        assert!(reason(Kind::Cifar10, "cifar100").contains("lacks `labels`"));
        assert!(reason(Kind::Cifar100, "protocol_4").contains("lacks `fine_labels`"));
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/cifar_pickle/protocol_4.pickle");
        let read =
            |images, most| read(&path, images, most, &mut Records::with_capacity(Kind::Cifar10, images));
        assert!(matches!(read(3, 1 << 20), Err(Error::Pickle { .. })), "two images are not three");
        assert!(matches!(read(2, 6000), Err(Error::FileSize { expected: 6000, .. })));
    }
}
