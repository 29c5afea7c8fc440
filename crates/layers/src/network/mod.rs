//! From an architecture to a network that runs: graph, memory plan, arenas, passes, profile, stages, summary.

mod across;
mod arena;
mod graph;
mod lane;
mod normalized;
mod passes;
mod plan;
mod profile;
mod split;
mod stage;
mod step;
mod sum;
mod summary;

pub use arena::{Arena, Slot};
pub use graph::{Graph, Mode, Value};
pub use passes::{Metrics, Network};
pub use profile::{Part, Work};
pub use split::Cut;
pub use step::Step;
pub use summary::{Summary, SummaryRow};
