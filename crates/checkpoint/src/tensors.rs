use crate::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// The longest name of a tensor, in bytes.
pub const MAX_TENSOR_NAME: usize = 1024;

/// The most dimensions of a tensor: the limit of NumPy 1.
pub const MAX_RANK: usize = 32;

/// A borrowed f32 tensor. Files are written from it, so a slot of a big arena needs no copy.
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'a> {
    /// Its name, unique in its file, e.g. `conv1/kernel`.
    pub name: &'a str,
    /// Its extents; empty for a scalar.
    pub shape: &'a [usize],
    /// Its values in row-major order, as many as the product of `shape`.
    pub data: &'a [f32],
}

impl TensorRef<'_> {
    /// Checks the rules of the format: a sound name, not too many dimensions, and data as long as the shape
    /// says.
    pub(crate) fn check(&self) -> Result<()> {
        let broken_rule = match self.name {
            "" => Some("its name is empty"),
            "__metadata__" => Some("the format keeps this name for itself"),
            name if name.len() > MAX_TENSOR_NAME => Some("its name is longer than 1024 bytes"),
            _ if self.shape.len() > MAX_RANK => Some("it has more than 32 dimensions"),
            _ => None,
        };
        if let Some(why) = broken_rule {
            let name = self.name.chars().take(80).collect();
            return Err(Error::TensorName { name, why });
        }
        let count = self.shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
        if count != Some(self.data.len()) {
            let (name, shape) = (self.name.to_owned(), self.shape.to_vec());
            return Err(Error::Shape { name, shape, found: self.data.len() });
        }
        Ok(())
    }
}

/// A named, owned f32 tensor.
///
/// Two of them are equal when name, shape and every bit of the data are: NaN equals itself here, and -0.0
/// is not 0.0.
#[derive(Clone)]
pub struct Tensor {
    name: String,
    shape: Vec<usize>,
    data: Vec<f32>,
}

impl Tensor {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its extents; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its values in row-major order.
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// Its name, extents and values, which are not copied.
    ///
    /// ```
    /// let mut tensors = towers_checkpoint::Tensors::new();
    /// tensors.insert("dense/bias", [3], vec![1.0, 2.0, 3.0])?;
    /// let own: Vec<(String, Vec<usize>, Vec<f32>)> = tensors.into_iter().map(|tensor| tensor.into_parts()).collect();
    /// assert_eq!(own, [("dense/bias".to_owned(), vec![3], vec![1.0, 2.0, 3.0])]);
    /// # Ok::<(), towers_checkpoint::Error>(())
    /// ```
    pub fn into_parts(self) -> (String, Vec<usize>, Vec<f32>) {
        (self.name, self.shape, self.data)
    }

    /// Borrows it.
    pub fn as_ref(&self) -> TensorRef<'_> {
        TensorRef { name: &self.name, shape: &self.shape, data: &self.data }
    }
}

impl fmt::Debug for Tensor {
    /// Shows the first values only: a tensor may have millions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = &self.data[..self.data.len().min(8)];
        write!(f, "Tensor({:?} {:?} {start:?}", self.name, self.shape)?;
        f.write_str(if start.len() < self.data.len() { " ...)" } else { ")" })
    }
}

impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.shape == other.shape
            && self.data.iter().map(|a| a.to_bits()).eq(other.data.iter().map(|b| b.to_bits()))
    }
}

/// Named f32 tensors in a fixed order, with a map of free text (`metadata`) beside them: the content of a
/// safetensors file.
///
/// ```
/// use towers_checkpoint::Tensors;
///
/// let mut tensors = Tensors::new();
/// tensors.insert("dense/kernel", [2, 3], vec![1.0; 6])?;
/// tensors.insert("dense/bias", [3], vec![0.0; 3])?;
/// assert_eq!(tensors.get("dense/bias").map(|bias| bias.shape()), Some(&[3][..]));
/// assert!(tensors.insert("dense/bias", [3], vec![0.0; 3]).is_err(), "names are unique");
/// assert!(tensors.insert("wrong", [2, 2], vec![0.0; 3]).is_err(), "2 * 2 is not 3");
/// # Ok::<(), towers_checkpoint::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tensors {
    list: Vec<Tensor>,
    place: HashMap<String, usize>,
    metadata: BTreeMap<String, String>,
}

impl Tensors {
    /// No tensors, no metadata.
    pub fn new() -> Self {
        Tensors::default()
    }

    /// Adds a tensor behind the others.
    ///
    /// # Errors
    /// When the name is empty, too long or taken, `shape` has more than [`MAX_RANK`] dimensions, or `data` is not as
    /// long as their product.
    pub fn insert(
        &mut self,
        name: impl Into<String>,
        shape: impl Into<Vec<usize>>,
        data: Vec<f32>,
    ) -> Result<()> {
        let tensor = Tensor { name: name.into(), shape: shape.into(), data };
        tensor.as_ref().check()?;
        if self.place.contains_key(&tensor.name) {
            return Err(Error::TensorName { name: tensor.name, why: "its name is taken" });
        }
        self.place.insert(tensor.name.clone(), self.list.len());
        self.list.push(tensor);
        Ok(())
    }

    /// Adds all of another's tensors behind these, and its metadata.
    ///
    /// ```
    /// use towers_checkpoint::Tensors;
    ///
    /// let (mut all, mut more) = (Tensors::new(), Tensors::new());
    /// more.insert("velocity", [2], vec![0.0; 2])?;
    /// more.metadata_mut().insert("by".to_owned(), "SGD".to_owned());
    /// all.append(more.clone())?;
    /// assert_eq!(all, more);
    /// assert!(all.append(more).is_err(), "names are unique");
    /// # Ok::<(), towers_checkpoint::Error>(())
    /// ```
    ///
    /// # Errors
    /// When a name is taken.
    pub fn append(&mut self, others: Tensors) -> Result<()> {
        self.metadata.extend(others.metadata);
        let mut list = others.list.into_iter();
        list.try_for_each(|tensor| self.insert(tensor.name, tensor.shape, tensor.data))
    }

    /// The tensor of this name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.place.get(name).map(|&place| &self.list[place])
    }

    /// How many tensors there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The tensors in order, borrowed.
    pub fn iter(&self) -> impl Iterator<Item = TensorRef<'_>> {
        self.into_iter()
    }

    /// Free text stored with the tensors.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Free text stored with the tensors, to be changed.
    pub fn metadata_mut(&mut self) -> &mut BTreeMap<String, String> {
        &mut self.metadata
    }
}

impl<'a> IntoIterator for &'a Tensors {
    type Item = TensorRef<'a>;
    type IntoIter = std::iter::Map<std::slice::Iter<'a, Tensor>, fn(&'a Tensor) -> TensorRef<'a>>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter().map(Tensor::as_ref)
    }
}

impl IntoIterator for Tensors {
    type Item = Tensor;
    type IntoIter = std::vec::IntoIter<Tensor>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}
