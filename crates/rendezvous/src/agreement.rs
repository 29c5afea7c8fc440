use crate::Error;
use core::fmt::Display;
use serde::{Deserialize, Serialize};

/// The most characters of a value that are compared and shown.
const LONGEST: usize = 1000;

/// Settings that must agree on every rank of a run, each with the name that the user knows it by.
///
/// ```
/// # use towers_rendezvous::Agreement;
/// let agreement = Agreement::new().with("the batch size", 64).with("the model", "small_cnn");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement(Vec<(String, String)>);

impl Agreement {
    /// The version of this crate alone.
    pub fn new() -> Self {
        Agreement::default().with("the version of towers", env!("CARGO_PKG_VERSION"))
    }

    /// Adds an entry.
    pub fn with(mut self, name: impl Display, value: impl Display) -> Self {
        let value: String = value.to_string().chars().take(LONGEST).collect();
        self.0.push((name.to_string(), value));
        self
    }

    /// The first entry in which rank `rank`, with the entries `other`, differs from rank 0, with these.
    pub fn difference(&self, rank: usize, other: &Agreement) -> Option<Error> {
        let differs = |what: &str, got: &str, expected: &str| {
            let [what, got, expected] = [what, got, expected].map(str::to_owned);
            Some(Error::Disagree { rank, what, got, expected })
        };
        for (own, other) in self.0.iter().zip(&other.0) {
            match (own.0 == other.0, own.1 == other.1) {
                (true, true) => {}
                (true, false) => return differs(&own.0, &other.1, &own.1),
                (false, _) => return differs("the configuration's entry", &other.0, &own.0),
            }
        }
        let [own, other] = [self.0.len(), other.0.len()];
        if own == other {
            return None;
        }
        differs("the number of configuration entries", &other.to_string(), &own.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named_with_both_values() {
        let own = Agreement::new().with("lr", 0.1).with("epochs", 3);
        let sentence = |other: Agreement| own.difference(2, &other).unwrap().to_string();
        let other = sentence(Agreement::new().with("lr", 0.1).with("epochs", 4));
        assert!(other.starts_with("rank 2 has epochs 4, but rank 0 has 3"), "{other}");
        assert!(sentence(Agreement::new().with("lr", 0.1)).contains("entries 2, but rank 0 has 3"));
        assert!(sentence(Agreement::new().with("epochs", 3)).contains("entry epochs, but rank 0 has lr"));
    }
}
