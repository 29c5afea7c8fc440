use crate::{Metric, auc, exact, macro_average, mcc, top_k};

/// A metric with a name, or `None` for another name.
type Named = fn(&str) -> Option<Box<dyn Metric>>;

/// The metrics: a line each, with a name that it has.
const LIST: [(&str, Named); 8] = [
    ("top5_acc", top_k::named),
    ("balanced_acc", macro_average::balanced_acc),
    ("precision", macro_average::precision),
    ("recall", macro_average::recall),
    ("f1", macro_average::f1),
    ("mcc", mcc::named),
    ("auc", auc::named),
    ("exact_acc", exact::named),
];

/// The metric with this name: one of [`names`], or `topK_acc` with another number.
pub fn named(name: &str) -> Option<Box<dyn Metric>> {
    LIST.iter().find_map(|(_, named)| named(name))
}

/// The names of the metrics, in words for help texts.
pub const NAMES: &str =
    "top5_acc (or another number), balanced_acc, precision, recall, f1, mcc, auc, exact_acc";

/// The names of the metrics.
pub fn names() -> impl Iterator<Item = &'static str> {
    LIST.iter().map(|(name, _)| *name)
}
