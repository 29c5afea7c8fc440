use crate::Error;
use core::fmt::Display;

/// No more of a value is compared and shown.
const LONGEST: usize = 1000;

/// What must be the same on every rank of a run: names with their values, in the words of the one who started it.
///
/// ```
/// # use parallel::Facts;
/// let facts = Facts::new().with("the batch size", 64).with("the model", "small_cnn");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(Vec<(String, String)>);

impl Facts {
    /// No facts beside the version of this crate.
    pub fn new() -> Self {
        Facts::default().with("the version of towers", env!("CARGO_PKG_VERSION"))
    }

    /// One more fact.
    pub fn with(mut self, name: impl Display, value: impl Display) -> Self {
        let value: String = value.to_string().chars().take(LONGEST).collect();
        self.0.push((name.to_string(), value));
        self
    }

    /// The facts as messages.
    pub(crate) fn messages(&self) -> impl Iterator<Item = Vec<u8>> {
        self.0.iter().map(|(name, value)| format!("{name}\n{value}").into_bytes())
    }

    /// Adds a fact that came as a message.
    pub(crate) fn hear(&mut self, message: &[u8]) {
        let text = String::from_utf8_lossy(message);
        let (name, value) = text.split_once('\n').unwrap_or((&text, ""));
        self.0.push((name.to_owned(), value.to_owned()));
    }

    /// The first fact in which rank `rank`, who has the facts `other`, differs from rank 0, who has these.
    pub(crate) fn difference(&self, rank: usize, other: &Facts) -> Option<Error> {
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

    fn heard(facts: &Facts) -> Facts {
        let mut heard = Facts::default();
        facts.messages().for_each(|message| heard.hear(&message));
        heard
    }

    #[test]
    fn the_same_facts_agree_after_their_journey() {
        let facts = Facts::new().with("a", "x\ny").with("b", "").with("c", "z".repeat(5000));
        assert_eq!(heard(&facts), facts);
        assert!(facts.difference(1, &heard(&facts)).is_none());
    }

    #[test]
    fn the_first_difference_is_named_with_both_values() {
        let own = Facts::new().with("lr", 0.1).with("epochs", 3);
        let sentence = |other: Facts| own.difference(2, &other).unwrap().to_string();
        let other = sentence(Facts::new().with("lr", 0.1).with("epochs", 4));
        assert!(other.starts_with("rank 2 has epochs 4, but rank 0 has 3"), "{other}");
        assert!(sentence(Facts::new().with("lr", 0.1)).contains("entries 2, but rank 0 has 3"));
        assert!(sentence(Facts::new().with("epochs", 3)).contains("entry epochs, but rank 0 has lr"));
    }
}
