//! What a user of the crate sees, one topic a file. One program, since each is linked by itself; its tests share the processor's cores.

mod golden;
mod text;
mod values;
