/// The result of a fallible operation.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The reasons for refusing metrics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No metric has this name.
    #[error("the metric is `{name}`, but must be one of {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names that are known, separated by commas.
        known: String,
    },
    /// The metric is named twice.
    #[error("the metric `{0}` is named twice")]
    Twice(String),
    /// The metric is not defined for samples with several labels.
    #[error("the metric `{name}` needs one label a sample; for several there are {known}")]
    SeveralLabels {
        /// The name of the metric.
        name: String,
        /// The metrics that are defined, separated by commas.
        known: String,
    },
    /// The metric is not defined for so many classes.
    #[error("the metric `{name}` needs {needs}, and there are {classes}")]
    Classes {
        /// The name of the metric.
        name: String,
        /// The numbers of classes for which it is defined, in words.
        needs: String,
        /// The number of classes.
        classes: usize,
    },
}
