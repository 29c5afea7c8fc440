use crate::{Error, Result};
use core::fmt;
use core::ops::Range;
use core::str::FromStr;

/// The share of the work of each replica, as one positive number for each. A replica with twice another's
/// weight takes twice as much.
///
/// Samples can't be cut, so each replica gets its exact share rounded down. The remaining samples go one by
/// one to the replicas with the largest fractions: the method of the largest remainder. Of equal fractions
/// the earlier replica's comes first. Every share is the exact one rounded up or down, and a heavier replica
/// never gets less than a lighter one. Shares add up to the whole, and the same weights give the same shares
/// everywhere.
///
/// ```
/// use towers_parallel::Weights;
///
/// let weights: Weights = "2,1,1".parse()?;
/// assert_eq!(weights.share_out(100), [50, 25, 25]);
/// // 3.5, 1.75 and 1.75: the two that are left go to the largest fractions.
/// assert_eq!(weights.share_out(7), [3, 2, 2]);
/// assert_eq!(weights.slice(7, 1), 3..5);
/// # Ok::<(), towers_parallel::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Weights(Vec<f64>);

impl Weights {
    /// The weights of as many replicas.
    ///
    /// # Errors
    /// [`Error::Weights`] if one of them is not positive and finite, or there are none.
    pub fn new(weights: Vec<f64>) -> Result<Weights> {
        match !weights.is_empty() && weights.iter().all(|weight| weight.is_finite() && *weight > 0.0) {
            true => Ok(Weights(weights)),
            false => Err(Error::Weights(Weights(weights).to_string())),
        }
    }

    /// Weights in proportion to measured speeds, in any unit, with one decimal: the slowest has 1. Smaller
    /// differences are noise of the clock.
    ///
    /// ```
    /// use towers_parallel::Weights;
    /// assert_eq!(Weights::of_speeds(&[102.0, 251.0, 99.0])?.to_string(), "1,2.5,1");
    /// # Ok::<(), towers_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Weights::new).
    pub fn of_speeds(speeds: &[f64]) -> Result<Weights> {
        let slowest = speeds.iter().copied().fold(f64::INFINITY, f64::min);
        Weights::new(speeds.iter().map(|speed| (speed / slowest * 10.0).round() / 10.0).collect())
    }

    /// Of how many replicas.
    #[allow(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The shares of `n` things.
    pub fn share_out(&self, n: usize) -> Vec<usize> {
        // Of numbers of at most 1 the sum is finite.
        let largest = self.0.iter().copied().fold(0.0, f64::max);
        let sum: f64 = self.0.iter().map(|weight| weight / largest).sum();
        let exact = self.0.iter().map(|weight| n as f64 * (weight / largest) / sum);
        let (mut shares, mut fractions) = (Vec::new(), Vec::new());
        for (replica, exact) in exact.enumerate() {
            shares.push(exact as usize);
            fractions.push((exact.fract(), replica));
        }
        // The sort keeps the order of equals.
        fractions.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let left = n - shares.iter().sum::<usize>().min(n);
        fractions.iter().cycle().take(left).for_each(|(_, replica)| shares[*replica] += 1);
        shares
    }

    /// The samples of a batch of `n` that are replica `replica`'s: the replicas' slices lie one behind the other.
    ///
    /// # Panics
    /// If there is no such replica.
    pub fn slice(&self, n: usize, replica: usize) -> Range<usize> {
        let shares = self.share_out(n);
        let start = shares[..replica].iter().sum();
        start..start + shares[replica]
    }
}

impl fmt::Display for Weights {
    /// As they are read: separated by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(f64::to_string).collect();
        f.write_str(&numbers.join(","))
    }
}

impl FromStr for Weights {
    type Err = Error;

    fn from_str(text: &str) -> Result<Weights> {
        let numbers = text.split(',').map(|number| number.trim().parse());
        let weights: Vec<f64> =
            numbers.collect::<Result<_, _>>().map_err(|_| Error::Weights(text.to_owned()))?;
        Weights::new(weights).map_err(|_| Error::Weights(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn weights() -> impl Strategy<Value = Vec<f64>> {
        let weight = prop_oneof![(1..50_u32).prop_map(f64::from), 0.01..100.0_f64, Just(1e-300), Just(1e300)];
        prop::collection::vec(weight, 1..9)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn shares_add_up_and_are_the_exact_ones_rounded(weights in weights(), n in 0..100_000_usize) {
            let shares = Weights::new(weights.clone()).unwrap().share_out(n);
            prop_assert_eq!(shares.iter().sum::<usize>(), n);
            let largest = weights.iter().copied().fold(0.0, f64::max);
            let sum: f64 = weights.iter().map(|weight| weight / largest).sum();
            for (share, weight) in shares.iter().zip(&weights) {
                let exact = n as f64 * (weight / largest) / sum;
                prop_assert!((*share as f64 - exact).abs() < 1.0 + 1e-9, "{} for {}", share, exact);
            }
            for (a, b) in (0..weights.len()).flat_map(|a| (0..weights.len()).map(move |b| (a, b))) {
                prop_assert!(weights[a] <= weights[b] || shares[a] >= shares[b], "{:?} {:?}", weights, shares);
            }
        }

        #[test]
        fn only_proportions_count(weights in prop::collection::vec(0.01..100.0_f64, 1..9), n in 0..5000_usize) {
            let shares = |weights: Vec<f64>| Weights::new(weights).unwrap().share_out(n);
            prop_assert_eq!(shares(weights.iter().map(|w| w * 1024.0).collect()), shares(weights));
        }

        #[test]
        fn they_are_written_as_they_are_read(weights in weights()) {
            let weights = Weights::new(weights).unwrap();
            prop_assert_eq!(weights.to_string().parse::<Weights>().unwrap(), weights);
        }
    }

    /// What is left goes to the first of equals.
    #[test]
    fn equals_share_alike() {
        let equal: Weights = "1,1,1,1".parse().unwrap();
        assert_eq!(equal.share_out(8), [2, 2, 2, 2]);
        assert_eq!(equal.share_out(10), [3, 3, 2, 2]);
        assert_eq!("0.1,0.1,0.1".parse::<Weights>().unwrap().share_out(3), [1, 1, 1]);
    }

    #[test]
    fn only_positive_finite_numbers_are_weights() {
        for text in ["", "1,,2", "0,1", "-1,2", "nan", "inf,1", "a", "1 2"] {
            let error = text.parse::<Weights>().unwrap_err().to_string();
            assert_eq!(
                error,
                format!("the weights are `{text}`, but must be positive finite numbers as in 2,1,1")
            );
        }
        assert!(Weights::new(Vec::new()).is_err());
    }

    #[test]
    fn speeds_become_weights_of_one_decimal() {
        let of = |speeds: &[f64]| Weights::of_speeds(speeds).unwrap().to_string();
        assert_eq!(of(&[1000.0, 1030.0, 3980.0]), "1,1,4");
        assert_eq!(of(&[0.25, 0.1]), "2.5,1");
        assert!(Weights::of_speeds(&[1.0, 0.0]).is_err() && Weights::of_speeds(&[]).is_err());
        assert!(Weights::of_speeds(&[f64::NAN, 1.0]).is_err());
    }
}
