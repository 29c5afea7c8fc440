//! Test support for the towers crates: gradient checks, golden files, the device matrix.
