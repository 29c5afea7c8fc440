//! From an architecture to a network that runs: graph, programs, arenas, passes, profile, stages, summary.

mod arena;
mod comparison;
mod exchange;
mod grad_cam;
mod graph;
mod instance;
mod lowering;
mod micro_batch;
mod passes;
mod profile;
mod split;
mod step;
mod summary;

pub use arena::{Arena, Slot};
pub use comparison::{Comparison, Tolerance};
pub use exchange::Exchange;
pub use grad_cam::GradCam;
pub use graph::{Graph, Mode, Value, keras_name};
pub use instance::Network;
pub use passes::Metrics;
pub use profile::{Traced, Work};
pub use split::Cut;
pub use step::Step;
pub use summary::{Summary, SummaryRow};
