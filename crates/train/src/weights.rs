use crate::{Config, Error, Result};
use core::fmt;
use core::str::FromStr;
use parallel::{Shards, Weights};
use serde::{Deserialize, Serialize};

/// What decides how much of every batch each replica computes.
///
/// ```
/// use train::DeviceWeights;
///
/// assert_eq!("2,1,1".parse::<DeviceWeights>()?.to_string(), "2,1,1");
/// assert_eq!("auto".parse::<DeviceWeights>()?, DeviceWeights::Auto);
/// # Ok::<(), train::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DeviceWeights {
    /// The same for all, and the last takes the remainder too: the tutorials' rule.
    #[default]
    Even,
    /// In proportion to the speeds that the replicas measure before the first epoch.
    Auto,
    /// In proportion to these.
    Given(Weights),
}

impl FromStr for DeviceWeights {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |_| Error::Option {
            option: "`device_weights`",
            value: format!("`{text}`"),
            accepted: format!("{}{}", DeviceWeights::ACCEPTED, options::hint(text, ["auto", "even"])),
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

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl DeviceWeights {
    pub(crate) const ACCEPTED: &'static str =
        "auto, even, or a positive finite number for each replica, as in 2,1,1";

    /// Checks that they are for as many replicas, and that each of them gets something of a whole batch.
    pub(crate) fn check(&self, config: &Config, replicas: usize) -> Result<()> {
        let DeviceWeights::Given(weights) = self else { return Ok(()) };
        let refuse = |accepted| {
            Err(Error::Option { option: "`device_weights`", value: weights.to_string(), accepted })
        };
        if weights.len() != replicas {
            return refuse(match replicas {
                1 => "auto, even, or one number for the one replica".to_owned(),
                _ => format!("auto, even, or one number for each of the {replicas} replicas"),
            });
        }
        let batch = config.global_batch(replicas);
        let idle = weights.share_out(batch).iter().position(|share| *share == 0);
        match idle.filter(|_| config.training.virtual_replicas.is_none() && batch >= replicas) {
            Some(replica) => {
                refuse(format!("less uneven: replica {replica} would get none of a batch of {batch}"))
            }
            None => Ok(()),
        }
    }

    /// What the batches of a run of `world` replicas are cut by: never [`Auto`](DeviceWeights::Auto). Speeds are measured once
    /// in a run: one that goes on has those of its checkpoint, unless they were of another number of replicas.
    pub(crate) fn settle(
        &self,
        measured_before: Option<&DeviceWeights>,
        world: usize,
        measure: impl FnOnce() -> Result<Weights>,
    ) -> Result<DeviceWeights> {
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

    /// What replica `rank` of `world` computes of every batch.
    pub(crate) fn shards(&self, config: &Config, world: usize, rank: usize) -> Shards {
        let total = config.shards(world);
        match (self, config.training.virtual_replicas) {
            (DeviceWeights::Given(weights), Some(_)) => Shards::shared_out(total, weights, rank),
            (DeviceWeights::Given(weights), None) => Shards::weighted(config.micro_batches(), weights, rank),
            _ => Shards::new(total, world, rank),
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

    #[test]
    fn they_must_suit_the_replicas() {
        let mut config = crate::recipe("quick").unwrap();
        config.training.batch_size = 4;
        let says = |config: &Config, weights: &str, replicas| {
            let weights: DeviceWeights = weights.parse().unwrap();
            weights.check(config, replicas).err().map_or(String::new(), |error| error.to_string())
        };
        assert!(says(&config, "2,1", 3).ends_with("auto, even, or one number for each of the 3 replicas"));
        assert!(says(&config, "2,1", 1).ends_with("auto, even, or one number for the one replica"));
        assert!(says(&config, "100,1", 2).contains("replica 1 would get none of a batch of 8"));
        assert_eq!(
            [says(&config, "2,1", 2), says(&config, "auto", 7), says(&config, "even", 7)],
            ["", "", ""]
        );
        // Each replica has a shard of its own then.
        config.training.virtual_replicas = Some(2);
        assert_eq!(says(&config, "100,1", 2), "");
    }
}
