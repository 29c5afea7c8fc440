//! The emulated driver: the kernels, compiled by the host's C++ compiler, run on the CPU.
//!
//! It is stricter than a GPU. Races and accesses outside of allocations are errors. Arguments are compared with
//! the kernel's parameters. Shared memory begins as NaN. The order of threads changes from launch to launch. Every
//! launch is complete when the call returns, and reports its own error. See "The emulation" in docs/testing.md.

mod compiler;
mod error;
mod memory;
mod object;
mod order;
#[cfg(test)]
mod tests;

use super::works::Works;
use super::{Arg, Driver, Event, Geometry, Graph, Kernel, Ptr, Watch};
use crate::Options;
use crate::format::Format;
use crate::lock::lock;
use crate::source::Source;
use core::fmt;
use error::{NAME, error};
use memory::Memory;
use object::Object;
use order::Order;
use std::sync::{Arc, Mutex};
use towers_program::Result;

/// Few and odd, so that grid loops run several times and end unevenly.
const MULTIPROCESSORS: u32 = 3;

/// A GPU in host memory.
pub(crate) struct EmulatedDriver {
    /// Whether races in kernels are found.
    races: bool,
    format: Format,
    sources: Vec<Source>,
    state: Mutex<State>,
}

/// The state behind one lock, so that work is in the order of the calls.
struct State {
    memory: Memory,
    order: Order,
    kernels: Vec<Loaded>,
    /// Graphs by their number. A freed one leaves a hole.
    graphs: Vec<Option<Vec<Node>>>,
    capture: Option<Capture>,
    /// Whether the second stream was forked, and not joined since.
    forked: bool,
}

/// A launch of a kernel.
#[derive(Clone)]
struct Loaded {
    name: &'static str,
    object: Arc<Object>,
    /// Its index in the object.
    index: u32,
}

/// A capture under way.
#[derive(Default)]
struct Capture {
    nodes: Vec<Node>,
    /// The dependencies of the next node.
    now: Vec<usize>,
    works: Works<usize>,
    /// The first call that is not allowed in a capture. As on a GPU, it spoils the capture.
    spoiled: Option<String>,
}

/// A node, and its dependencies.
#[derive(Clone, Debug)]
struct Node {
    work: Work,
    after: Vec<usize>,
}

/// Something to do.
#[derive(Clone, Debug)]
enum Work {
    Launch {
        kernel: Kernel,
        geometry: Geometry,
        args: Vec<Arg>,
    },
    Clear {
        dst: Ptr,
        bytes: usize,
    },
    Host(HostWork),
    /// The fork and the join of the second stream.
    Fork,
    Join,
}

/// Work of the host in a graph.
#[derive(Clone)]
pub(crate) struct HostWork(pub(crate) Arc<dyn Fn() -> Result<()> + Send + Sync>);

impl fmt::Debug for HostWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostWork")
    }
}

impl EmulatedDriver {
    /// With the kernels of these files, whose races are errors.
    pub(crate) fn new(options: &Options, sources: &[Source]) -> Result<EmulatedDriver> {
        EmulatedDriver::in_order(options, sources, Order::from_environment()?)
    }

    /// The same faster, without looking for races.
    pub(crate) fn without_races(options: &Options, sources: &[Source]) -> Result<EmulatedDriver> {
        Ok(EmulatedDriver { races: false, ..EmulatedDriver::new(options, sources)? })
    }

    /// The same with an order of threads.
    fn in_order(options: &Options, sources: &[Source], order: Order) -> Result<EmulatedDriver> {
        compiler::version()?;
        Ok(EmulatedDriver {
            format: Format::of_activations(options.precision),
            races: true,
            sources: sources.to_vec(),
            state: Mutex::new(State {
                memory: Memory::default(),
                order,
                kernels: Vec::new(),
                graphs: Vec::new(),
                capture: None,
                forked: false,
            }),
        })
    }
}

impl Capture {
    fn push(&mut self, work: Work) {
        if let Some(all) = self.works.leave() {
            self.now = all;
        }
        let after = core::mem::replace(&mut self.now, vec![self.nodes.len()]);
        self.nodes.push(Node { work, after });
    }
}

impl State {
    /// An error during a capture, which it spoils.
    fn refuse_in_capture(&mut self, what: &str) -> Result<()> {
        let Some(capture) = &mut self.capture else { return Ok(()) };
        let message = format!("{what} during a capture");
        capture.spoiled.get_or_insert_with(|| message.clone());
        Err(error(message))
    }

    /// Captures work during a capture, else does it.
    fn ask(&mut self, work: Work) -> Result<()> {
        self.check(&work)?;
        match &mut self.capture {
            Some(capture) => capture.push(work),
            None => self.carry_out(&work)?,
        }
        Ok(())
    }

    /// Makes the first stream wait for the second one. Without a capture this does nothing.
    fn join(&mut self) -> Result<()> {
        if core::mem::take(&mut self.forked) { self.ask(Work::Join) } else { Ok(()) }
    }

    /// Whether work can be done: its kernel, geometry, arguments and memory are valid.
    fn check(&self, work: &Work) -> Result<()> {
        match work {
            Work::Fork | Work::Join | Work::Host(_) => Ok(()),
            Work::Clear { dst, bytes } => self.memory.check_range("a clear", *dst, *bytes),
            Work::Launch { kernel, geometry, args } => {
                let Loaded { name, object, index } = &self.kernels[kernel.0];
                object::check_geometry(name, geometry)?;
                object.check_args(name, *index, args)?;
                for (place, arg) in args.iter().enumerate() {
                    if let Arg::Ptr(ptr) = arg {
                        self.memory.check_pointer(name, place, *ptr)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn carry_out(&mut self, work: &Work) -> Result<()> {
        match work {
            // Work of the host is done without the lock.
            Work::Fork | Work::Join | Work::Host(_) => Ok(()),
            Work::Clear { dst, bytes } => {
                // SAFETY: `check` found the range in an allocation.
                unsafe { core::ptr::write_bytes(dst.0 as *mut u8, 0, *bytes) };
                Ok(())
            }
            Work::Launch { kernel, geometry, args } => {
                let Loaded { name, object, index } = &self.kernels[kernel.0];
                let allocations = self.memory.allocations();
                // SAFETY: `check` compared the arguments with the parameters.
                unsafe { object.launch(name, *index, geometry, args, self.order.next(), &allocations) }
            }
        }
    }
}

impl Driver for EmulatedDriver {
    fn name(&self) -> String {
        NAME.into()
    }

    fn multiprocessors(&self) -> u32 {
        MULTIPROCESSORS
    }

    fn tensor_cores(&self) -> bool {
        true
    }

    fn alloc(&self, bytes: usize) -> Result<Ptr> {
        let mut state = lock(&self.state);
        state.refuse_in_capture("memory was allocated")?;
        state.memory.alloc(bytes)
    }

    /// Memory can be freed during a capture too. But a capture that uses it is spoiled: a GPU would wait, and
    /// replays would be wrong.
    unsafe fn free(&self, ptr: Ptr, bytes: usize) {
        let mut state = lock(&self.state);
        let State { memory, capture, .. } = &mut *state;
        if let Some(capture) = capture {
            let named = capture.nodes.iter().any(|node| node.work.names(ptr, bytes));
            if named && capture.spoiled.is_none() {
                capture.spoiled = Some(format!("{bytes} bytes were freed that the capture names"));
            }
        }
        memory.free(ptr, bytes);
    }

    unsafe fn write(&self, src: &[u8], dst: Ptr) -> Result<()> {
        let mut state = lock(&self.state);
        state.refuse_in_capture("the host wrote")?;
        state.memory.write(src, dst)
    }

    unsafe fn read(&self, src: Ptr, dst: &mut [u8]) -> Result<()> {
        let mut state = lock(&self.state);
        state.refuse_in_capture("the host read")?;
        state.memory.read(src, dst)
    }

    unsafe fn clear(&self, dst: Ptr, bytes: usize) -> Result<()> {
        lock(&self.state).ask(Work::Clear { dst, bytes })
    }

    fn kernel(&self, name: &str) -> Result<Kernel> {
        let mut state = lock(&self.state);
        if let Some(known) = state.kernels.iter().position(|loaded| loaded.name == name) {
            return Ok(Kernel(known));
        }
        state.refuse_in_capture(&format!("kernel {name} was loaded, which must have run before,"))?;
        let find = |source: &Source| source.kernels.iter().position(|kernel| *kernel == name);
        let (source, index) = self
            .sources
            .iter()
            .find_map(|source| Some((source, find(source)?)))
            .ok_or_else(|| error(format!("there is no kernel {name}: is it in its file's SOURCE?")))?;
        let object = Object::of(source, self.format, self.races)?;
        state.kernels.push(Loaded { name: source.kernels[index], object, index: index as u32 });
        Ok(Kernel(state.kernels.len() - 1))
    }

    unsafe fn launch(&self, kernel: Kernel, geometry: Geometry, args: &[Arg]) -> Result<()> {
        lock(&self.state).ask(Work::Launch { kernel, geometry, args: args.to_vec() })
    }

    fn synchronize(&self) -> Result<()> {
        let mut state = lock(&self.state);
        state.refuse_in_capture("the host waited")?;
        state.memory.check()
    }

    fn begin_capture(&self) -> Result<()> {
        let mut state = lock(&self.state);
        state.refuse_in_capture("another capture began")?;
        state.join()?;
        state.capture = Some(Capture::default());
        Ok(())
    }

    fn begin_work(&self, after: &[usize]) -> Result<()> {
        let mut state = lock(&self.state);
        let capture = state.capture.as_mut().ok_or_else(|| error("no capture is under way"))?;
        let Capture { now, works, .. } = capture;
        *now = works.begin(after, || Ok(now.clone()))?;
        Ok(())
    }

    fn end_work(&self) -> Result<()> {
        let mut state = lock(&self.state);
        let capture = state.capture.as_mut().ok_or_else(|| error("no capture is under way"))?;
        capture.works.end(capture.now.clone());
        Ok(())
    }

    fn end_capture(&self, keep: bool) -> Result<Graph> {
        let mut state = lock(&self.state);
        state.join()?;
        let capture = state.capture.take().ok_or_else(|| error("no capture is under way"))?;
        if let Some(spoiled) = capture.spoiled.filter(|_| keep) {
            return Err(error(format!("the capture is of no use: {spoiled}")));
        }
        state.graphs.push(keep.then_some(capture.nodes));
        Ok(Graph(state.graphs.len() - 1))
    }

    fn launch_graph(&self, graph: &Graph) -> Result<()> {
        let mut state = lock(&self.state);
        state.refuse_in_capture("a graph was launched")?;
        let nodes = state.graphs[graph.0].clone().ok_or_else(|| error("the graph was thrown away"))?;
        let walk = state.order.walk(&nodes, |node| &node.after);
        drop(state);
        walk.into_iter().try_for_each(|at| match &nodes[at].work {
            // Without the lock: it uses this driver.
            Work::Host(HostWork(work)) => work(),
            work => {
                let mut state = lock(&self.state);
                state.check(work)?;
                state.carry_out(work)
            }
        })
    }

    fn free_graph(&self, graph: Graph) {
        lock(&self.state).graphs[graph.0] = None;
    }

    fn capture_host_work(&self, work: HostWork) -> bool {
        let mut state = lock(&self.state);
        state.capture.as_mut().map(|capture| capture.push(Work::Host(work))).is_some()
    }

    unsafe fn lend(&self, src: Ptr, dst: &mut [u8]) -> Result<()> {
        lock(&self.state).memory.read(src, dst)
    }

    /// Through the host: each driver checks its own memory.
    unsafe fn copy(&self, from: &dyn Driver, src: Ptr, dst: Ptr, bytes: usize) -> Result<()> {
        let mut copied = vec![0; bytes];
        // SAFETY: as the caller says.
        unsafe {
            from.lend(src, &mut copied)?;
            self.write(&copied, dst)
        }
    }

    /// All work is complete when its call returns, so an event has always passed.
    fn create_event(&self) -> Result<Event> {
        Ok(Event(0))
    }

    fn record_event(&self, _event: &Event) -> Result<()> {
        lock(&self.state).refuse_in_capture("an event was recorded")
    }

    fn has_passed(&self, _event: &Event) -> Result<bool> {
        Ok(true)
    }

    fn wait_event(&self, _event: &Event) -> Result<()> {
        lock(&self.state).refuse_in_capture("an event was waited for")
    }

    fn free_event(&self, _event: Event) {}

    fn set_watch(&self, _watch: Option<Arc<dyn Watch>>) {}

    fn stream(&self) -> *mut core::ffi::c_void {
        core::ptr::null_mut()
    }

    fn side_stream(&self) -> *mut core::ffi::c_void {
        core::ptr::null_mut()
    }

    fn fork(&self) -> Result<()> {
        let mut state = lock(&self.state);
        state.forked = true;
        state.ask(Work::Fork)
    }

    fn join(&self) -> Result<()> {
        lock(&self.state).join()
    }

    fn context(&self) -> *mut core::ffi::c_void {
        core::ptr::null_mut()
    }

    fn make_current(&self) -> Result<()> {
        Ok(())
    }
}

impl Work {
    /// Whether it uses memory in that range.
    fn names(&self, ptr: Ptr, bytes: usize) -> bool {
        let inside = |named: &Ptr| (ptr.0..ptr.0 + bytes as u64).contains(&named.0);
        match self {
            Work::Fork | Work::Join | Work::Host(_) => false,
            Work::Clear { dst, .. } => inside(dst),
            Work::Launch { args, .. } => {
                args.iter().any(|arg| matches!(arg, Arg::Ptr(named) if inside(named)))
            }
        }
    }
}
