//! The backend's interface to a driver: memory, copies, launches, graphs. Everything is in order on one
//! stream. A second stream runs a library's work beside it.

mod cuda;
#[cfg(feature = "emulation")]
pub(crate) mod emulated;
mod mark;
pub(crate) mod watch;
mod works;

pub(crate) use cuda::CudaDriver;
#[cfg(feature = "emulation")]
pub(crate) use emulated::HostWork;
pub(crate) use mark::Mark;
pub(crate) use watch::{Pause, Watch};

use core::ffi::c_void;
use std::sync::Arc;
use towers_program::{Error, Result};

/// An address in the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ptr(pub(crate) u64);

impl Ptr {
    /// The address `bytes` further on.
    pub(crate) fn offset(self, bytes: usize) -> Ptr {
        Ptr(self.0 + bytes as u64)
    }

    /// No address.
    pub(crate) const NULL: Ptr = Ptr(0);
}

/// An argument of a kernel. Its type must be the parameter's: the emulated driver checks it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Arg {
    Ptr(Ptr),
    U32(u32),
    I32(i32),
    U64(u64),
    F32(f32),
}

impl Arg {
    /// The argument's bytes, at the start of the word (on a little-endian host, as all that CUDA runs on are).
    pub(crate) fn word(self) -> u64 {
        match self {
            Arg::Ptr(ptr) => ptr.0,
            Arg::U32(x) => x.into(),
            Arg::I32(x) => u64::from(x as u32),
            Arg::U64(x) => x,
            Arg::F32(x) => u64::from(x.to_bits()),
        }
    }
}

impl From<Ptr> for Arg {
    fn from(x: Ptr) -> Arg {
        Arg::Ptr(x)
    }
}

impl From<u32> for Arg {
    fn from(x: u32) -> Arg {
        Arg::U32(x)
    }
}

impl From<i32> for Arg {
    fn from(x: i32) -> Arg {
        Arg::I32(x)
    }
}

impl From<u64> for Arg {
    fn from(x: u64) -> Arg {
        Arg::U64(x)
    }
}

impl From<f32> for Arg {
    fn from(x: f32) -> Arg {
        Arg::F32(x)
    }
}

/// The arguments of a launch, from values of the parameters' types.
macro_rules! args {
    ($($arg:expr),* $(,)?) => {
        &[$($crate::driver::Arg::from($arg)),*]
    };
}
pub(crate) use args;

/// A number for a kernel's `u32`.
pub(crate) fn u32_of(op: &'static str, what: &'static str, value: usize) -> Result<u32> {
    u32::try_from(value).map_err(|_| Error::Value { op, what, value: value as f64, accepted: "below 2^32" })
}

/// How many blocks and threads a kernel runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(crate) shared: u32,
}

impl Geometry {
    /// One dimension of each.
    pub(crate) fn line(blocks: u32, threads: u32) -> Geometry {
        Geometry { grid: [blocks, 1, 1], block: [threads, 1, 1], shared: 0 }
    }

    /// The same with dynamic shared memory; so far no kernel but those of tests has any.
    #[cfg(all(test, feature = "emulation"))]
    pub(crate) fn shared(self, bytes: u32) -> Geometry {
        Geometry { shared: bytes, ..self }
    }
}

/// A kernel of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel(pub(crate) usize);

/// A graph of a driver.
#[derive(Debug)]
pub(crate) struct Graph(pub(crate) usize);

/// An event of a driver.
#[derive(Debug)]
pub(crate) struct Event(pub(crate) usize);

/// A GPU or its emulation. All work is in the order of the calls. Only `read` and `synchronize` wait for it.
///
/// During a capture, launches, clears and copies are captured instead of done. `alloc`, `write`, `read` and
/// `synchronize` are errors then.
pub(crate) trait Driver: Send + Sync {
    /// The device's name, for messages.
    fn name(&self) -> String;

    /// The name without the device's number.
    fn model(&self) -> String {
        self.name()
    }

    /// The number of multiprocessors: at least this many blocks keep the device busy.
    fn multiprocessors(&self) -> u32;

    /// Whether its tensor cores multiply the 16-bit formats with float sums, as from compute capability 8.0
    /// on.
    fn tensor_cores(&self) -> bool;

    /// The number of kernel files that were compiled when it was opened. The others came from the cache.
    fn compiled(&self) -> usize {
        0
    }

    /// `bytes` zeros, aligned to 256 bytes. An empty allocation may be [`Ptr::NULL`].
    fn alloc(&self, bytes: usize) -> Result<Ptr>;

    /// Frees memory after all work that was queued so far.
    ///
    /// # Safety
    /// `ptr` came from `alloc` with as many bytes, and is used no more, by replays neither.
    unsafe fn free(&self, ptr: Ptr, bytes: usize);

    /// Copies from host memory, which the caller may reuse on return.
    ///
    /// # Safety
    /// `src.len()` bytes from `dst` on lie within one allocation.
    unsafe fn write(&self, src: &[u8], dst: Ptr) -> Result<()>;

    /// Copies to host memory and waits for it.
    ///
    /// # Safety
    /// `dst.len()` bytes from `src` on lie within one allocation.
    unsafe fn read(&self, src: Ptr, dst: &mut [u8]) -> Result<()>;

    /// Sets bytes to 0.
    ///
    /// # Safety
    /// They lie within one allocation.
    unsafe fn clear(&self, dst: Ptr, bytes: usize) -> Result<()>;

    /// The kernel of that name.
    fn kernel(&self, name: &str) -> Result<Kernel>;

    /// Runs a kernel.
    ///
    /// # Safety
    /// The arguments match the kernel's parameters, and it stays within valid memory.
    unsafe fn launch(&self, kernel: Kernel, geometry: Geometry, args: &[Arg]) -> Result<()>;

    /// Waits for all work, and reports its errors.
    fn synchronize(&self) -> Result<()>;

    /// Begins a capture.
    fn begin_capture(&self) -> Result<()>;

    /// In a capture: the next work depends on these pieces of work alone. They are numbered in the order of
    /// their beginnings. Work outside of pieces depends on all earlier work, and all later work depends on
    /// it.
    fn begin_work(&self, after: &[usize]) -> Result<()>;

    /// Ends the piece of work.
    fn end_work(&self) -> Result<()>;

    /// Called before a library queues work outside of pieces of work. The driver's own calls do so by
    /// themselves.
    fn leave_work(&self) -> Result<()> {
        Ok(())
    }

    /// Whether the capture is spoiled.
    fn is_spoiled(&self) -> Result<bool> {
        Ok(false)
    }

    /// The captured graph, ready to run. With `keep` false it is discarded, and the result is of no use.
    fn end_capture(&self, keep: bool) -> Result<Graph>;

    /// Runs a graph.
    fn launch_graph(&self, graph: &Graph) -> Result<()>;

    /// Frees a graph.
    fn free_graph(&self, graph: Graph);

    /// Captures work of the host, which replays repeat. `false` if no capture is under way.
    #[cfg(feature = "emulation")]
    fn capture_host_work(&self, _work: HostWork) -> bool {
        false
    }

    /// The bytes for [`copy`](Driver::copy) of another driver, when copies go through the host. Unlike
    /// [`read`](Driver::read) it does not use this driver's stream, which may be in a capture.
    ///
    /// # Safety
    /// As for `read`.
    #[cfg(feature = "emulation")]
    unsafe fn lend(&self, src: Ptr, dst: &mut [u8]) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { self.read(src, dst) }
    }

    /// Copies device memory, maybe that of another driver.
    ///
    /// # Safety
    /// `bytes` bytes from `src` on lie within one allocation of `from`, and from `dst` on within one of this driver.
    unsafe fn copy(&self, from: &dyn Driver, src: Ptr, dst: Ptr, bytes: usize) -> Result<()>;

    /// Enables direct copies from another driver, if possible.
    fn reach(&self, _other: &dyn Driver) {}

    /// An event. Before it is recorded it has passed.
    fn create_event(&self) -> Result<Event>;

    /// Records the event after all work so far.
    fn record_event(&self, event: &Event) -> Result<()>;

    /// Whether all work before the event is done.
    fn has_passed(&self, event: &Event) -> Result<bool>;

    /// Makes all later work wait for an event, maybe of another driver. The host does not wait.
    fn wait_event(&self, event: &Event) -> Result<()>;

    /// Destroys an event.
    fn free_event(&self, event: Event);

    /// Sets the check that runs during every wait of the host, or none. A stream that waits for other
    /// machines may wait for ever.
    fn set_watch(&self, watch: Option<Arc<dyn Watch>>);

    /// The stream, for libraries. Null in the emulation.
    fn stream(&self) -> *mut c_void;

    /// The second stream, for libraries. Its work runs beside the first one's.
    fn side_stream(&self) -> *mut c_void;

    /// Makes the second stream wait for all work of the first so far. In a capture both are captured.
    fn fork(&self) -> Result<()>;

    /// Makes all later work of the first stream wait for the second one, if that was forked since the last
    /// time. The beginning and the end of a capture and waits of the host do so by themselves.
    fn join(&self) -> Result<()>;

    /// The context of the addresses. Null in the emulation.
    fn context(&self) -> *mut c_void;

    /// Makes the device the calling thread's current one, for calls into libraries.
    fn make_current(&self) -> Result<()>;
}
