//! Panics of libraries that read files of strangers.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Whether this thread's panics are caught.
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// What `run` returns, or the message of its panic, which is not printed.
pub(crate) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !CATCHING.try_with(Cell::get).unwrap_or(false) {
                others(panic);
            }
        }));
    });
    let before = CATCHING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(run));
    CATCHING.set(before);
    result.map_err(|panic| message(panic.as_ref()).to_owned())
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}
