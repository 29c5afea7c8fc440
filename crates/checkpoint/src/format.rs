//! The safetensors format: eight bytes with the length of a JSON header, the header, then the data.
//!
//! The header's types and the checks on untrusted offsets are those of the `safetensors` crate. Writing
//! streams from borrowed slices, in the caller's order and always to the same bytes; reading streams into
//! the final vectors, and allocates nothing that the file's real length doesn't warrant.

use crate::{Error, Result, TensorRef, Tensors};
use half::{bf16, f16};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;

/// The longest header that is written or read, in bytes: room for some 100,000 tensors.
pub const MAX_HEADER: usize = 16 << 20;

const METADATA: &str = "__metadata__";
/// Values converted at a time: 64 KiB of bytes.
const CHUNK: usize = 16 << 10;

/// The header of a safetensors file, in the order in which it stands there.
#[derive(Debug)]
pub struct Header {
    metadata: BTreeMap<String, String>,
    tensors: Vec<(String, TensorInfo)>,
}

impl Header {
    /// The free text.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The names of the tensors with their types, such as `F32`.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, String)> {
        self.tensors.iter().map(|(name, info)| (&**name, info.dtype.to_string()))
    }
}

impl Serialize for Header {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.metadata.is_empty() {
            map.serialize_entry(METADATA, &self.metadata)?;
        }
        for (name, info) in &self.tensors {
            map.serialize_entry(name, info)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from names to tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header { metadata: BTreeMap::new(), tensors: Vec::new() };
                let mut seen = HashSet::new();
                while let Some(name) = map.next_key::<String>()? {
                    if !seen.insert(name.clone()) {
                        return Err(A::Error::custom(format_args!("{name:?} is there twice")));
                    }
                    match name.as_str() {
                        METADATA => header.metadata = map.next_value()?,
                        _ => header.tensors.push((name, map.next_value()?)),
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// The bytes before the data for these tensors: the length and the header.
///
/// `path` is only for errors, of which there are: a broken name or shape, a name used twice, a header above
/// [`MAX_HEADER`].
pub(crate) fn header(
    path: &Path,
    tensors: &[TensorRef<'_>],
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>> {
    let mut header = Header { metadata: metadata.clone(), tensors: Vec::with_capacity(tensors.len()) };
    let (mut seen, mut start) = (HashSet::new(), 0);
    for tensor in tensors {
        tensor.check()?;
        if !seen.insert(tensor.name) {
            return Err(Error::TensorName { name: tensor.name.to_owned(), why: "its name is taken" });
        }
        let end = start + size_of_val(tensor.data);
        let info = TensorInfo { dtype: Dtype::F32, shape: tensor.shape.to_vec(), data_offsets: (start, end) };
        header.tensors.push((tensor.name.to_owned(), info));
        start = end;
    }
    let mut json = serde_json::to_vec(&header).map_err(|error| Error::format(path, error.to_string()))?;
    // The format aligns the data to eight bytes with spaces behind the JSON.
    json.resize(json.len().next_multiple_of(8), b' ');
    if json.len() > MAX_HEADER {
        return Err(Error::format(path, format!("a header of {} bytes is too long", json.len())));
    }
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut json);
    Ok(bytes)
}

/// Writes the values of `tensors` one after the other, little-endian.
pub(crate) fn write_data(out: &mut impl Write, tensors: &[TensorRef<'_>]) -> io::Result<()> {
    let mut words = vec![[0; 4]; CHUNK];
    for values in tensors.iter().flat_map(|tensor| tensor.data.chunks(CHUNK)) {
        words.iter_mut().zip(values).for_each(|(word, value)| *word = value.to_le_bytes());
        out.write_all(words[..values.len()].as_flattened())?;
    }
    Ok(())
}

/// Reads the header of a safetensors file of `len` bytes from `input`, and its length; `path` is only for errors.
pub(crate) fn read_header(path: &Path, input: &mut impl Read, len: u64) -> Result<(Header, u64)> {
    let mut word = [0; 8];
    input.read_exact(&mut word).map_err(short(path))?;
    let header_len = u64::from_le_bytes(word);
    if header_len > MAX_HEADER as u64 || header_len > len.saturating_sub(8) {
        let reason = format!("its {len} bytes can't begin with a header of {header_len}, as they say");
        return Err(Error::format(path, reason));
    }
    let mut json = vec![0; header_len as usize];
    input.read_exact(&mut json).map_err(short(path))?;
    let header = serde_json::from_slice(&json).map_err(|error| Error::format(path, error.to_string()))?;
    Ok((header, header_len))
}

/// Reads the tensors whose names `keep` accepts, and the metadata, from a safetensors file of `len` bytes; `path` is
/// only for errors.
pub(crate) fn read(
    path: &Path,
    input: &mut impl Read,
    len: u64,
    keep: impl Fn(&str) -> bool,
) -> Result<Tensors> {
    let (mut header, header_len) = read_header(path, input, len)?;
    let why = |error: &dyn fmt::Display| Error::format(path, error.to_string());
    // Stable, so that tensors without values keep the header's order.
    header.tensors.sort_by_key(|(_, info)| info.data_offsets);
    // The library refuses gaps, overlaps, overflows, and offsets that don't fit shape and type.
    let checked = Metadata::new(None, header.tensors.clone()).map_err(|error| why(&error))?;
    if (checked.data_len() as u64).checked_add(8 + header_len) != Some(len) {
        return Err(Error::format(path, "its header speaks of another length than the file has"));
    }
    let mut tensors = Tensors::new();
    for (name, info) in header.tensors {
        let bytes = info.data_offsets.1 - info.data_offsets.0;
        if !keep(&name) {
            io::copy(&mut input.by_ref().take(bytes as u64), &mut io::sink()).map_err(short(path))?;
            continue;
        }
        let data = match info.dtype {
            Dtype::F32 => read_values(input, bytes / 4, f32::from_le_bytes),
            Dtype::BF16 => read_values(input, bytes / 2, |word| bf16::from_le_bytes(word).to_f32()),
            Dtype::F16 => read_values(input, bytes / 2, |word| f16::from_le_bytes(word).to_f32()),
            Dtype::I64 => read_values(input, bytes / 8, of_i64),
            other => {
                let reason = format!("tensor {name:?} is {other}, and not F32, F16, BF16 or I64");
                return Err(Error::format(path, reason));
            }
        };
        let data = data.map_err(short(path))?;
        if info.dtype == Dtype::I64 && data.iter().any(|value| value.is_nan()) {
            let reason = format!("tensor {name:?} has whole numbers that f32 can't hold exactly");
            return Err(Error::format(path, reason));
        }
        tensors.insert(name, info.shape, data).map_err(|error| why(&error))?;
    }
    *tensors.metadata_mut() = header.metadata;
    Ok(tensors)
}

/// An error of reading `path`, whose length was known.
fn short(path: &Path) -> impl Fn(io::Error) -> Error {
    move |error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::format(path, "it ends early"),
        _ => Error::io("read", path)(error),
    }
}

/// Reads so many values of `N` bytes.
fn read_values<const N: usize>(
    input: &mut impl Read,
    count: usize,
    of: impl Fn([u8; N]) -> f32,
) -> io::Result<Vec<f32>> {
    let mut values = Vec::with_capacity(count);
    let mut bytes = vec![0; N * CHUNK.min(count)];
    while values.len() < count {
        let part = &mut bytes[..N * CHUNK.min(count - values.len())];
        input.read_exact(part)?;
        values.extend(part.as_chunks::<N>().0.iter().map(|&word| of(word)));
    }
    Ok(values)
}

/// A whole number, or NaN if f32 has none that is equal.
fn of_i64(word: [u8; 8]) -> f32 {
    let number = i64::from_le_bytes(word);
    let value = number as f32;
    // In i128, since the largest numbers are rounded up to 2^63.
    if value as i128 == i128::from(number) { value } else { f32::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        bytes
    }

    fn refusal(bytes: &[u8]) -> String {
        let path = Path::new("it");
        read(path, &mut &bytes[..], bytes.len() as u64, |_| true)
            .expect_err("hostile bytes were accepted")
            .to_string()
    }

    #[test]
    fn hostile_headers_are_refused() {
        let one = r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
        for (header, data, why) in [
            ("", 0, "EOF"),
            ("[]", 0, "expected a map"),
            (r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#, 8, "another length"),
            (r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#, 8, "offset"),
            (r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}"#, 4, "offset"),
            (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#, 4, "shape"),
            (r#"{"a":{"dtype":"F16","shape":[1],"data_offsets":[0,4]}}"#, 4, "shape"),
            (r#"{"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}"#, 8, "F64, and not F32, F16"),
            (r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#, 4, "invalid value"),
            (r#"{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}"#, 0, "overflow"),
            (r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}}"#, 4, "shape"),
            (&format!(r#"{{"a":{one},"b":{one}}}"#), 4, "offset"),
            (&format!(r#"{{"a":{one},"a":{one}}}"#), 4, "twice"),
            (&format!(r#"{{"":{one}}}"#), 4, "empty"),
            (r#"{"__metadata__":{"a":1}}"#, 0, "expected a string"),
        ] {
            let message = refusal(&file(header, data));
            assert!(message.contains(why), "{header}: {message}");
        }
        let flat =
            format!(r#"{{"a":{{"dtype":"F32","shape":[1{}],"data_offsets":[0,4]}}}}"#, ",1".repeat(99_999));
        let told = refusal(&file(&flat, 4));
        assert!(told.contains("more than 32 dimensions") && told.len() < 200, "{told}");
        let deep = format!(r#"{{"a":{}"#, "[".repeat(100_000));
        assert!(refusal(&file(&deep, 0)).contains("not a readable safetensors"));
        assert!(refusal(&file("{\"\u{1}", 0)).contains("not a readable safetensors"));
    }

    /// The types of state dicts, which f32 holds exactly.
    #[test]
    fn other_types_are_read_as_f32() {
        let of = |kind: &str, count: usize, data: &[u8]| {
            let offsets = format!(r#""shape":[{count}],"data_offsets":[0,{}]"#, data.len());
            let mut bytes = file(&format!(r#"{{"a":{{"dtype":"{kind}",{offsets}}}}}"#), 0);
            bytes.extend(data);
            let read = read(Path::new("it"), &mut &bytes[..], bytes.len() as u64, |_| true);
            read.map(|tensors| tensors.get("a").expect("it is there").data().to_vec())
        };
        let halves: Vec<u8> =
            [0x3c00_u16, 0xc500, 0x0001, 0x7c00].into_iter().flat_map(u16::to_le_bytes).collect();
        assert_eq!(of("F16", 4, &halves).unwrap(), [1.0, -5.0, 2.0_f32.powi(-24), f32::INFINITY]);
        let halves: Vec<u8> = [0x3f80_u16, 0xc0a0, 0x0001].into_iter().flat_map(u16::to_le_bytes).collect();
        assert_eq!(of("BF16", 3, &halves).unwrap(), [1.0, -5.0, f32::from_bits(1 << 16)]);
        let whole = |numbers: &[i64]| {
            let data: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            of("I64", numbers.len(), &data)
        };
        assert_eq!(
            whole(&[0, -7, 1 << 24, i64::MIN]).unwrap(),
            [0.0, -7.0, 16_777_216.0, -(2.0_f32.powi(63))]
        );
        for number in [(1 << 24) + 1, i64::MAX] {
            let told = whole(&[number]).unwrap_err().to_string();
            assert!(told.contains("\"a\" has whole numbers that f32 can't hold"), "{told}");
        }
        // More than are converted at once.
        let many =
            vec![0x3c00_u16; 3 * CHUNK + 1].into_iter().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        assert!(of("F16", 3 * CHUNK + 1, &many).unwrap().iter().all(|&value| value == 1.0));
    }

    #[test]
    fn hostile_lengths_are_refused() {
        assert!(refusal(&[]).contains("ends early"));
        assert!(refusal(&[1, 0, 0]).contains("ends early"));
        assert!(
            refusal(&u64::MAX.to_le_bytes())
                .contains("8 bytes can't begin with a header of 18446744073709551615")
        );
        assert!(refusal(&9u64.to_le_bytes()).contains("8 bytes can't begin with a header of 9"));
        let mut not_utf8 = file(r#"{"?":1}"#, 0);
        not_utf8[10] = 0xff;
        assert!(refusal(&not_utf8).contains("not a readable safetensors"));
    }

    /// A writer that fails after some bytes is an error of ours, wherever it fails.
    #[test]
    fn a_full_device_is_an_error() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                if self.0 == 0 {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                let taken = bytes.len().min(self.0);
                self.0 -= taken;
                Ok(taken)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let data = vec![1.0; CHUNK + 7];
        let tensors = [TensorRef { name: "a", shape: &[CHUNK + 7], data: &data }];
        for room in [0, 1, 4 * CHUNK, 4 * CHUNK + 27] {
            let error = write_data(&mut Full(room), &tensors).expect_err("it doesn't fit");
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
        assert!(write_data(&mut Full(4 * CHUNK + 28), &tensors).is_ok());
    }
}
