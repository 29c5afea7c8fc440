//! The data of a run: loading, fingerprints, shares of batches, and previews.

mod batch_picture;
mod fingerprint;
mod formats;
mod image_set;
mod load;
mod preview;
mod progress;
mod share;

pub(crate) use batch_picture::draw as draw_batch;
pub use fingerprint::fingerprint;
pub(crate) use fingerprint::{compare, described, digest, digest_file, digest_seen};
pub use load::{UNREADABLE, load_data, load_test_data, save_unreadable};
pub(crate) use load::{samples, split};
pub use preview::{Preview, preview};
pub use progress::Progress;
pub(crate) use share::{Piece, Share, Source};
