//! A replica as a pipeline: the cuts of its network, and the passes of a stage.

mod schedule;
mod split;

pub(crate) use schedule::{evaluate, max_in_flight, train};
pub(crate) use split::split;
