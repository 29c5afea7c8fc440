//! Names of metrics, as options give them.

use crate::{Error, Result};

/// Refuses a metric that an epoch has no figure for.
pub(super) fn check(option: &'static str, metric: &str) -> Result<()> {
    match metric {
        "loss" | "acc" | "accuracy" | "val_loss" | "val_acc" | "val_accuracy" => Ok(()),
        _ => Err(Error::Option {
            option,
            value: format!("`{metric}`"),
            accepted: "one of loss, acc, val_loss, val_acc".to_owned(),
        }),
    }
}
