use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};
use towers_options::Error;
use towers_parallel::Weights;

/// The rule for the share of every batch that each replica computes.
///
/// ```
/// use towers_config::DeviceWeights;
///
/// assert_eq!("2,1,1".parse::<DeviceWeights>()?.to_string(), "2,1,1");
/// assert_eq!("auto".parse::<DeviceWeights>()?, DeviceWeights::Auto);
/// # Ok::<(), towers_config::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DeviceWeights {
    /// The same share for all; the last replica also takes the remainder, as in the tutorials.
    #[default]
    Even,
    /// In proportion to the speeds that the replicas measure before the first epoch.
    Auto,
    /// In proportion to these weights.
    Given(Weights),
}

impl FromStr for DeviceWeights {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = |_| {
            let accepted =
                format!("{}{}", DeviceWeights::ACCEPTED, towers_options::hint(text, ["auto", "even"]));
            Error::value("device_weights", format!("`{text}`"), accepted)
        };
        match text {
            "even" => Ok(DeviceWeights::Even),
            "auto" => Ok(DeviceWeights::Auto),
            _ => text.parse().map(DeviceWeights::Given).map_err(refuse),
        }
    }
}

impl fmt::Display for DeviceWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceWeights::Even => f.write_str("even"),
            DeviceWeights::Auto => f.write_str("auto"),
            DeviceWeights::Given(weights) => weights.fmt(f),
        }
    }
}

impl From<DeviceWeights> for String {
    fn from(weights: DeviceWeights) -> String {
        weights.to_string()
    }
}

impl TryFrom<String> for DeviceWeights {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl DeviceWeights {
    pub(crate) const ACCEPTED: &'static str =
        "auto, even, or a positive finite number for each replica, as in 2,1,1";

    /// The weights of a run with `world` replicas: never [`Auto`](DeviceWeights::Auto). Speeds are measured
    /// once in a run: a resumed run takes the weights of its checkpoint if the number of replicas is the
    /// same.
    pub fn settle<E>(
        &self,
        measured_before: Option<&DeviceWeights>,
        world: usize,
        measure: impl FnOnce() -> Result<Weights, E>,
    ) -> Result<DeviceWeights, E> {
        if *self != DeviceWeights::Auto {
            return Ok(self.clone());
        }
        if world == 1 {
            return Ok(DeviceWeights::Even);
        }
        match measured_before {
            Some(before @ DeviceWeights::Given(weights)) if weights.len() == world => Ok(before.clone()),
            _ => measure().map(DeviceWeights::Given),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_saved_as_they_are_written() {
        for text in ["even", "auto", "2,1,1", "0.1,1e3"] {
            let weights: DeviceWeights = text.parse().unwrap();
            let saved = serde_json::to_string(&weights).unwrap();
            assert_eq!(serde_json::from_str::<DeviceWeights>(&saved).unwrap(), weights);
        }
        let error = serde_json::from_str::<DeviceWeights>("\"2,-1\"").unwrap_err().to_string();
        assert!(error.starts_with("`device_weights` is `2,-1`, but must be auto, even, or"), "{error}");
    }
}
