//! The data that a configuration names: their formats, and previews of them.

mod batch_picture;
mod describe;
mod formats;
mod load;
mod preview;
mod progress;
mod source;

pub use batch_picture::draw as draw_batch;
pub use describe::describe_data;
pub use load::{
    UNREADABLE, default_data_dir, load_data, load_test_data, load_training_images, samples, save_unreadable,
};
pub use preview::{Preview, augmented, preview};
pub use progress::Progress;
pub use source::DATA_SOURCE;
