//! The public behaviour of the crate, against folders and pictures good and bad.

// Every function here belongs to a test.
#![allow(clippy::unwrap_used)]

mod folder;
mod splits;
mod table;
