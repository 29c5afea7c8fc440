//! Calls into NVIDIA's libraries whose answers are numbers.
//!
//! cudarc declares results as the enums of its versions. A newer library may return a number that such an
//! enum lacks, and such a value is undefined behaviour. So functions are called as cudarc declares them
//! except for their result, and enums only name the numbers that are passed.

use crate::libraries::address;
use core::ffi::{CStr, c_char};

/// The result for a function that the library does not have. No library has this number.
pub(crate) const MISSING: u32 = u32::MAX;

/// A function as cudarc declares it.
pub(crate) trait Declared {
    /// The library's function, with a number for its result.
    type Numbered: Copy;
}

macro_rules! declared {
    ($($arg:ident)*) => {
        impl<$($arg,)* R> Declared for unsafe fn($($arg),*) -> R {
            type Numbered = unsafe extern "C" fn($($arg),*) -> u32;
        }
        declared!(@fewer $($arg)*);
    };
    (@fewer $first:ident $($arg:ident)*) => {
        declared!($($arg)*);
    };
    (@fewer) => {};
}
declared!(A B C D E F G H I J K L M N O P);

/// The function at an address, if there is one: 0 is none.
///
/// # Safety
/// The address is 0, or that of the function that was declared, whose result has the size of a `u32`.
pub(crate) unsafe fn numbered<F: Declared>(_: F, address: usize) -> Option<F::Numbered> {
    // SAFETY: as the caller says.
    unsafe { pointer(address) }
}

/// The function of that name, if its library has it.
///
/// # Safety
/// `F` is a pointer to a function of its type.
pub(crate) unsafe fn function<F: Copy>(name: &str) -> Option<F> {
    // SAFETY: as the caller says.
    unsafe { pointer(address(name)) }
}

/// # Safety
/// The address is 0, or that of a function of this type.
unsafe fn pointer<F: Copy>(address: usize) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    // SAFETY: a pointer to a function is as large as its address.
    (address != 0).then(|| unsafe { core::mem::transmute_copy(&address) })
}

/// `number!(sys::function(arguments))`, within `unsafe`: calls a function of one of cudarc's modules. The
/// result is a number, which is [`MISSING`] if the library has no such function.
macro_rules! number {
    ($sys:ident::$name:ident($($arg:expr),* $(,)?)) => {{
        static ADDRESS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        let address = *ADDRESS.get_or_init(|| $crate::libraries::address(stringify!($name)));
        let declared: unsafe fn($($crate::number::inferred!($arg)),*) -> _ = $sys::$name;
        match $crate::number::numbered(declared, address) {
            Some(function) => function($($arg),*),
            None => $crate::number::MISSING,
        }
    }};
}
pub(crate) use number;

/// The type of an argument, from its function.
macro_rules! inferred {
    ($arg:expr) => {
        _
    };
}
pub(crate) use inferred;

/// A library's text for one of its numbers, by the function of that name. `None` if it has no text.
///
/// # Safety
/// The function takes a number and returns a static string, or null.
pub(crate) unsafe fn words(name: &str, number: u32) -> Option<String> {
    if number == MISSING {
        return Some("the library has no such function".into());
    }
    type Function = unsafe extern "C" fn(u32) -> *const c_char;
    // SAFETY: as the caller says.
    let text = unsafe { function::<Function>(name)?(number) };
    // SAFETY: as above, a string with its end.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
