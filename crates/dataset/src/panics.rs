//! Panics of libraries that read files of strangers.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// Whether this thread's panics are caught.
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread becomes an error now. A program's panic hook may then be
/// silent:
///
/// ```
/// let others = std::panic::take_hook();
/// std::panic::set_hook(Box::new(move |panic| {
///     if !towers_dataset::catches_panics() {
///         others(panic);
///     }
/// }));
/// ```
///
/// No crate sets a hook, so that by default the message of a decoder's panic is printed beside the error.
/// With `panic = "abort"` nothing is caught.
pub fn catches_panics() -> bool {
    cfg!(panic = "unwind") && CATCHING.try_with(Cell::get).unwrap_or(false)
}

/// What `run` returns, or the message of its panic: for decoders of untrusted files.
///
/// # Errors
/// The message.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    let before = CATCHING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(run));
    CATCHING.set(before);
    result.map_err(|panic| message(panic.as_ref()).to_owned())
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}
