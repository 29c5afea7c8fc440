//! End-to-end tests of towers; see `tests/`.
