//! The results of the networks, one topic a file. One test program: each is linked by itself.

mod architecture;
mod golden;
mod networks;
mod threads;
