use crate::{Backend, Device, Layout, Result, Shape, Storage, View, ViewMut};

/// A tensor that owns its memory: a shape in NHWC order and a storage on a device.
#[derive(Debug)]
pub struct Tensor {
    storage: Storage,
    shape: Shape,
}

impl Tensor {
    /// Zeros.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn zeros(device: &Device, shape: Shape) -> Result<Self> {
        Ok(Tensor { storage: device.alloc_activations(shape.len())?, shape })
    }

    /// A copy of `values` on the device.
    ///
    /// # Errors
    /// If the device has no memory left, or `values` has more elements than the shape.
    pub fn from_slice(device: &Device, shape: Shape, values: &[f32]) -> Result<Self> {
        let mut tensor = Tensor::zeros(device, shape)?;
        device.upload(values, &mut tensor.storage, 0)?;
        Ok(tensor)
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The memory.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The memory, to write.
    pub fn storage_mut(&mut self) -> &mut Storage {
        &mut self.storage
    }

    /// The whole tensor, to read.
    pub fn view(&self) -> View<'_, Storage> {
        View::new(&self.storage, Layout::contiguous(self.shape))
    }

    /// The whole tensor, to write.
    pub fn view_mut(&mut self) -> ViewMut<'_, Storage> {
        ViewMut::new(&mut self.storage, Layout::contiguous(self.shape))
    }

    /// The first `n` samples, to read.
    pub fn first(&self, n: usize) -> View<'_, Storage> {
        View::new(&self.storage, Layout::contiguous(self.shape).samples(0..n))
    }

    /// The elements, copied from the device.
    ///
    /// # Errors
    /// If `device` is another than the tensor's.
    pub fn to_vec(&self, device: &Device) -> Result<Vec<f32>> {
        self.storage.to_vec(device, 0, self.shape.len())
    }
}
