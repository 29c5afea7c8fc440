//! The kernels' sources, and the kernels in each.

pub use crate::source::{FORMATS, HEADERS, PRELUDE, Source};

use crate::{compute_copies, engine, ops, step_state};

/// Every file, one topic each.
pub const SOURCES: &[Source] = &[
    step_state::SOURCE,
    ops::images::SOURCE,
    ops::elementwise::SOURCE,
    ops::channels::SOURCE,
    engine::product::SOURCE,
    engine::sliding::SOURCE,
    engine::small_window::SOURCE,
    engine::grouped::SOURCE,
    compute_copies::SOURCE,
    ops::depthwise::SOURCE,
    ops::rows::SOURCE,
    ops::normalization::SOURCE,
    ops::group_norm::SOURCE,
    ops::merge::SOURCE,
    ops::pixel_norm::SOURCE,
    ops::pooling::SOURCE,
    ops::prelu::SOURCE,
    ops::spatial::SOURCE,
    ops::softmax::SOURCE,
    ops::dropout::SOURCE,
    ops::optimizer::SOURCE,
    ops::optimizer::RULES,
];
