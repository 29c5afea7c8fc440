use crate::{Error, Result};
use core::any::Any;
use core::fmt::{Debug, Formatter};
use core::marker::PhantomData;
use core::ops::Deref;
use std::sync::Arc;

/// A run of numbers in the memory of a device, as the device made it. What that memory is, its own crate knows.
pub struct Buffer<T> {
    memory: Arc<dyn Any + Send + Sync>,
    len: usize,
    /// Finds the numbers in memory of the host.
    read: Option<fn(&dyn Any) -> &[f32]>,
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
        Buffer { memory: Arc::new(memory), len, read: None, number: PhantomData }
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

    /// The same, to write. It must keep its length. `None` too while it is [shared](Buffer::share).
    pub fn get_mut<M: Any>(&mut self) -> Option<&mut M> {
        Arc::get_mut(&mut self.memory)?.downcast_mut()
    }

    /// The same memory once more. Nothing can be written to it until all others of it are dropped.
    ///
    /// ```
    /// use towers_program::Storage;
    ///
    /// let mut memory = Storage::new(vec![0.0_f64; 2], 2);
    /// let other = memory.share();
    /// assert!(memory.as_f64_mut().is_none());
    /// drop(other);
    /// assert!(memory.as_f64_mut().is_some());
    /// ```
    #[must_use]
    pub fn share(&self) -> Self {
        Buffer { memory: Arc::clone(&self.memory), ..*self }
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
    /// As [`on`](Buffer::on), and [`Error::Shared`] while the memory is [shared](Buffer::share).
    pub fn on_mut<M: Any>(&mut self, op: &'static str) -> Result<&mut M> {
        let is_shared = Arc::get_mut(&mut self.memory).is_none();
        self.get_mut().ok_or(if is_shared { Error::Shared { op } } else { Error::DeviceMismatch { op } })
    }
}

impl Storage {
    /// Memory of the host, which others than its device may [read](Buffer::host) too.
    pub fn on_host<M: Any + Send + Sync + Deref<Target = [f32]>>(memory: M) -> Self {
        fn read<M: Any + Deref<Target = [f32]>>(memory: &dyn Any) -> &[f32] {
            memory.downcast_ref::<M>().map_or(&[], |memory| memory)
        }
        let len = memory.len();
        Buffer { read: Some(read::<M>), ..Buffer::new(memory, len) }
    }

    /// The numbers, if they lie in memory of the host as f32.
    pub fn host(&self) -> Option<&[f32]> {
        self.read.map(|read| read(&*self.memory))
    }

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
