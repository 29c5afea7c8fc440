use crate::{Error, Result};
use core::any::Any;
use core::fmt::{Debug, Formatter};
use core::marker::PhantomData;

/// A run of numbers in the memory of a device, as the device made it. What that memory is, its own crate knows.
pub struct Buffer<T> {
    memory: Box<dyn Any + Send + Sync>,
    len: usize,
    number: PhantomData<T>,
}

/// A run of numbers on a device: an arena, an activation. The device decides their format.
pub type Storage = Buffer<f32>;
/// A run of unsigned integers on a device: labels.
pub type Ints = Buffer<u32>;
/// A run of bytes on a device: images.
pub type Bytes = Buffer<u8>;

impl<T> Buffer<T> {
    /// Memory of a device that holds `len` numbers.
    pub fn new(memory: impl Any + Send + Sync, len: usize) -> Self {
        Buffer { memory: Box::new(memory), len, number: PhantomData }
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory, if it is of this type.
    pub fn get<M: Any>(&self) -> Option<&M> {
        self.memory.downcast_ref()
    }

    /// The same, to write. It must keep its length.
    pub fn get_mut<M: Any>(&mut self) -> Option<&mut M> {
        self.memory.downcast_mut()
    }

    /// The memory, for a device whose own is of this type.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] if it is another device's.
    pub fn on<M: Any>(&self, op: &'static str) -> Result<&M> {
        self.get().ok_or(Error::DeviceMismatch { op })
    }

    /// The same, to write.
    ///
    /// # Errors
    /// As [`on`](Buffer::on).
    pub fn on_mut<M: Any>(&mut self, op: &'static str) -> Result<&mut M> {
        self.get_mut().ok_or(Error::DeviceMismatch { op })
    }
}

impl Storage {
    /// The numbers of the f64 reference, without rounding; `None` on other devices.
    pub fn as_f64(&self) -> Option<&[f64]> {
        self.get::<Vec<f64>>().map(Vec::as_slice)
    }

    /// The numbers of the f64 reference, to vary in gradient checks; `None` on other devices.
    pub fn as_f64_mut(&mut self) -> Option<&mut [f64]> {
        self.get_mut::<Vec<f64>>().map(Vec::as_mut_slice)
    }
}

impl<T> Debug for Buffer<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} numbers of {}", self.len, core::any::type_name::<T>())
    }
}
