//! The dependencies of a capture's next node. The driver keeps them with the stream, and we set them.

use super::CudaDriver;
use crate::lock::lock;
use crate::number::number;
use cudarc::driver::sys;
use std::ptr;
use std::sync::atomic::Ordering;
use towers_program::Result;

/// A dependency of the next node.
type Tip = sys::CUgraphNode;

impl CudaDriver {
    pub(super) fn begin_piece(&self, after: &[usize]) -> Result<()> {
        let tips = lock(&self.works).begin(after, || self.tips())?;
        self.set_tips(tips)
    }

    pub(super) fn end_piece(&self) -> Result<()> {
        lock(&self.works).end(self.tips()?);
        Ok(())
    }

    /// Called before all work on the stream. Outside of pieces of work it depends on all captured work.
    pub(super) fn outside(&self) -> Result<()> {
        if !self.capturing.load(Ordering::Relaxed) {
            return Ok(());
        }
        let tips = lock(&self.works).leave();
        tips.map_or(Ok(()), |tips| self.set_tips(tips))
    }

    fn tips(&self) -> Result<Vec<Tip>> {
        let (status, nodes, count) = self.capture_info()?;
        if status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE as u32 || nodes.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: until the next call the driver keeps as many nodes there.
        Ok(unsafe { core::slice::from_raw_parts(nodes, count) }.to_vec())
    }

    pub(super) fn is_invalid(&self) -> Result<bool> {
        let (status, ..) = self.capture_info()?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE as u32)
    }

    /// The state of the capture, with the stream's dependencies and their number.
    fn capture_info(&self) -> Result<(u32, *const Tip, usize)> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as u32;
        // The edge data of libraries is read, since the driver would refuse the query otherwise, and ignored:
        // work begins after all of its dependencies.
        let (mut nodes, mut edges, mut count) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the stream exists; the outputs for the id and the graph may be null.
        self.call("cuStreamGetCaptureInfo", || unsafe {
            let (id, graph) = (ptr::null_mut(), ptr::null_mut());
            let stream = self.stream.raw();
            number!(sys::cuStreamGetCaptureInfo_v3(
                stream,
                (&raw mut status).cast(),
                id,
                graph,
                &raw mut nodes,
                &raw mut edges,
                &raw mut count,
            ))
        })?;
        Ok((status, nodes, count))
    }

    fn set_tips(&self, mut tips: Vec<Tip>) -> Result<()> {
        let set = sys::CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES as u32;
        // SAFETY: the stream is there, and the nodes are of its capture. The driver copies them. Edges need not be described.
        self.call("cuStreamUpdateCaptureDependencies", || unsafe {
            number!(sys::cuStreamUpdateCaptureDependencies_v2(
                self.stream.raw(),
                tips.as_mut_ptr(),
                ptr::null(),
                tips.len(),
                set,
            ))
        })
    }
}
