//! Parsers for the compact forms of the command line and of recipes.

use super::device_weights::DeviceWeights;
use crate::{Error, ImageSize, Resizing};
use callbacks::ReduceLrOnPlateau;
use core::str::FromStr;
use dataset::Resize;
use options::{Refused, hint};
use serde::Serialize;
use serde_json::{Value, json};

/// An upper limit for replicas and threads, above what any machine can use.
pub(crate) const MOST: usize = 1024;

/// A form of the crate `optim`, such as `sgd:momentum=0.9`.
pub(super) fn of_optim<T: FromStr<Err = optim::Error> + Serialize>(text: &str) -> Result<Value, Refused> {
    text.parse::<T>().map(|value| json!(value)).map_err(|error| Refused::Because(spelled(&error)))
}

/// A form of the crate `augment`, such as `0.08,1`.
pub(super) fn of_augment<T: FromStr<Err = augment::Error> + Serialize>(text: &str) -> Result<Value, Refused> {
    text.parse::<T>().map(|value| json!(value)).map_err(|error| match error {
        augment::Error::Option { accepted, .. } => Refused::MustBe(accepted.to_string()),
        other => Refused::Because(other.to_string()),
    })
}

pub(super) fn image_size(text: &str) -> Result<Value, Refused> {
    let size = text.parse::<ImageSize>();
    size.map(|size| json!(size)).map_err(|_| Refused::MustBe(ImageSize::ACCEPTED.to_owned()))
}

pub(super) fn resize(text: &str) -> Result<Value, Refused> {
    text.parse::<Resize>()
        .map(|resize| json!(Resizing(resize)))
        .map_err(|accepted| Refused::MustBe(accepted.to_owned()))
}

pub(super) fn device_weights(text: &str) -> Result<Value, Refused> {
    text.parse::<DeviceWeights>().map(|weights| json!(weights)).map_err(|error| match error {
        Error::Option { accepted, .. } => Refused::MustBe(accepted),
        other => Refused::Because(other.to_string()),
    })
}

pub(super) fn plateau(text: &str) -> Result<Value, Refused> {
    ReduceLrOnPlateau::parse(text).map(|plateau| json!(plateau))
}

/// A scaling rule depends on the batch size and the schedule, so
/// [`Config::set_lr_scaling`](crate::Config::set_lr_scaling) parses it.
pub(super) fn scaling(_: &str) -> Result<Value, Refused> {
    Err(Refused::MustBe("a table of base_batch and warmup_epochs".to_owned()))
}

pub(super) fn gpus(text: &str) -> Result<Value, Refused> {
    parse_gpus(text).map(|ids| json!(ids)).map_err(Refused::MustBe)
}

/// Parses a number of GPUs, or their ids. A repeated id puts several replicas on one GPU.
///
/// ```
/// assert_eq!(train::parse_gpus("3"), Ok(vec![0, 1, 2]));
/// assert_eq!(train::parse_gpus("2,"), Ok(vec![2]));
/// assert!(train::parse_gpus("0").is_err() && train::parse_gpus("1,b").is_err());
/// ```
///
/// # Errors
/// The accepted values.
pub fn parse_gpus(text: &str) -> Result<Vec<usize>, String> {
    let number = |part: &str| part.trim().parse::<usize>();
    let wrong = |_| "a number of GPUs, as in 3, or their ids, as in 0,2,3".to_owned();
    if text.contains(',') {
        let ids = text.split(',').filter(|part| !part.trim().is_empty()).map(number);
        return ids.collect::<Result<_, _>>().map_err(wrong);
    }
    match number(text).map_err(wrong)? {
        0 => Err("at least 1; for none use `devices.device` cpu".to_owned()),
        count if count < MOST => Ok((0..count).collect()),
        _ => Err(format!("below {MOST}")),
    }
}

/// The error of an optimizer or a schedule, with a similar name if there is one.
pub(super) fn spelled(error: &optim::Error) -> String {
    let meant = match error {
        optim::Error::UnknownName { name, accepted, .. } => hint(name, accepted.split(", ")),
        optim::Error::UnknownOption { option, accepted, .. }
            if ["lr", "learning-rate", "learning_rate"].contains(&option.as_str())
                && !accepted.contains("lr-multiplier") =>
        {
            "; give the learning rate by `lr`".to_owned()
        }
        optim::Error::UnknownOption { option, accepted, .. } => hint(option, accepted.split(", ")),
        // For values that are words, not numbers.
        optim::Error::Value { value, accepted, .. } if !accepted.contains("number") => {
            hint(value, accepted.split([',', ' ']).filter(|word| word.len() > 2))
        }
        _ => String::new(),
    };
    format!("{error}{meant}")
}
