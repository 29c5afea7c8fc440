//! A run: its preparation, the training loop of each replica, and a training step.

pub(crate) mod average;
mod device_check;
mod division;
mod early_warnings;
mod first_values;
mod fit;
mod fitting_batch;
mod host_memory;
mod long_run;
mod measured;
mod memory;
mod meter;
mod observer_group;
mod partial_sums;
mod passes;
pub(crate) mod pipeline;
mod prepared_run;
#[cfg(test)]
mod recipe_steps;
mod run_data;
mod speed;
mod step;
mod stop_flag;
mod throughput;
mod train;
mod training;
mod whitening;
mod worker;

pub use fit::{End, Outcome};
pub use fitting_batch::{FittingBatch, fitting_batch};
pub use meter::{Meter, Totals};
pub(crate) use prepared_run::PreparedRun;
pub use speed::median;
pub use step::{StepOptions, ascend, gradients, train_step, update};
pub use stop_flag::StopFlag;
pub use training::Training;
pub(crate) use worker::arithmetic;
