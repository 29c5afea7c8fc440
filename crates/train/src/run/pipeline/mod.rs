//! A replica as a pipeline: the cuts of its network, and the passes of a stage.

mod cuts;
mod schedule;

pub use cuts::pipeline_cuts;
pub(crate) use cuts::{check_cuts, cut_names, split};
pub(crate) use schedule::{evaluate, max_in_flight, train};
