//! Every op of a backend against the f64 reference: over many shapes and layouts, in every number format, and with the
//! same bits on every device of a kind.
//!
//! A backend's test is a [`Subject`], the devices under test, and the macro [`suite!`], which makes a `#[test]` of every
//! function of the topics below. So a new case runs on all backends, and a new backend needs ten lines.
//!
//! ```
//! use towers_conformance::Subject;
//! use towers_tensor_cpu::Cpu;
//!
//! fn subject() -> Subject {
//!     Subject::new([1, 2, 3].map(|threads| (format!("{threads} threads"), Cpu::new(threads))))
//! }
//!
//! towers_conformance::suite!(subject());
//! # fn main() {}
//! ```
//!
//! `towers selftest` runs the [checks] with the same cases every time. Random cases are for tests alone: they need the
//! feature `random`.
#![forbid(unsafe_code)]

mod bench;
mod case;
mod check;
mod operand;
mod output;
mod shown;
mod subject;

pub mod channels;
pub mod convolution;
pub mod dense;
pub mod depthwise;
pub mod dropout;
pub mod elementwise;
pub mod images;
pub mod merge;
pub mod meter;
pub mod normalization;
pub mod optimizers;
pub mod pixel_norm;
pub mod pooling;
pub mod prelu;
pub mod refusals;
pub mod replicas;
pub mod sequences;
pub mod softmax;
pub mod spatial;
pub mod transfers;

pub use bench::{Bench, Buffer, Ops, Started};
pub use case::Case;
pub use check::{Check, Checked, checks};
pub use operand::{ALONE, Operand, Placement, SLICE, WIDE_SLICE, numbers};
pub use output::{Output, Source};
pub use subject::Subject;

/// A `#[test]` for every function of the suite, each on a subject that the expression gives.
#[cfg(feature = "random")]
#[macro_export]
macro_rules! suite {
    ($subject:expr) => {
        $crate::topics! { tests ($subject) }
    };
}

/// Calls a macro with the functions of each topic: those with the same cases every time, then those with random ones.
#[doc(hidden)]
#[macro_export]
macro_rules! topics {
    ($macro:ident ($($argument:tt)*)) => {
        $crate::$macro! { ($($argument)*)
            channels: parts_of_real_networks, any_part;
            convolution: layers_of_real_networks groups_and_dilation an_empty_batch nan_stays, any_convolution;
            dense: layers_of_real_networks an_empty_batch, any_dense_layer;
            depthwise: layers_of_real_networks an_empty_batch nan_stays, any_convolution;
            dropout: a_slice_of_the_batch_has_its_own_part_of_the_mask channels_and_samples_stay_together
                the_rate_is_kept, any_mask;
            elementwise: large_tensors nan_stays, any_shape;
            images: shifted_and_flipped a_draw_that_makes_no_sense_is_seen, any_batch;
            merge: layers_of_real_networks, any_shape;
            meter: sums_keep_small_losses a_loss_that_is_not_finite_stays a_device_that_runs_ahead_halts,;
            normalization: layers_of_real_networks a_large_mean_costs_nothing an_empty_batch constant_channels
                outliers_in_front_cost_nothing corners_that_stand_out_cost_nothing
                a_corner_of_a_group_costs_nothing nan_stays squares_that_overflow_show, any_shape;
            optimizers: clipping ascents matrices no_momentum_needs_no_velocity settings_of_recipes, any_convention any_average;
            pixel_norm: layers_of_real_networks a_large_mean_costs_nothing a_channel_that_stands_out_costs_nothing
                an_empty_batch nan_stays, any_channels any_neighbours;
            pooling: layers_of_real_networks an_empty_batch nan_wins_a_maximum, any_window;
            prelu: layers_of_real_networks, any_shape;
            refusals: transfers_out_of_bounds shapes_and_layouts absurd_sizes programs_and_their_memory optimizer_arenas
                image_operands,;
            replicas: parts_are_the_whole layers_of_real_networks a_large_mean_costs_nothing an_empty_batch, any_parts;
            sequences: the_order_of_ops_changes_no_bit finished_gradients_are_those_of_the_last_step
                parameters_that_change_are_seen batches_of_changing_size,;
            softmax: enormous_logits_do_not_overflow logits_that_are_no_numbers a_label_outside_of_the_classes_gives_nan
                an_empty_batch a_large_batch, any_shape;
            spatial: layers_of_real_networks an_empty_batch, any_padding any_factor;
            transfers: fresh_memory_is_zero what_goes_up_comes_down special_numbers_are_kept,;
        }
    };
}

#[cfg(feature = "random")]
#[doc(hidden)]
#[macro_export]
macro_rules! tests {
    (($subject:expr) $($topic:ident: $($fixed:ident)*, $($random:ident)*;)+) => {
        $(
            mod $topic {
                #[allow(unused_imports, reason = "the expression may name things by their full path")]
                use super::*;
                $(
                    #[test]
                    fn $fixed() {
                        $crate::$topic::$fixed(&$subject);
                    }
                )*
                $(
                    #[test]
                    fn $random() {
                        $crate::$topic::$random(&$subject);
                    }
                )*
            }
        )+
    };
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
