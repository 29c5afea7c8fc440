//! What a user of the crate sees of one process, one topic a file. One program, since each is linked by itself; its tests share the processor's cores.

mod across;
mod cluster;
mod gpus;
mod in_order;
mod local;
mod stages;
