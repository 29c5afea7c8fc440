//! Named tensors and JSON state on disk: atomic, verified, resumable.
