use crate::{Device, Error, Result, View, ViewMut};
use program::Backend;
use tensor_cpu::{Buffer, Cpu, Reference};
use tensor_cuda::Cuda;

/// A run of numbers on a device.
#[derive(Debug)]
pub enum Storage {
    /// In host memory.
    Cpu(Buffer),
    /// f64 in host memory.
    Reference(Vec<f64>),
    /// In a GPU's memory.
    Cuda(tensor_cuda::Buffer),
}

/// A run of unsigned integers on a device: labels.
#[derive(Debug)]
pub enum Ints {
    /// In host memory.
    Cpu(Vec<u32>),
    /// In host memory.
    Reference(Vec<u32>),
    /// In a GPU's memory.
    Cuda(tensor_cuda::Ints),
}

/// A run of bytes on a device: images.
#[derive(Debug)]
pub enum Bytes {
    /// In host memory.
    Cpu(Vec<u8>),
    /// In host memory.
    Reference(Vec<u8>),
    /// In a GPU's memory.
    Cuda(tensor_cuda::Bytes),
}

impl Storage {
    /// How many numbers.
    pub fn len(&self) -> usize {
        match self {
            Storage::Cpu(buffer) => buffer.len(),
            Storage::Reference(buffer) => buffer.len(),
            Storage::Cuda(buffer) => buffer.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers of the f64 reference, without rounding; `None` on other devices.
    pub fn as_f64(&self) -> Option<&[f64]> {
        match self {
            Storage::Reference(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// The numbers of the f64 reference, to vary in gradient checks; `None` on other devices.
    pub fn as_f64_mut(&mut self) -> Option<&mut [f64]> {
        match self {
            Storage::Reference(buffer) => Some(buffer),
            _ => None,
        }
    }

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

/// A backend that is one of the facade's devices: which variant its memory is.
pub(crate) trait Member: Backend {
    fn buffer(storage: &Storage) -> Option<&Self::Buffer>;
    fn buffer_mut(storage: &mut Storage) -> Option<&mut Self::Buffer>;
    fn ints(ints: &Ints) -> Option<&Self::Ints>;
    fn ints_mut(ints: &mut Ints) -> Option<&mut Self::Ints>;
    fn wrap(buffer: Self::Buffer) -> Storage;
    fn wrap_ints(ints: Self::Ints) -> Ints;
    fn bytes(bytes: &Bytes) -> Option<&Self::Bytes>;
    fn bytes_mut(bytes: &mut Bytes) -> Option<&mut Self::Bytes>;
    fn wrap_bytes(bytes: Self::Bytes) -> Bytes;
}

macro_rules! member {
    ($backend:ty, $variant:ident) => {
        impl Member for $backend {
            fn buffer(storage: &Storage) -> Option<&Self::Buffer> {
                if let Storage::$variant(buffer) = storage { Some(buffer) } else { None }
            }
            fn buffer_mut(storage: &mut Storage) -> Option<&mut Self::Buffer> {
                if let Storage::$variant(buffer) = storage { Some(buffer) } else { None }
            }
            fn ints(ints: &Ints) -> Option<&Self::Ints> {
                if let Ints::$variant(ints) = ints { Some(ints) } else { None }
            }
            fn ints_mut(ints: &mut Ints) -> Option<&mut Self::Ints> {
                if let Ints::$variant(ints) = ints { Some(ints) } else { None }
            }
            fn wrap(buffer: Self::Buffer) -> Storage {
                Storage::$variant(buffer)
            }
            fn wrap_ints(ints: Self::Ints) -> Ints {
                Ints::$variant(ints)
            }
            fn bytes(bytes: &Bytes) -> Option<&Self::Bytes> {
                if let Bytes::$variant(bytes) = bytes { Some(bytes) } else { None }
            }
            fn bytes_mut(bytes: &mut Bytes) -> Option<&mut Self::Bytes> {
                if let Bytes::$variant(bytes) = bytes { Some(bytes) } else { None }
            }
            fn wrap_bytes(bytes: Self::Bytes) -> Bytes {
                Bytes::$variant(bytes)
            }
        }
    };
}
member!(Cpu, Cpu);
member!(Reference, Reference);
member!(Cuda, Cuda);

/// The storage's memory on the device `_d`.
pub(crate) fn buf<'a, D: Member>(_d: &D, op: &'static str, x: &'a Storage) -> Result<&'a D::Buffer> {
    D::buffer(x).ok_or(Error::DeviceMismatch { op })
}

/// The storage's memory on the device `_d`, to write.
pub(crate) fn buf_mut<'a, D: Member>(
    _d: &D,
    op: &'static str,
    x: &'a mut Storage,
) -> Result<&'a mut D::Buffer> {
    D::buffer_mut(x).ok_or(Error::DeviceMismatch { op })
}

/// The view's memory on the device `_d`.
pub(crate) fn view<'a, D: Member>(
    _d: &D,
    op: &'static str,
    x: View<'a, Storage>,
) -> Result<View<'a, D::Buffer>> {
    x.try_map(|data| D::buffer(data).ok_or(Error::DeviceMismatch { op }))
}

/// The view's memory on the device `_d`, to write.
pub(crate) fn view_mut<'a, D: Member>(
    _d: &D,
    op: &'static str,
    x: ViewMut<'a, Storage>,
) -> Result<ViewMut<'a, D::Buffer>> {
    x.try_map(|data| D::buffer_mut(data).ok_or(Error::DeviceMismatch { op }))
}

/// The labels' memory on the device `_d`.
pub(crate) fn ints<'a, D: Member>(_d: &D, op: &'static str, x: &'a Ints) -> Result<&'a D::Ints> {
    D::ints(x).ok_or(Error::DeviceMismatch { op })
}

/// The labels' memory on the device `_d`, to write.
pub(crate) fn ints_mut<'a, D: Member>(_d: &D, op: &'static str, x: &'a mut Ints) -> Result<&'a mut D::Ints> {
    D::ints_mut(x).ok_or(Error::DeviceMismatch { op })
}

/// The images' memory on the device `_d`.
pub(crate) fn bytes<'a, D: Member>(_d: &D, op: &'static str, x: &'a Bytes) -> Result<&'a D::Bytes> {
    D::bytes(x).ok_or(Error::DeviceMismatch { op })
}

/// The images' memory on the device `_d`, to write.
pub(crate) fn bytes_mut<'a, D: Member>(
    _d: &D,
    op: &'static str,
    x: &'a mut Bytes,
) -> Result<&'a mut D::Bytes> {
    D::bytes_mut(x).ok_or(Error::DeviceMismatch { op })
}

/// The memory as the facade's, given the device `_d` that it lives on.
pub(crate) fn wrap<D: Member>(_d: &D, buffer: D::Buffer) -> Storage {
    D::wrap(buffer)
}

/// The labels as the facade's, given the device `_d` that they live on.
pub(crate) fn wrap_ints<D: Member>(_d: &D, ints: D::Ints) -> Ints {
    D::wrap_ints(ints)
}

/// The images as the facade's, given the device `_d` that they live on.
pub(crate) fn wrap_bytes<D: Member>(_d: &D, bytes: D::Bytes) -> Bytes {
    D::wrap_bytes(bytes)
}
