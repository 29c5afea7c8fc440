//! A run of ops that was written down once and is done again at the cost of a single call.

use crate::Cuda;
use crate::driver::Graph;
use program::{Error, Result, Turn};

/// A run of ops, ready to be done again.
///
/// It names memory by its address: whoever replays it keeps every buffer that its ops worked on. The ops must be the same
/// every time but for the numbers of a [`Turn`].
#[derive(Debug)]
pub struct Recording {
    cuda: Cuda,
    graph: Option<Graph>,
    size: [usize; 2],
}

impl Cuda {
    /// Begins to write ops down; they are not carried out. Every op must have run before on operands as large, so that
    /// nothing need be allocated or chosen.
    ///
    /// # Errors
    /// If a recording is under way, or the driver refuses.
    pub fn begin_recording(&self) -> Result<()> {
        if self.is_recording() {
            return Err(self.error("a recording is under way already"));
        }
        self.inner.driver.begin_capture()?;
        self.forget_strands();
        self.set_recording(true);
        Ok(())
    }

    /// What was written down since [`begin_recording`](Cuda::begin_recording).
    ///
    /// # Errors
    /// If the driver could not write down one of the ops.
    pub fn end_recording(&self) -> Result<Recording> {
        self.set_recording(false);
        let graph = self.inner.driver.end_capture(true)?;
        Ok(Recording { cuda: self.clone(), graph: Some(graph), size: self.forget_strands() })
    }

    /// Ends a recording in which an op failed, and forgets it.
    pub fn abandon_recording(&self) {
        self.set_recording(false);
        // What is thrown away need not be whole; the op's own error is the one to report.
        let _ = self.inner.driver.end_capture(false);
    }

    /// Has `work` written down and not done.
    pub(crate) fn write_down(&self, work: &mut dyn FnMut() -> Result<(), String>) -> Result<Recording> {
        self.begin_recording()?;
        let Err(why) = work() else { return self.end_recording() };
        self.abandon_recording();
        Err(Error::Device { device: "cuda".into(), message: format!("an op can't be recorded: {why}") })
    }
}

impl program::Recording for Recording {
    fn size(&self) -> [usize; 2] {
        self.size
    }

    fn replay(&self, turn: &Turn) -> Result<()> {
        self.cuda.set_turn(turn)?;
        self.repeat()
    }
}

impl Recording {
    /// Does the ops again with the numbers that they had last.
    pub(crate) fn repeat(&self) -> Result<()> {
        self.graph.as_ref().map_or(Ok(()), |graph| self.cuda.driver().launch_graph(graph))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(graph) = self.graph.take() {
            self.cuda.driver().free_graph(graph);
        }
    }
}
