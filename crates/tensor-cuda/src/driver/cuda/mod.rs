//! The real driver: a GPU, its context and its two streams.
//!
//! Every call first makes the context the thread's current one, so any thread may use a device. Functions of
//! the driver are called only after its version was checked: none is newer than that version.

mod capture;
mod context;
mod events;
mod functions;
mod priorities;
mod side;
mod staging;
mod waits;

use super::works::Works;
use super::{Arg, Driver, Event, Geometry, Graph, Kernel, Ptr, Watch, watch};
use crate::Options;
use crate::cache::Cache;
use crate::compile::{Job, Nvrtc};
use crate::error::Error;
use crate::format::Format;
use crate::gpus::{Device, check};
use crate::lock::lock;
use crate::number::number;
use crate::source::{FORMATS, Source};
use context::{Context, Stream};
use core::ffi::c_void;
use cudarc::driver::sys;
use functions::Functions;
use side::Side;
use staging::Staging;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use towers_program::Result;

/// The most arguments of a kernel. They are an array, so a launch allocates nothing.
const MOST_ARGS: usize = 32;

/// A GPU. Fields drop in order: objects of the context before the context.
pub(crate) struct CudaDriver {
    model: String,
    title: String,
    multiprocessors: u32,
    tensor_cores: bool,
    /// How many kernel files were not in the cache.
    compiled: usize,
    capturing: AtomicBool,
    /// Memory that was freed during a capture, when the driver can free none, or while its work may still have run.
    retired: Mutex<Vec<Ptr>>,
    /// Graphs that were given up while they may still have run.
    retired_graphs: Mutex<Vec<Graph>>,
    staging: Mutex<Staging>,
    /// The check of waits.
    watch: Mutex<Option<Arc<dyn Watch>>>,
    functions: Functions,
    side: Side,
    /// The capture under way.
    works: Mutex<Works<sys::CUgraphNode>>,
    stream: Stream,
    context: Context,
}

// SAFETY: the driver's objects belong to no thread, and its functions may be called from any once the context is current.
unsafe impl Send for CudaDriver {}
// SAFETY: as above; what we change ourselves is behind locks.
unsafe impl Sync for CudaDriver {}

impl CudaDriver {
    /// Opens a GPU and loads every kernel of these files, so that errors come up now.
    pub(crate) fn new(options: &Options, sources: &'static [Source]) -> Result<CudaDriver> {
        let number = format!("cuda:{}", options.gpu);
        let device = Device::find(options.gpu).map_err(|error| error.of_device(number))?;
        let title = device.title();
        CudaDriver::open(device, options, sources).map_err(|error| error.of_device(title))
    }

    fn open(device: Device, options: &Options, sources: &'static [Source]) -> Result<CudaDriver, Error> {
        use sys::CUdevice_attribute as A;
        let nvrtc = Nvrtc::find()?;
        let (major, minor) = device.capability()?;
        let target = nvrtc.target(&device.name(), 10 * major + minor)?;
        let format = FORMATS[Format::of_activations(options.precision) as usize];
        let jobs: Vec<Job> = sources.iter().map(|source| Job { source, format, target }).collect();
        let (images, compiled) = nvrtc.images(&Cache::of_user(), &jobs)?;

        let context = Context::of(device)?;
        let (stream, side) = (Stream::new()?, Side::new()?);
        let shared = device.attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let functions = Functions::load(sources.iter().zip(&images), shared)?;
        let staging = Mutex::new(Staging::new()?);
        Ok(CudaDriver {
            model: device.name(),
            title: device.title(),
            multiprocessors: device.attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1),
            tensor_cores: major >= 8,
            compiled,
            capturing: AtomicBool::new(false),
            works: Mutex::default(),
            retired: Mutex::default(),
            retired_graphs: Mutex::default(),
            staging,
            watch: Mutex::default(),
            functions,
            side,
            stream,
            context,
        })
    }

    /// Makes the context current and calls. A failure becomes an error of this device.
    fn call(&self, name: &'static str, function: impl FnOnce() -> u32) -> Result<()> {
        let called = self.context.make_current().and_then(|()| check(name, function()));
        called.map_err(|error| error.of_device(&self.title))
    }

    fn refused(&self, message: String) -> towers_program::Error {
        towers_program::Error::Device { device: self.title.clone(), message }
    }

    /// Refuses calls that can't be captured.
    fn unless_capturing(&self, what: &str) -> Result<()> {
        if self.capturing.load(Ordering::Relaxed) {
            return Err(self.refused(format!("{what} can't be captured in a graph")));
        }
        Ok(())
    }

    /// Frees memory as soon as its work has ended. A broken context has lost its memory anyway. If another rank
    /// was lost, work may still run, and the memory stays until the end of this driver.
    ///
    /// # Safety
    /// The addresses came from `alloc`, and are used no more but by work that was asked for already.
    unsafe fn release(&self, all: impl IntoIterator<Item = Ptr>) {
        if self.may_still_run() {
            lock(&self.retired).extend(all);
            return;
        }
        for ptr in all {
            // SAFETY: as the caller says; the work that used it has ended.
            unsafe { number!(sys::cuMemFree_v2(ptr.0)) };
        }
    }

    /// Waits for the work asked for. Returns whether the wait ended early, because another rank was lost.
    fn may_still_run(&self) -> bool {
        self.wait_for_stream().is_err() && self.watch().is_some_and(|watch| watch.look().is_err())
    }

    /// Ends the capture and returns its graph.
    fn captured(&self) -> Result<sys::CUgraph> {
        let mut graph = ptr::null_mut();
        // A spoiled capture can't be joined, but ended.
        let joined = self.join_side().and_then(|()| self.outside());
        // SAFETY: the stream is there; the graph is the caller's.
        let ended = self.call("cuStreamEndCapture", || unsafe {
            number!(sys::cuStreamEndCapture(self.stream.raw(), &raw mut graph))
        });
        self.capturing.store(false, Ordering::Relaxed);
        let retired = std::mem::take(&mut *lock(&self.retired));
        if !retired.is_empty() {
            // SAFETY: `free` was promised that them are not used any more.
            unsafe { self.release(retired) };
        }
        ended.and(joined).map(|()| graph)
    }
}

impl Driver for CudaDriver {
    fn name(&self) -> String {
        self.title.clone()
    }

    fn model(&self) -> String {
        self.model.clone()
    }

    fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    fn tensor_cores(&self) -> bool {
        self.tensor_cores
    }

    fn compiled(&self) -> usize {
        self.compiled
    }

    /// Plain memory, not from a pool: a graph contains raw addresses, and everything is allocated before the
    /// first step.
    fn alloc(&self, bytes: usize) -> Result<Ptr> {
        if bytes == 0 {
            return Ok(Ptr::NULL);
        }
        self.unless_capturing("an allocation")?;
        let (mut address, mut status) = (0, 0);
        let allocated = self.call("cuMemAlloc", || {
            // SAFETY: it writes the address.
            status = unsafe { number!(sys::cuMemAlloc_v2(&raw mut address, bytes)) };
            status
        });
        if status == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32 {
            return Err(towers_program::Error::OutOfMemory { bytes, device: self.title.clone() });
        }
        allocated?;
        let ptr = Ptr(address);
        // SAFETY: these are the bytes that were allocated just now; on failure no one else has their address.
        unsafe { self.clear(ptr, bytes).inspect_err(|_| self.release([ptr]))? };
        Ok(ptr)
    }

    unsafe fn free(&self, ptr: Ptr, _bytes: usize) {
        if ptr == Ptr::NULL {
            return;
        }
        if self.capturing.load(Ordering::Relaxed) {
            lock(&self.retired).push(ptr);
            return;
        }
        // SAFETY: as the caller says.
        unsafe { self.release([ptr]) };
    }

    unsafe fn write(&self, src: &[u8], dst: Ptr) -> Result<()> {
        self.unless_capturing("a copy from the host")?;
        self.make_current()?;
        let mut staging = lock(&self.staging);
        for (k, piece) in src.chunks(staging::BYTES).enumerate() {
            if let Some(watch) = self.watch() {
                let copied = staging.next_copied();
                watch::wait(|| self.passed("cuEventQuery", || events::query(copied)), &*watch)?;
            }
            // SAFETY: as the caller says.
            unsafe { staging.write(piece, dst.offset(k * staging::BYTES), &self.stream) }
                .map_err(|error| error.of_device(&self.title))?;
        }
        Ok(())
    }

    unsafe fn read(&self, src: Ptr, dst: &mut [u8]) -> Result<()> {
        if dst.is_empty() {
            return Ok(());
        }
        self.unless_capturing("a copy to the host")?;
        if self.watch().is_some() {
            // A copy to memory that is not page-locked may wait for the stream by itself, without the check.
            self.synchronize()?;
        }
        let to = dst.as_mut_ptr().cast::<c_void>();
        // SAFETY: the source as the caller says; the target is borrowed until the copy has ended.
        self.call("cuMemcpyDtoHAsync", || unsafe {
            number!(sys::cuMemcpyDtoHAsync_v2(to, src.0, dst.len(), self.stream.raw()))
        })?;
        self.synchronize()
    }

    unsafe fn clear(&self, dst: Ptr, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.outside()?;
        // SAFETY: as the caller says.
        self.call("cuMemsetD8Async", || unsafe {
            number!(sys::cuMemsetD8Async(dst.0, 0, bytes, self.stream.raw()))
        })
    }

    fn kernel(&self, name: &str) -> Result<Kernel> {
        self.functions.find(name).ok_or_else(|| self.refused(format!("there is no kernel `{name}`")))
    }

    unsafe fn launch(&self, kernel: Kernel, geometry: Geometry, args: &[Arg]) -> Result<()> {
        let (mut words, mut places) = ([0u64; MOST_ARGS], [ptr::null_mut::<c_void>(); MOST_ARGS]);
        let function = self.functions.get(kernel).filter(|_| args.len() <= MOST_ARGS);
        let Some((name, function)) = function else {
            return Err(self.refused(format!("no kernel for {kernel:?} with {} arguments", args.len())));
        };
        for ((arg, word), place) in args.iter().zip(&mut words).zip(&mut places) {
            *word = arg.word();
            *place = ptr::from_mut(word).cast();
        }
        self.outside()?;
        let Geometry { grid: [gx, gy, gz], block: [bx, by, bz], shared } = geometry;
        let places = places.as_mut_ptr();
        // SAFETY: the caller vouches for the arguments; the driver copies their words before it returns.
        let launched = self.call("cuLaunchKernel", || unsafe {
            let stream = self.stream.raw();
            number!(sys::cuLaunchKernel(
                function,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                shared,
                stream,
                places,
                ptr::null_mut()
            ))
        });
        launched.map_err(|error| match error {
            towers_program::Error::Device { device, message } => {
                let message = format!("kernel `{name}` on {geometry:?}: {message}");
                towers_program::Error::Device { device, message }
            }
            other => other,
        })
    }

    fn synchronize(&self) -> Result<()> {
        self.unless_capturing("waiting")?;
        self.wait_for_stream()?;
        self.watch().map_or(Ok(()), |watch| watch.intact())
    }

    /// In the mode that ignores other threads: an allocation of a neighbouring replica does not end this
    /// capture.
    fn begin_capture(&self) -> Result<()> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.join_side()?;
        // SAFETY: the stream is there.
        self.call("cuStreamBeginCapture", || unsafe {
            number!(sys::cuStreamBeginCapture_v2(self.stream.raw(), mode))
        })?;
        *lock(&self.works) = Works::default();
        self.capturing.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn begin_work(&self, after: &[usize]) -> Result<()> {
        self.begin_piece(after)
    }

    fn end_work(&self) -> Result<()> {
        self.end_piece()
    }

    fn leave_work(&self) -> Result<()> {
        self.outside()
    }

    fn is_spoiled(&self) -> Result<bool> {
        self.is_invalid()
    }

    fn end_capture(&self, keep: bool) -> Result<Graph> {
        let graph = match self.captured() {
            Ok(graph) => graph,
            Err(_) if !keep => return Ok(Graph(0)),
            Err(error) => return Err(error),
        };
        if keep {
            // They only make the graph faster: one whose priorities a driver refuses is as right.
            let _ = self.set_priorities(graph);
        }
        let mut ready = ptr::null_mut();
        let by_node: u64 =
            sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0.into();
        // SAFETY: the graph was captured just now; the instantiated graph does not need it any more.
        let instantiated = self.call("cuGraphInstantiate", || unsafe {
            let status = match keep {
                true => number!(sys::cuGraphInstantiateWithFlags(&raw mut ready, graph, by_node)),
                false => sys::CUresult::CUDA_SUCCESS as u32,
            };
            number!(sys::cuGraphDestroy(graph));
            status
        });
        instantiated?;
        if !keep {
            return Ok(Graph(0));
        }
        // SAFETY: it is ready, as was just said. To upload it now spares the first launch.
        self.call("cuGraphUpload", || unsafe { number!(sys::cuGraphUpload(ready, self.stream.raw())) })
            .inspect_err(|_| self.free_graph(Graph(ready as usize)))?;
        Ok(Graph(ready as usize))
    }

    fn launch_graph(&self, graph: &Graph) -> Result<()> {
        // SAFETY: a `Graph` is what `end_capture` returned, until `free_graph` takes it.
        self.call("cuGraphLaunch", || unsafe { number!(sys::cuGraphLaunch(raw(graph), self.stream.raw())) })
    }

    fn free_graph(&self, graph: Graph) {
        if graph.0 == 0 {
            return;
        }
        // As with memory: a graph that may still run stays.
        if self.may_still_run() {
            lock(&self.retired_graphs).push(graph);
            return;
        }
        // SAFETY: it came from `end_capture`, and it has no other user.
        let _ = self.call("cuGraphExecDestroy", || unsafe { number!(sys::cuGraphExecDestroy(raw(&graph))) });
    }

    unsafe fn copy(&self, from: &dyn Driver, src: Ptr, dst: Ptr, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.outside()?;
        let (here, there): (sys::CUcontext, sys::CUcontext) = (self.context().cast(), from.context().cast());
        let stream = self.stream.raw();
        // SAFETY: the ranges as the caller says; both contexts are retained as long as their drivers.
        unsafe {
            if here == there {
                return self.call("cuMemcpyDtoDAsync", || {
                    number!(sys::cuMemcpyDtoDAsync_v2(dst.0, src.0, bytes, stream))
                });
            }
            self.call("cuMemcpyPeerAsync", || {
                number!(sys::cuMemcpyPeerAsync(dst.0, here, src.0, there, bytes, stream))
            })
        }
    }

    /// A refusal is no error: then copies go through the host, or access was enabled before.
    fn reach(&self, other: &dyn Driver) {
        let there: sys::CUcontext = other.context().cast();
        if there != self.context().cast() {
            // SAFETY: the other context is retained.
            let _ = self
                .call("cuCtxEnablePeerAccess", || unsafe { number!(sys::cuCtxEnablePeerAccess(there, 0)) });
        }
    }

    fn create_event(&self) -> Result<Event> {
        self.make_current()?;
        let created = events::create().map_err(|error| error.of_device(&self.title))?;
        Ok(Event(created as usize))
    }

    fn record_event(&self, event: &Event) -> Result<()> {
        self.outside()?;
        // SAFETY: an `Event` is what `create_event` made, until `free_event` takes it.
        self.call("cuEventRecord", || unsafe {
            number!(sys::cuEventRecord(events::raw(event), self.stream.raw()))
        })
    }

    fn has_passed(&self, event: &Event) -> Result<bool> {
        self.passed("cuEventQuery", || events::query(events::raw(event)))
    }

    fn wait_event(&self, event: &Event) -> Result<()> {
        self.outside()?;
        // SAFETY: as for `record_event`; a stream may wait for another device's event.
        self.call("cuStreamWaitEvent", || unsafe {
            number!(sys::cuStreamWaitEvent(self.stream.raw(), events::raw(event), 0))
        })
    }

    fn free_event(&self, event: Event) {
        // SAFETY: as for `record_event`; the driver keeps it until nothing waits for it any more.
        let _ =
            self.call("cuEventDestroy", || unsafe { number!(sys::cuEventDestroy_v2(events::raw(&event))) });
    }

    fn set_watch(&self, watch: Option<Arc<dyn Watch>>) {
        *lock(&self.watch) = watch;
    }

    fn stream(&self) -> *mut c_void {
        self.stream.raw().cast()
    }

    fn side_stream(&self) -> *mut c_void {
        self.side.raw().cast()
    }

    fn fork(&self) -> Result<()> {
        self.fork_side()
    }

    fn join(&self) -> Result<()> {
        self.join_side()
    }

    fn context(&self) -> *mut c_void {
        self.context.raw().cast()
    }

    fn make_current(&self) -> Result<()> {
        self.context.make_current().map_err(|error| error.of_device(&self.title))
    }
}

fn raw(graph: &Graph) -> sys::CUgraphExec {
    graph.0 as sys::CUgraphExec
}

impl Drop for CudaDriver {
    fn drop(&mut self) {
        // The fields that follow need the context, and the end of all work that uses them. The calls have
        // reported their errors already.
        if self.capturing.load(Ordering::Relaxed) {
            let _ = self.end_capture(false);
        }
        let _ = self.synchronize();
        let graphs = std::mem::take(&mut *lock(&self.retired_graphs));
        graphs.into_iter().for_each(|graph| self.free_graph(graph));
        let retired = std::mem::take(&mut *lock(&self.retired));
        // SAFETY: their owners are gone.
        unsafe { self.release(retired) };
        let _ = self.make_current();
    }
}
