//! From an architecture to a network that runs: graph, memory plan, arenas, passes, summary.

mod arena;
mod bias;
mod graph;
mod passes;
mod plan;
mod summary;

pub use arena::{Arena, Slot};
pub use graph::{Graph, Mode, Value};
pub use passes::{Metrics, Network};
pub use summary::{Summary, SummaryRow};
