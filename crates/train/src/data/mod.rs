//! The data of a run: loading, fingerprints, shares of batches, and previews.

mod fingerprint;
mod hold_back;
mod image_set;
mod labelling;
mod share;

pub use fingerprint::fingerprint;
pub(crate) use fingerprint::{compare, described, digest_seen};
pub(crate) use hold_back::split;
pub(crate) use labelling::{Labelling, MultiHot};
pub(crate) use share::{Piece, Share, Source};
