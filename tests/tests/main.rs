//! Whole runs, one topic per file. They are one program, since each program is linked separately; its tests
//! share the processor's cores.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

mod augmentation;
mod bf16;
mod callbacks;
mod cuda;
mod device_weights;
mod faults;
mod fine_tuning;
mod image_sizes;
mod images;
mod keras;
mod metrics;
mod mlflow;
mod outside;
mod own_model;
mod pipeline;
mod programs;
mod random_runs;
mod resnet18;
mod resume;
mod sam;
mod sync_batch_norm;
mod towers;
mod unbalanced;
mod virtual_replicas;
mod weights;
