use crate::{Layout, Result, Storage};
use core::any::Any;

/// A tensor to read: a buffer and where in it the tensor lies.
#[derive(Debug)]
pub struct View<'a, B: ?Sized = Storage> {
    /// The buffer.
    pub data: &'a B,
    /// The place in it.
    pub layout: Layout,
}

impl<B: ?Sized> Clone for View<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: ?Sized> Copy for View<'_, B> {}

/// A tensor to write: a buffer and where in it the tensor lies.
#[derive(Debug)]
pub struct ViewMut<'a, B: ?Sized = Storage> {
    /// The buffer.
    pub data: &'a mut B,
    /// The place in it.
    pub layout: Layout,
}

impl<'a, B: ?Sized> View<'a, B> {
    /// The tensor at `layout` of `data`.
    pub fn new(data: &'a B, layout: Layout) -> Self {
        View { data, layout }
    }

    /// The same tensor, its memory seen as something else.
    pub fn try_map<C: ?Sized, E>(self, f: impl FnOnce(&'a B) -> Result<&'a C, E>) -> Result<View<'a, C>, E> {
        Ok(View { data: f(self.data)?, layout: self.layout })
    }
}

impl<'a, B: ?Sized> ViewMut<'a, B> {
    /// The tensor at `layout` of `data`.
    pub fn new(data: &'a mut B, layout: Layout) -> Self {
        ViewMut { data, layout }
    }

    /// A shorter loan of the same tensor.
    pub fn reborrow(&mut self) -> ViewMut<'_, B> {
        ViewMut { data: self.data, layout: self.layout }
    }

    /// The same tensor, to read.
    pub fn as_view(&self) -> View<'_, B> {
        View { data: self.data, layout: self.layout }
    }

    /// The same tensor, its memory seen as something else.
    pub fn try_map<C: ?Sized, E>(
        self,
        f: impl FnOnce(&'a mut B) -> Result<&'a mut C, E>,
    ) -> Result<ViewMut<'a, C>, E> {
        Ok(ViewMut { data: f(self.data)?, layout: self.layout })
    }
}

impl<'a> View<'a> {
    /// The tensor in the memory of a device, whose own is of this type.
    ///
    /// # Errors
    /// [`DeviceMismatch`](crate::Error::DeviceMismatch) if it is another device's.
    pub fn on<M: Any>(self, op: &'static str) -> Result<View<'a, M>> {
        self.try_map(|data| data.on(op))
    }
}

impl<'a> ViewMut<'a> {
    /// As [`View::on`].
    ///
    /// # Errors
    /// [`DeviceMismatch`](crate::Error::DeviceMismatch) if it is another device's.
    pub fn on<M: Any>(self, op: &'static str) -> Result<ViewMut<'a, M>> {
        self.try_map(|data| data.on_mut(op))
    }
}
