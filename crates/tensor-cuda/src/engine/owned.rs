//! Objects of C libraries that must be destroyed.

use crate::driver::Driver;
use core::ptr;
use std::sync::Arc;

/// An object of a C library, destroyed when dropped.
pub(crate) struct Owned<T> {
    raw: *mut T,
    /// Returns the library's status.
    destroy: unsafe fn(*mut T) -> u32,
}

// SAFETY: the objects held by it (handles, descriptors, plans) belong to no thread: NVIDIA allows their use from any, by one
// at a time, and they are used behind a lock or, where only read, documented as safe to share.
unsafe impl<T> Send for Owned<T> {}

impl<T> Owned<T> {
    /// The object that `create` writes to the given place, or its error.
    ///
    /// # Safety
    /// After success there is an object that `destroy` may be called on once.
    pub(crate) unsafe fn new<E>(
        destroy: unsafe fn(*mut T) -> u32,
        create: impl FnOnce(*mut *mut T) -> Result<(), E>,
    ) -> Result<Owned<T>, E> {
        let mut raw = ptr::null_mut();
        create(&raw mut raw)?;
        Ok(Owned { raw, destroy })
    }

    pub(crate) fn raw(&self) -> *mut T {
        self.raw
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the object was made by `new`, and its owner is gone. Its error is ignored.
        let _ = unsafe { (self.destroy)(self.raw) };
    }
}

/// `owned!(check, sys::create(arguments), sys::destroy())`, within `unsafe`: the object that `create` writes to the
/// place in front of these arguments.
macro_rules! owned {
    ($check:path, $sys:ident::$create:ident($($arg:expr),*), $of:ident::$destroy:ident()) => {
        $crate::engine::owned::Owned::new(
            |raw| number!($of::$destroy(raw)),
            |place| $check(stringify!($create), number!($sys::$create(place $(, $arg)*))),
        )
    };
}
pub(crate) use owned;

/// A library's handle for the device of a driver.
pub(crate) struct Handle<T> {
    pub(crate) raw: Owned<T>,
    pub(crate) driver: Arc<dyn Driver>,
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        // The handle is destroyed after this, on its device. If that is gone there is nothing to save.
        let _ = self.driver.make_current();
    }
}

#[cfg(test)]
mod tests {
    use super::Owned;
    use core::sync::atomic::{AtomicU32, Ordering};

    static ALIVE: AtomicU32 = AtomicU32::new(0);

    unsafe fn destroy(raw: *mut u32) -> u32 {
        // SAFETY: `raw` is the box that the test leaked.
        drop(unsafe { Box::from_raw(raw) });
        ALIVE.fetch_sub(1, Ordering::SeqCst)
    }

    #[test]
    fn is_destroyed_once_and_only_if_it_was_made() {
        let make = |place: *mut *mut u32| {
            ALIVE.fetch_add(1, Ordering::SeqCst);
            // SAFETY: `new` gives a place to write to.
            unsafe { *place = Box::into_raw(Box::new(7)) };
            Ok::<(), ()>(())
        };
        // SAFETY: `make` leaves a box, which `destroy` takes.
        let one = unsafe { Owned::new(destroy, make) };
        assert_eq!((one.is_ok(), ALIVE.load(Ordering::SeqCst)), (true, 1));
        drop(one);
        assert_eq!(ALIVE.load(Ordering::SeqCst), 0);
        // SAFETY: nothing is made.
        let none = unsafe { Owned::new(destroy, |_: *mut *mut u32| Err("no")) };
        assert_eq!((none.err(), ALIVE.load(Ordering::SeqCst)), (Some("no"), 0));
    }
}
