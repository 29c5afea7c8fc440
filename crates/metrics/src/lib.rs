//! Metrics of classifiers, as counts that add up exactly.
//!
//! A [`Metric`] counts samples by their scores and labels. A [`Tally`] keeps the counts of several metrics. Counts of
//! several batches, threads or machines [add up](Tally::add_counts), so the result does not depend on how the samples
//! were divided. [`named`] finds a metric by its name:
//!
//! | name | metric | defined as in |
//! | --- | --- | --- |
//! | `topK_acc`, such as `top5_acc` | the share of the samples whose class has one of the K best scores | Keras' `TopKCategoricalAccuracy` |
//! | `balanced_acc` | the mean recall of the classes | scikit-learn's `balanced_accuracy_score` |
//! | `precision`, `recall`, `f1` | the mean over the classes ("macro") | scikit-learn's `precision_recall_fscore_support` |
//! | `mcc` | Matthews' correlation coefficient | scikit-learn's `matthews_corrcoef` |
//! | `auc` | the area under the ROC curve, for two classes | Keras' `AUC` |
//! | `exact_acc` | the share of the samples with all their classes right, for several labels a sample | scikit-learn's `accuracy_score` |
//!
//! Where a sample has any number of classes, `precision`, `recall`, `f1`, `auc` and `exact_acc` are defined:
//! [`Tally::multi_label`].
//!
//! [`Values`] is a list of named numbers, such as the metrics of an epoch. [`about`] knows the title of a metric and the
//! direction in which it improves.
#![forbid(unsafe_code)]

mod about;
mod auc;
mod error;
mod exact;
mod list;
mod macro_average;
mod mcc;
mod metric;
mod tally;
mod top_k;
mod values;

pub use about::{About, Group, about, canonical, grouped, keras_name};
pub use error::{Error, Result};
pub use list::{NAMES, named, names};
pub use metric::{Metric, MultiLabel, Unit};
pub use tally::Tally;
pub use values::{ALWAYS, Values};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
