//! Parsers for the compact forms of the command line and of recipes.

use crate::data_limit::DataLimit;
use crate::device_weights::DeviceWeights;
use crate::{ImageSize, Resizing};
use core::str::FromStr;
use serde::Serialize;
use serde_json::{Value, json};
use towers_callbacks::ReduceLrOnPlateau;
use towers_dataset::{Limit, Resize};
use towers_options::{Message, Refused, hint, message};

/// An upper limit for replicas and threads, above what any machine can use.
pub(crate) const MOST: usize = 1024;

/// A form of the crate `optim`, such as `sgd:momentum=0.9`.
pub(crate) fn of_optim<T: FromStr<Err = towers_optim::Error> + Serialize>(
    text: &str,
) -> Result<Value, Refused> {
    text.parse::<T>().map(|value| json!(value)).map_err(|error| Refused::Because(spelled(&error)))
}

/// A form of the crate `augment`, such as `0.08,1`.
pub(crate) fn of_augment<T: FromStr<Err = towers_augment::Error> + Serialize>(
    text: &str,
) -> Result<Value, Refused> {
    text.parse::<T>().map(|value| json!(value)).map_err(|error| match error {
        towers_augment::Error::Option { accepted, .. } => Refused::MustBe(accepted.into()),
        other => Refused::Because(other.to_string().into()),
    })
}

pub(crate) fn image_size(text: &str) -> Result<Value, Refused> {
    let size = text.parse::<ImageSize>();
    size.map(|size| json!(size)).map_err(|_| Refused::MustBe(ImageSize::ACCEPTED.into()))
}

pub(crate) fn resize(text: &str) -> Result<Value, Refused> {
    text.parse::<Resize>()
        .map(|resize| json!(Resizing(resize)))
        .map_err(|accepted| Refused::MustBe(accepted.into()))
}

pub(crate) fn limit(text: &str) -> Result<Value, Refused> {
    text.parse::<Limit>()
        .map(|limit| json!(DataLimit(limit)))
        .map_err(|accepted| Refused::MustBe(accepted.into()))
}

pub(crate) fn device_weights(text: &str) -> Result<Value, Refused> {
    text.parse::<DeviceWeights>().map(|weights| json!(weights)).map_err(|error| match error {
        towers_options::Error::Value { accepted, .. } => Refused::MustBe(accepted),
        other => Refused::Because(other.to_string().into()),
    })
}

pub(crate) fn plateau(text: &str) -> Result<Value, Refused> {
    ReduceLrOnPlateau::parse(text).map(|plateau| json!(plateau))
}

/// A scaling rule depends on the batch size and the schedule, so
/// [`Config::set_lr_scaling`](crate::Config::set_lr_scaling) parses it.
pub(crate) fn scaling(_: &str) -> Result<Value, Refused> {
    Err(Refused::MustBe("a table of base_batch and warmup_epochs".into()))
}

pub(crate) fn gpus(text: &str) -> Result<Value, Refused> {
    parse_gpus(text).map(|ids| json!(ids)).map_err(Refused::MustBe)
}

/// Parses a number of GPUs, or their ids. A repeated id puts several replicas on one GPU.
///
/// ```
/// assert_eq!(towers_config::parse_gpus("3"), Ok(vec![0, 1, 2]));
/// assert_eq!(towers_config::parse_gpus("2,"), Ok(vec![2]));
/// assert!(towers_config::parse_gpus("0").is_err() && towers_config::parse_gpus("1,b").is_err());
/// ```
///
/// # Errors
/// The accepted values.
pub fn parse_gpus(text: &str) -> Result<Vec<usize>, Message> {
    let number = |part: &str| part.trim().parse::<usize>();
    let wrong = |_| "a number of GPUs, as in 3, or their ids, as in 0,2,3".into();
    if text.contains(',') {
        let ids = text.split(',').filter(|part| !part.trim().is_empty()).map(number);
        return ids.collect::<Result<_, _>>().map_err(wrong);
    }
    match number(text).map_err(wrong)? {
        0 => Err(message!("at least 1; for none use ", ["devices.device"], " cpu")),
        count if count < MOST => Ok((0..count).collect()),
        _ => Err(message!("below {MOST}")),
    }
}

/// The error of an optimizer or a schedule, with a similar name if there is one.
pub(crate) fn spelled(error: &towers_optim::Error) -> Message {
    let meant: Message = match error {
        towers_optim::Error::UnknownName { name, accepted, .. } => hint(name, accepted.split(", ")).into(),
        towers_optim::Error::UnknownOption { option, accepted, .. }
            if ["lr", "learning-rate", "learning_rate"].contains(&option.as_str())
                && !accepted.contains("lr-multiplier") =>
        {
            message!("; give the learning rate by ", ["lr"])
        }
        towers_optim::Error::UnknownOption { option, accepted, .. } => {
            hint(option, accepted.split(", ")).into()
        }
        // For values that are words, not numbers.
        towers_optim::Error::Value { value, accepted, .. } if !accepted.contains("number") => {
            hint(value, accepted.split([',', ' ']).filter(|word| word.len() > 2)).into()
        }
        _ => Message::default(),
    };
    Message::from(error.to_string()).and(meant)
}
