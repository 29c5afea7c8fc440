//! A run of ops that was captured once and is replayed with a single call.

use crate::Cuda;
use crate::driver::Graph;
use crate::memory::Captured;
use towers_program::{Error, ReplayArgs, Result};

/// A CUDA graph of a run of ops.
///
/// It contains memory addresses, so its user must keep every buffer of its ops: without them a replay is an error.
/// The ops must be the same every time, except for the numbers of a [`ReplayArgs`].
pub struct CapturedGraph {
    cuda: Cuda,
    graph: Option<Graph>,
    size: [usize; 2],
    memory: Captured,
}

impl Cuda {
    /// Begins to capture ops instead of running them. Every op must have run before on operands as large, so
    /// that nothing is allocated or chosen during the capture.
    ///
    /// # Errors
    /// If a capture is under way, or the driver refuses.
    pub fn begin_capture(&self) -> Result<()> {
        if self.is_capturing() {
            return Err(self.error("a graph capture is under way already"));
        }
        self.inner.driver.begin_capture()?;
        self.take_dependencies();
        self.take_captured();
        self.set_capturing(true);
        Ok(())
    }

    /// The graph of the ops since [`begin_capture`](Cuda::begin_capture).
    ///
    /// # Errors
    /// If the driver could not capture one of the ops.
    pub fn end_capture(&self) -> Result<CapturedGraph> {
        self.set_capturing(false);
        let graph = self.inner.driver.end_capture(true)?;
        let (size, memory) = (self.take_dependencies(), self.take_captured());
        Ok(CapturedGraph { cuda: self.clone(), graph: Some(graph), size, memory })
    }

    /// Discards a capture in which an op failed.
    pub fn abandon_capture(&self) {
        self.set_capturing(false);
        // A discarded graph may be incomplete, and the op's own error is the one to report.
        let _ = self.inner.driver.end_capture(false);
    }

    /// Captures `work` without running it.
    pub(crate) fn capture(&self, work: &mut dyn FnMut() -> Result<(), String>) -> Result<CapturedGraph> {
        self.begin_capture()?;
        let Err(why) = work() else { return self.end_capture() };
        self.abandon_capture();
        Err(Error::Device { device: "cuda".into(), message: format!("an op can't be captured: {why}") })
    }
}

impl towers_program::CapturedGraph for CapturedGraph {
    fn size(&self) -> [usize; 2] {
        self.size
    }

    fn replay(&self, args: &ReplayArgs) -> Result<()> {
        let Some(_held) = self.memory.hold() else {
            let message = "a captured graph can't be replayed: memory that it works on was freed";
            return Err(self.cuda.error(message));
        };
        self.cuda.set_step_state(args)?;
        // Memory that is freed from now on waits for the work that is queued here.
        self.graph.as_ref().map_or(Ok(()), |graph| self.cuda.driver().launch_graph(graph))
    }
}

impl core::fmt::Debug for CapturedGraph {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let [works, chain] = self.size;
        write!(
            f,
            "a graph of {works} pieces of work, {chain} of them one after the other, on {:?}",
            self.cuda
        )
    }
}

impl Drop for CapturedGraph {
    fn drop(&mut self) {
        if let Some(graph) = self.graph.take() {
            self.cuda.driver().free_graph(graph);
        }
    }
}
