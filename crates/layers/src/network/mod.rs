//! From an architecture to a network that runs: graph, memory plan, arenas, passes, profile, summary.

mod arena;
mod bias;
mod graph;
mod passes;
mod plan;
mod profile;
mod summary;

pub use arena::{Arena, Slot};
pub use graph::{Graph, Mode, Value};
pub use passes::{Metrics, Network};
pub use profile::{Part, Work};
pub use summary::{Summary, SummaryRow};
