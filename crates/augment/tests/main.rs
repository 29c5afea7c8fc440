//! What a user of the crate sees, one topic a file. One program, since each is linked by itself; its tests share the processor's cores.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

mod batch;
mod compose;
mod generator;
mod golden;
mod listed;
mod loader;
mod pipeline;
