//! The CPU backend of towers: SIMD convolutions on all threads, and an f64 reference.
