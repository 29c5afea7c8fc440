use crate::{Error, Result, Tolerance, compare};
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A file of tensors that another library computed.
///
/// ```
/// use towers_testkit::{Golden, Tolerance};
///
/// let golden = Golden::open("networks")?;
/// let losses = golden.get("keras_cnn/losses")?;
/// assert_eq!(losses.len(), 10);
/// golden.check("keras_cnn/losses", losses, Tolerance::new(0.0, 0.0))?;
/// # Ok::<(), towers_testkit::Error>(())
/// ```
#[derive(Debug)]
pub struct Golden {
    path: PathBuf,
    tensors: BTreeMap<String, Vec<f64>>,
}

impl Golden {
    /// The file `tests/golden/NAME.safetensors` of the workspace; of another folder than `tests/golden`, if the environment
    /// says so by `TOWERS_GOLDEN`, for test programs that were carried to another machine.
    ///
    /// # Errors
    /// [`Error::File`] if it can't be read or holds other types than f64, f32 and i64.
    pub fn open(name: &str) -> Result<Self> {
        let here = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
        let folder = std::env::var_os("TOWERS_GOLDEN").map_or_else(here, PathBuf::from);
        let path = folder.join(name).with_extension("safetensors");
        let bytes =
            std::fs::read(&path).map_err(|e| Error::File { path: path.clone(), message: e.to_string() })?;
        Golden::parse(path, &bytes)
    }

    fn parse(path: PathBuf, bytes: &[u8]) -> Result<Self> {
        let fail = |message: String| Error::File { path: path.clone(), message };
        let file = SafeTensors::deserialize(bytes).map_err(|e| fail(e.to_string()))?;
        let mut tensors = BTreeMap::new();
        for (name, view) in file.iter() {
            let values = decode(view.dtype(), view.data())
                .ok_or_else(|| fail(format!("{name} is of type {:?}", view.dtype())))?;
            tensors.insert(name.to_owned(), values);
        }
        Ok(Golden { path, tensors })
    }

    /// The numbers of a tensor, in row-major order.
    ///
    /// # Errors
    /// [`Error::File`] if there is no such tensor.
    pub fn get(&self, name: &str) -> Result<&[f64]> {
        self.tensors.get(name).map(Vec::as_slice).ok_or_else(|| Error::File {
            path: self.path.clone(),
            message: format!("there is no tensor called {name}"),
        })
    }

    /// The names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Compares `got` with the tensor called `name`.
    ///
    /// # Errors
    /// As [`compare`]; [`Error::File`] if there is no such tensor.
    pub fn check(&self, name: &str, got: &[f64], tolerance: Tolerance) -> Result<()> {
        compare(name, got, self.get(name)?, tolerance)
    }
}

/// Little-endian numbers as f64; `None` for other types.
fn decode(dtype: Dtype, data: &[u8]) -> Option<Vec<f64>> {
    match dtype {
        Dtype::F64 => Some(data.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect()),
        Dtype::F32 => Some(data.as_chunks().0.iter().map(|&b| f64::from(f32::from_le_bytes(b))).collect()),
        Dtype::I64 => Some(data.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b) as f64).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::TensorView;

    fn file(dtype: Dtype, shape: &[usize], data: &[u8]) -> Result<Golden> {
        let view = TensorView::new(dtype, shape.to_vec(), data).unwrap();
        let bytes = safetensors::serialize([("x", view)], None).unwrap();
        Golden::parse("test.safetensors".into(), &bytes)
    }

    #[test]
    fn reads_the_types_that_scripts_write() {
        let f64s: Vec<u8> = [1.5_f64, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let f32s: Vec<u8> = [1.5_f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(file(Dtype::F64, &[2], &f64s).unwrap().get("x").unwrap(), [1.5, -2.0]);
        assert_eq!(file(Dtype::F32, &[2], &f32s).unwrap().get("x").unwrap(), [1.5, -2.0]);
        assert_eq!(file(Dtype::I64, &[1], &7_i64.to_le_bytes()).unwrap().get("x").unwrap(), [7.0]);
    }

    #[test]
    fn says_what_is_wrong() {
        let message = |result: Result<Golden>| result.unwrap_err().to_string();
        assert_eq!(message(file(Dtype::U8, &[1], &[1])), "test.safetensors: x is of type U8");
        assert!(message(Golden::open("no such file")).contains("no such file.safetensors"));
        assert!(Golden::parse("bad".into(), &[1, 2, 3]).is_err());
        let error = file(Dtype::I64, &[1], &7_i64.to_le_bytes()).unwrap().get("y").unwrap_err().to_string();
        assert_eq!(error, "test.safetensors: there is no tensor called y");
    }
}
