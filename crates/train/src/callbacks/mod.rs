//! The options of Keras' callbacks as a configuration holds them; those that watch stand in [`observers`](crate::observers).

mod early_stop;
mod format;
mod logs;
mod metric;
mod model_checkpoint;
mod pattern;
mod plateau;
mod spec;

pub use early_stop::EarlyStop;
pub(crate) use format::repr;
pub use logs::{CsvLogOptions, TensorBoardOptions};
pub use metric::mode;
pub(crate) use metric::{Monitor, check as check_metric};
pub use model_checkpoint::{ModelCheckpointOptions, SaveFreq};
pub(crate) use pattern::{Figures, Pattern};
pub use plateau::{Plateau, ReduceLrOnPlateau};
