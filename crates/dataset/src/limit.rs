use std::fmt;
use std::str::FromStr;

/// The most samples to take of a split: a number, or a percentage of all.
///
/// ```
/// use towers_dataset::Limit;
///
/// assert_eq!(Limit::from(300).of(50_000), 300);
/// assert_eq!("10%".parse(), Ok(Limit::Percent(10.0)));
/// assert_eq!(Limit::Percent(10.0).of(1234), 123);
/// assert!("110%".parse::<Limit>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// So many.
    Count(usize),
    /// So many of a hundred, above 0 and at most 100; of some samples at least one.
    Percent(f64),
}

impl Limit {
    /// All samples.
    pub const ALL: Self = Limit::Count(usize::MAX);
    /// The accepted texts, in words.
    pub const ACCEPTED: &'static str = "a whole number, 1 or more, or a percentage, as in 10%";

    /// The number of samples to take of so many.
    pub fn of(self, all: usize) -> usize {
        match self {
            Limit::Count(count) => count.min(all),
            Limit::Percent(percent) => ((all as f64 * percent / 100.0) as usize).clamp(1.min(all), all),
        }
    }
}

impl From<usize> for Limit {
    fn from(count: usize) -> Self {
        Limit::Count(count)
    }
}

impl FromStr for Limit {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let limit = match text.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.parse().ok().filter(|percent| *percent > 0.0 && *percent <= 100.0);
                percent.map(Limit::Percent)
            }
            None => text.parse().ok().filter(|count| *count > 0).map(Limit::Count),
        };
        limit.ok_or(Self::ACCEPTED)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Count(count) => write!(f, "{count}"),
            Limit::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_round_trip() {
        for text in ["1", "300", "10%", "0.5%", "100%"] {
            assert_eq!(text.parse::<Limit>().unwrap().to_string(), text);
        }
        for text in ["", "0", "-1", "0%", "-3%", "100.1%", "x%", "NaN%", "1.5", "%"] {
            assert!(text.parse::<Limit>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_percentage_takes_one_of_few_and_none_of_none() {
        assert_eq!([0, 1, 7, 1000].map(|all| Limit::Percent(1.0).of(all)), [0, 1, 1, 10]);
        assert_eq!(Limit::ALL.of(7), 7);
    }
}
