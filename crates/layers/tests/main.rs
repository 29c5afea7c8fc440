//! The public interface, one topic a file. One test program: each is linked by itself.

mod across;
mod branches;
mod folding;
mod grad_cam;
mod gradients;
mod keras;
mod network;
mod prepared;
mod refusals;
mod sums;
