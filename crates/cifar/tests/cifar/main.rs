//! The public behaviour of the crate, against files, archives and servers good and bad.

// Every function here belongs to a test.
#![allow(clippy::unwrap_used)]

mod fetch;
mod find;
mod hostile;
mod mnist;
mod samples;
mod server;
mod synthetic;
