use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use serde_json::Value;
use towers_dataset::Limit;

/// A [`Limit`] as an option: in files a number, or a text such as `10%`.
///
/// ```
/// use towers_config::DataLimit;
///
/// let limit: DataLimit = serde_json::from_str("\"10%\"").unwrap();
/// assert_eq!((limit.of(500), serde_json::to_string(&limit).unwrap()), (50, "\"10%\"".to_owned()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DataLimit(pub Limit);

impl DataLimit {
    pub(crate) const NONE: Self = DataLimit(Limit::Count(0));

    /// The number of samples to take of so many.
    pub fn of(self, all: usize) -> usize {
        self.0.of(all)
    }
}

impl Serialize for DataLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Limit::Count(count) => serializer.serialize_u64(count as u64),
            Limit::Percent(_) => serializer.collect_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for DataLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.parse().map(DataLimit).map_err(D::Error::custom)
    }
}
