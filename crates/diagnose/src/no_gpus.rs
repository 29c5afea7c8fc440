//! In place of `gpus.rs`, in a build without the feature `cuda`: there are no GPUs.

use std::path::PathBuf;
use towers_program::Device;

pub(crate) fn cache_folder() -> Option<PathBuf> {
    None
}

pub(crate) fn is_emulated(_: &Device) -> Option<bool> {
    None
}

pub(crate) fn software(_: &Device) -> Option<String> {
    None
}

pub(crate) fn facts(_: &Device) -> Vec<String> {
    Vec::new()
}

pub(crate) fn algorithms(_: &Device) -> Vec<String> {
    Vec::new()
}
