use crate::{Backend, Result, Storage};
use core::any::Any;
use core::ops::Deref;
use std::sync::Arc;

/// A place where tensors live and programs run: any [`Backend`]. Clones are the same device.
///
/// ```
/// use towers_program::{Device, Layout, Shape, View, ViewMut, Write};
///
/// let device = towers_tensor_cpu::device(1);
/// let at = Layout::contiguous(Shape::vectors(1, 3));
/// let (mut x, mut y) = (device.alloc(3)?, device.alloc(3)?);
/// device.upload(&[-1.0, 0.0, 2.0], &mut x, 0)?;
/// device.copy(View::new(&x, at), ViewMut::new(&mut y, at), Write::Set)?;
/// assert_eq!(y.to_vec(&device, 0, 3)?, [-1.0, 0.0, 2.0]);
///
/// let cpu: Option<&towers_tensor_cpu::Cpu> = device.get();
/// assert!(cpu.is_some());
/// # Ok::<(), towers_program::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Device(Arc<dyn Backend>);

impl Device {
    /// The backend, if it is of this type, for functions that only one kind of device has.
    pub fn get<B: Backend>(&self) -> Option<&B> {
        let backend: &dyn Any = &*self.0;
        backend.downcast_ref()
    }
}

impl<B: Backend> From<B> for Device {
    fn from(backend: B) -> Self {
        Device(Arc::new(backend))
    }
}

impl Deref for Device {
    type Target = dyn Backend;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl Storage {
    /// The elements from `offset` on as f32, copied from the device.
    ///
    /// # Errors
    /// If `device` is another than the storage's, or its library reports an error.
    pub fn to_vec(&self, device: &Device, offset: usize, len: usize) -> Result<Vec<f32>> {
        let mut out = vec![0.0; len];
        device.download(self, offset, &mut out)?;
        Ok(out)
    }
}
