//! The public interface within one process, one topic a file. One test program: each is linked by itself.

mod across;
mod cluster;
mod gpus;
mod in_order;
mod local;
mod stages;
