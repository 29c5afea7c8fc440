//! A CUDA device, and the interface to its engine.

use crate::dependencies::{Access, Dependencies, Region};
use crate::driver::{Arg, Driver, Geometry, Kernel, Ptr};
use crate::format::Format;
use crate::layer::{Layer, Pass};
use crate::lock::lock;
use crate::memory::{Captured, Memory, Scratch};
use crate::options::Options;
use crate::place::Place;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use towers_program::{Error, Result, Shape, Write};

/// An NVIDIA GPU, or its emulation for tests. Clones are the same device with the same stream, scratch memory and
/// learning rate: replicas on one GPU open it once each.
#[derive(Clone)]
pub struct Cuda {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) options: Options,
    pub(crate) step_state: Memory,
    counters: Memory,
    pub(crate) engine: Box<dyn Engine>,
    kernels: Mutex<HashMap<&'static str, Kernel>>,
    scratch: Scratch,
    engine_scratch: Scratch,
    capturing: AtomicBool,
    /// Ops so far.
    ops: AtomicU64,
    /// Algorithms of libraries that failed so far, and why the first one did.
    pub(crate) dropped: AtomicU64,
    pub(crate) first_dropped: Mutex<Option<String>>,
    /// The least recently used of the counters.
    next_counter: AtomicU32,
    dependencies: Mutex<Dependencies>,
    /// The memory of the capture under way.
    captured: Mutex<Captured>,
}

/// Computes layers on prepared operands: tensors are contiguous, all numbers are in the format of activations,
/// and weights lie as (outputs, kh, kw, inputs), or (outputs, inputs) for a dense layer. Sums are f32. The ops
/// add biases and activations.
pub(crate) trait Engine: Send + Sync {
    /// Its name, and its choices so far, a line each.
    fn describe(&self) -> Vec<String> {
        vec!["own kernels".into()]
    }

    /// Why libraries are not used that it should use.
    fn missing(&self) -> Vec<String> {
        Vec::new()
    }

    /// Chooses algorithms and reserves scratch memory for inputs of up to this shape.
    fn prepare(&self, cuda: &Cuda, layer: Layer, x: Shape, training: bool) -> Result<()>;

    /// Computes `y = x w^T`, `dx = dy w` or `dw = dy^T x`. `x`, `w` and `y` also stand for their gradients. Only
    /// dx may be added to.
    fn run(
        &self,
        cuda: &Cuda,
        layer: Layer,
        pass: Pass,
        x: &Place,
        w: Ptr,
        y: &Place,
        write: Write,
    ) -> Result<()>;
}

/// The most sums that a kernel may leave to the last of several blocks.
const COUNTERS: u32 = 1 << 14;

impl Cuda {
    /// A device of these parts. Its step state is not yet set.
    pub(crate) fn of(
        driver: Arc<dyn Driver>,
        engine: Box<dyn Engine>,
        options: Options,
        step_state: Memory,
    ) -> Result<Cuda> {
        let counters = Memory::zeros(&driver, COUNTERS as usize * size_of::<u32>())?;
        let inner = Inner {
            driver,
            options,
            step_state,
            counters,
            engine,
            kernels: Mutex::default(),
            scratch: Scratch::default(),
            engine_scratch: Scratch::default(),
            capturing: AtomicBool::new(false),
            ops: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            first_dropped: Mutex::default(),
            next_counter: AtomicU32::new(0),
            dependencies: Mutex::default(),
            captured: Mutex::default(),
        };
        Ok(Cuda { inner: Arc::new(inner) })
    }

    /// Refuses devices if one is a clone of another. As replicas, each on a thread, they would use each other's scratch
    /// memory and learning rate, and compute wrong numbers.
    ///
    /// # Errors
    /// Names the first device that occurs again.
    pub fn refuse_clones<'a>(devices: impl IntoIterator<Item = &'a Cuda>) -> Result<()> {
        let mut seen: Vec<&Cuda> = Vec::new();
        for cuda in devices {
            if seen.iter().any(|other| Arc::ptr_eq(&other.inner, &cuda.inner)) {
                return Err(cuda.error(
                    "two replicas have clones of one device, which share their memory for a step: open the GPU once for each replica",
                ));
            }
            seen.push(cuda);
        }
        Ok(())
    }

    /// The options that it was opened with.
    pub fn options(&self) -> Options {
        self.inner.options
    }

    /// Whether it is an emulation.
    pub fn is_emulated(&self) -> bool {
        self.inner.driver.context().is_null()
    }

    /// The number of kernel files that were compiled to open this device, which takes seconds. It is 0 from
    /// the second time on.
    pub fn compiled_files(&self) -> usize {
        self.driver().compiled()
    }

    /// The engine of convolutions and dense layers, and its chosen algorithms, as lines of text.
    pub fn describe_engine(&self) -> Vec<String> {
        self.inner.engine.describe()
    }

    /// Why something slower takes the place of a library or of one of its algorithms, a sentence for each so far.
    pub fn fallbacks(&self) -> Vec<String> {
        let missing = self.inner.engine.missing().into_iter();
        let missing = missing.map(|why| format!("our own kernels take the place of a library: {why}"));
        let dropped = lock(&self.inner.first_dropped).clone();
        missing
            .chain(dropped.map(|why| format!("another algorithm takes the place of one that failed: {why}")))
            .collect()
    }

    /// The number format of activations.
    pub(crate) fn format(&self) -> Format {
        Format::of_activations(self.inner.options.precision)
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.inner.driver
    }

    pub(crate) fn name_of(&self) -> String {
        self.inner.driver.name()
    }

    /// An error of this device.
    pub(crate) fn error(&self, message: impl Into<String>) -> Error {
        Error::Device { device: self.name_of(), message: message.into() }
    }

    /// Runs a kernel on this device's stream.
    pub(crate) fn launch(&self, kernel: &'static str, geometry: Geometry, args: &[Arg]) -> Result<()> {
        let known = lock(&self.inner.kernels).get(kernel).copied();
        let kernel = match known {
            Some(known) => known,
            None => {
                let found = self.inner.driver.kernel(kernel)?;
                lock(&self.inner.kernels).insert(kernel, found);
                found
            }
        };
        // SAFETY: the ops hand over operands whose places were checked, in the order of the kernel's parameters.
        self.work(|| unsafe { self.inner.driver.launch(kernel, geometry, args) })
    }

    /// Blocks of `threads` for a loop over `items` in which every thread takes several: just enough to fill
    /// the device.
    pub(crate) fn blocks(&self, items: usize, threads: u32) -> u32 {
        let most = 16 * self.inner.driver.multiprocessors();
        u32::try_from(items.div_ceil(threads as usize)).unwrap_or(most).clamp(1, most)
    }

    /// Scratch memory of at least so many bytes, with any content, for the op at hand.
    pub(crate) fn scratch(&self, bytes: usize) -> Result<Ptr> {
        self.scratch_of(&self.inner.scratch, bytes)
    }

    /// Scratch memory of an engine, beside that of the op that asked it.
    pub(crate) fn engine_scratch(&self, bytes: usize) -> Result<Ptr> {
        self.scratch_of(&self.inner.engine_scratch, bytes)
    }

    fn scratch_of(&self, scratch: &Scratch, bytes: usize) -> Result<Ptr> {
        let ptr = scratch.of_op(&self.inner.driver, bytes, self.inner.ops.load(Ordering::Relaxed))?;
        self.note_run(ptr, bytes);
        Ok(ptr)
    }

    /// This number of integers that are 0 before and after a kernel. Blocks count with them which one is the
    /// last.
    pub(crate) fn counters(&self, op: &'static str, count: u32) -> Result<Ptr> {
        let accepted = "at most 16384 cache lines";
        if count > COUNTERS {
            return Err(Error::Value { op, what: "the size of a pixel", value: count.into(), accepted });
        }
        // In rotation, so that captured ops need not wait for each other.
        let next = self.inner.next_counter.load(Ordering::Relaxed);
        let first = if next + count > COUNTERS { 0 } else { next };
        self.inner.next_counter.store(first + count, Ordering::Relaxed);
        let ptr = self.inner.counters.ptr().offset(first as usize * size_of::<u32>());
        self.note_run(ptr, count as usize * size_of::<u32>());
        Ok(ptr)
    }

    /// Runs an op, with all its operands and its work.
    pub(crate) fn op<T>(&self, op: impl FnOnce() -> Result<T>) -> Result<T> {
        self.inner.ops.fetch_add(1, Ordering::Relaxed);
        if !self.is_capturing() {
            return op();
        }
        lock(&self.inner.dependencies).begin_op();
        let done = op();
        lock(&self.inner.dependencies).end_op();
        done
    }

    /// Notes a read or a write of the current op.
    pub(crate) fn note(&self, region: Region, writes: bool) {
        if self.is_capturing() {
            lock(&self.inner.dependencies).note(region, writes);
        }
    }

    /// Notes all operands and results of the current op, a step of a program. Its own lookups are not noted
    /// again.
    pub(crate) fn declare(&self, accesses: impl Iterator<Item = Access>) {
        if self.is_capturing() {
            lock(&self.inner.dependencies).declare(accesses);
        }
    }

    /// Notes an operand that the current op has looked up, unless a program has declared it.
    pub(crate) fn note_operand(&self, region: Region, writes: bool) {
        if self.is_capturing() {
            lock(&self.inner.dependencies).note_operand(region, writes);
        }
    }

    /// Notes memory that the current op may write.
    pub(crate) fn note_run(&self, ptr: Ptr, bytes: usize) {
        self.note(Region::run(ptr, bytes), true);
    }

    /// A piece of work: all that `ask` queues on the stream, in this order.
    pub(crate) fn work<T>(&self, ask: impl FnOnce() -> Result<T>) -> Result<T> {
        let ordered = self.is_capturing() && !self.inner.options.one_stream;
        let after = if ordered { lock(&self.inner.dependencies).next() } else { None };
        let Some(after) = after else {
            self.driver().leave_work()?;
            return ask();
        };
        self.driver().begin_work(&after)?;
        let done = ask()?;
        self.driver().end_work()?;
        Ok(done)
    }

    /// Resets the dependencies for the next capture. Returns the number of pieces of work, and the length of
    /// the longest chain.
    pub(crate) fn take_dependencies(&self) -> [usize; 2] {
        core::mem::take(&mut *lock(&self.inner.dependencies)).size()
    }

    /// Notes memory that captured work uses.
    pub(crate) fn capture_memory(&self, memory: &Memory) {
        if self.is_capturing() {
            lock(&self.inner.captured).add(memory);
        }
    }

    /// The memory that the capture has used so far.
    pub(crate) fn take_captured(&self) -> Captured {
        core::mem::take(&mut *lock(&self.inner.captured))
    }

    /// Forks a second stream, which waits for all work so far, for the all-reduces of
    /// [`Communicator::start_all_reduce`](crate::nccl::Communicator::start_all_reduce). Ops always run on the
    /// first stream.
    ///
    /// # Errors
    /// The errors of the driver.
    pub fn fork(&self) -> Result<()> {
        self.inner.driver.fork()
    }

    /// Makes all later work wait for the second stream. Waiting for the device does so by itself, and so do
    /// the beginning and the end of a capture.
    ///
    /// # Errors
    /// The errors of the driver.
    pub fn join(&self) -> Result<()> {
        self.inner.driver.join()
    }

    /// Whether ops are being captured.
    pub(crate) fn is_capturing(&self) -> bool {
        self.inner.capturing.load(Ordering::Relaxed)
    }

    pub(crate) fn set_capturing(&self, on: bool) {
        self.inner.capturing.store(on, Ordering::Relaxed);
    }
}

impl core::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Cuda").field("name", &self.name_of()).field("options", &self.inner.options).finish()
    }
}
