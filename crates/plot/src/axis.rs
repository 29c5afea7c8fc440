//! Ranges and ticks: numbers only.

use std::ops::{Range, RangeInclusive};

/// Losses, of training and validation together, of a run of less than eight epochs: fewer than this.
const SHORT: usize = 16;

/// The kind of a panel's values, which decides the range of the [axis](Scale::axis).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Scale {
    /// Losses. The axis leaves out the few that stand far above the rest. It begins at 0 unless that would
    /// waste half of it; for one epoch, always.
    Loss,
    /// Values from 0 to 1, such as accuracies. The axis is the same for all runs, for comparisons.
    Unit,
    /// Values that are 0 or more. The axis shows all of them, from 0 on.
    FromZero,
}

impl Scale {
    /// The axis that suits the values. Values that are not finite don't count.
    ///
    /// ```
    /// use towers_plot::Scale;
    ///
    /// // A loss that explodes for an epoch does not hide the others.
    /// let axis = Scale::Loss.axis([2.0, 1.5, 1e6, 1.0, 0.8, 0.7, 0.6, 0.5]);
    /// assert_eq!(axis.range, 0.0..2.5);
    /// ```
    pub fn axis(self, values: impl IntoIterator<Item = f64>) -> Axis {
        let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        match self {
            Scale::Loss => {
                let high = ceiling(&values).unwrap_or(1.0);
                let low = values.iter().copied().fold(high, f64::min);
                let zoomed = values.len() > 2 && low > 0.5 * high;
                Axis::between(if zoomed { low } else { low.min(0.0) }, high)
            }
            Scale::Unit => {
                let ticks = (0..=5).map(|k| f64::from(k) / 5.0).collect();
                Axis { range: 0.0..1.0, ticks, decimals: 1, is_logarithmic: false }
            }
            Scale::FromZero => {
                Axis::between(0.0, values.into_iter().reduce(f64::max).unwrap_or(1.0).max(0.0))
            }
        }
    }
}

/// An axis: its range and its ticks.
///
/// ```
/// use towers_plot::Axis;
///
/// let epochs = Axis::epochs(1..=70);
/// assert_eq!(epochs.ticks[..3], [1.0, 10.0, 20.0]);
/// assert_eq!(epochs.label(70.0), "70");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The values at both ends.
    pub range: Range<f64>,
    /// The values with a tick, in rising order.
    pub ticks: Vec<f64>,
    /// Digits after the point that tell the ticks apart.
    decimals: usize,
    /// Whether equal distances are equal factors.
    is_logarithmic: bool,
}

impl Axis {
    /// Epochs: whole numbers, with some air on both sides.
    pub fn epochs(epochs: RangeInclusive<u64>) -> Axis {
        let first = *epochs.start();
        let last = first.max(*epochs.end());
        let step = whole_step(last - first, 10);
        let multiples = (first / step..=last / step).map(|k| k * step).filter(|&tick| tick > first);
        let mut ticks: Vec<f64> = multiples.map(|tick| tick as f64).collect();
        // The first epoch has its tick, unless the next tick is too near for both labels.
        if ticks.first().is_none_or(|&next| next - first as f64 >= 0.6 * step as f64) {
            ticks.insert(0, first as f64);
        }
        let air = if first == last { 0.5 } else { 0.03 * (last - first) as f64 };
        let range = first as f64 - air..last as f64 + air;
        Axis { range, ticks, decimals: 0, is_logarithmic: false }
    }

    /// Positive numbers from `low` to `high`, on a logarithmic scale with ticks at powers of ten.
    ///
    /// ```
    /// let rates = towers_plot::Axis::powers(1e-4, 10.0);
    /// assert_eq!(rates.ticks, [1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0]);
    /// assert!((rates.share(0.1) - 0.6).abs() < 1e-12);
    /// assert_eq!(rates.label(1e-3), "1e-3");
    /// ```
    pub fn powers(low: f64, high: f64) -> Axis {
        let low = low.max(f64::MIN_POSITIVE);
        let high = if high > low { high } else { 10.0 * low };
        // What is a power but for rounding is one.
        let first = (low.log10() - 1e-9).ceil() as i32;
        let last = (high.log10() + 1e-9).floor() as i32;
        let every = (last - first) / 10 + 1;
        let tick = |power: i32| format!("1e{power}").parse().unwrap_or(f64::NAN);
        let ticks = (first..=last).step_by(every as usize).map(tick).collect();
        Axis { range: low..high, ticks, decimals: 0, is_logarithmic: true }
    }

    fn between(low: f64, high: f64) -> Axis {
        let spread = if high > low { high - low } else { high.abs().max(1e-9) };
        let step = nice_step(spread / 5.0);
        // What is a tick but for rounding, which differs from system to system, is one.
        let bottom = (low / step + 1e-9).floor();
        let mut top = (high / step - 1e-9).ceil();
        if top * step - high < 0.02 * spread {
            top += 1.0;
        }
        let count = (top - bottom) as u32;
        let ticks = (0..=count).map(|k| (bottom + f64::from(k)) * step).collect();
        let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
        Axis { range: bottom * step..top * step, ticks, decimals, is_logarithmic: false }
    }

    /// Where a value stands between the ends, which are 0 and 1.
    pub fn share(&self, value: f64) -> f64 {
        let place = |x: f64| if self.is_logarithmic { x.max(f64::MIN_POSITIVE).log10() } else { x };
        let [start, end] = [self.range.start, self.range.end].map(place);
        (place(value) - start) / (end - start)
    }

    /// A value for a tooltip.
    pub(crate) fn place(&self, value: f64) -> String {
        // Epochs are whole numbers, or a few decimals.
        if self.is_logarithmic || self.decimals > 0 { short(value) } else { value.to_string() }
    }

    /// The label of a tick.
    pub fn label(&self, tick: f64) -> String {
        if self.is_logarithmic {
            return format!("{tick:e}");
        }
        let is_small = self.decimals > 5 || self.decimals > 3 && self.range.end < 0.01;
        match tick.abs() {
            0.0 if is_small => "0".to_owned(),
            // With the digits that tell neighbours apart.
            size if is_small => {
                let digits = (size * (1.0 + 1e-9)).log10().floor() + self.decimals as f64;
                format!("{tick:.*e}", digits.max(0.0) as usize)
            }
            1e5.. => format!("{tick:.1e}"),
            _ => format!("{tick:.*}", self.decimals),
        }
    }
}

/// A number with three significant digits.
///
/// ```
/// assert_eq!([0.98765, 1234.56, 1e-4].map(towers_plot::short), ["0.988", "1235", "1.00e-4"]);
/// ```
pub fn short(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !(1e-3..1e5).contains(&value.abs()) {
        return format!("{value:.2e}");
    }
    let first = value.abs().log10().floor() as i32;
    format!("{value:.*}", (2 - first).max(0) as usize)
}

/// The greatest value that an axis should show. At most a quarter of the values may lie above it, if the
/// least of these is more than ten times the next value. So a run that explodes for an epoch still shows its
/// progress.
///
/// In a short run the factor is a thousand: its losses fall fast, and a reader wants to see the whole fall.
fn ceiling(values: &[f64]) -> Option<f64> {
    let mut falling = values.to_vec();
    falling.sort_by(|a, b| b.total_cmp(a));
    let apart = if falling.len() < 4 { 0 } else { falling.len() / 4 };
    let factor = if falling.len() < SHORT { 1000.0 } else { 10.0 };
    let gap =
        (0..apart).rev().find(|&k| falling[k] > factor * falling[k + 1].max(0.0) && falling[k + 1] > 0.0);
    falling.get(gap.map_or(0, |k| k + 1)).copied()
}

/// The least of 1, 2, 5 times a power of ten that is at least `step`.
fn nice_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= step * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

/// The same among whole numbers, so that at most `most` steps cover `span`.
fn whole_step(span: u64, most: u64) -> u64 {
    let (mut power, mut factors) = (1, [1, 2, 5].iter().cycle());
    loop {
        let Some(factor) = factors.next() else { return power };
        if factor * power >= span.div_ceil(most) {
            return factor * power;
        }
        if *factor == 5 {
            power *= 10;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(count: u64) -> Vec<f64> {
        let axis = Axis::epochs(1..=count);
        assert!(axis.ticks.iter().all(|tick| axis.range.contains(tick)), "{axis:?}");
        axis.ticks
    }

    #[test]
    fn epochs_have_whole_ticks() {
        assert_eq!(epochs(0), [1.0]);
        assert_eq!(epochs(1), [1.0]);
        assert_eq!(epochs(2), [1.0, 2.0]);
        assert_eq!(epochs(5), [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(epochs(70), [1.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0]);
        assert_eq!(epochs(14), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]);
        assert_eq!(epochs(100_000).len(), 11);
    }

    #[test]
    fn losses_begin_at_zero_unless_that_wastes_the_half() {
        let axis = Scale::Loss.axis([2.3, 1.1, 0.4, f64::NAN, f64::INFINITY]);
        assert_eq!((axis.range.clone(), axis.ticks.len()), (0.0..2.5, 6));
        assert_eq!(axis.label(axis.ticks[1]), "0.5");
        let axis = Scale::Loss.axis([1.4, 1.4, 1.35, 1.3]);
        assert!(axis.range.start > 1.2 && axis.range.end < 1.5, "{axis:?}");
        assert_eq!(axis.label(axis.ticks[0]), "1.30");
        assert_eq!(Scale::Loss.axis([1.4, 1.3]).range.start, 0.0);
        assert_eq!(Scale::Loss.axis([]).range.start, 0.0);
    }

    #[test]
    fn odd_losses_still_make_an_axis() {
        for values in
            [&[][..], &[f64::NAN], &[0.0], &[0.0, 0.0], &[2.3], &[-1.0], &[1e300], &[1e-300, 1e-300]]
        {
            let axis = Scale::Loss.axis(values.iter().copied());
            assert!(axis.range.start < axis.range.end, "{values:?} {axis:?}");
            assert!((2..=12).contains(&axis.ticks.len()), "{values:?} {axis:?}");
        }
        assert_eq!(Scale::Loss.axis([1e6, 0.0]).label(1e6), "1.0e6");
    }

    #[test]
    fn other_figures_begin_at_zero_and_show_all() {
        let axis = Scale::FromZero.axis([0.1, 0.1, 0.001, 0.001, f64::NAN]);
        assert_eq!((axis.range.start, axis.range.end >= 0.1), (0.0, true), "{axis:?}");
        let labels = |value| {
            let axis = Scale::FromZero.axis([value]);
            axis.ticks.iter().map(|tick| axis.label(*tick)).collect::<Vec<_>>()
        };
        assert_eq!(labels(1e-7)[..2], ["0", "2e-8"]);
        assert_eq!(labels(1e-4), ["0", "2e-5", "4e-5", "6e-5", "8e-5", "1.0e-4", "1.2e-4"]);
        assert_eq!(labels(0.05)[1], "0.01");
        for empty in [&[][..], &[0.0], &[f64::INFINITY]] {
            let axis = Scale::FromZero.axis(empty.iter().copied());
            assert!(axis.range.start < axis.range.end, "{axis:?}");
        }
    }

    #[test]
    fn a_short_run_shows_its_whole_fall() {
        let axis = Scale::Loss.axis([1.62, 0.12, 0.09, 0.05, 0.4, 0.08, 0.06, 0.04]);
        assert!(axis.range.end >= 1.62, "{axis:?}");
    }

    #[test]
    fn an_explosion_does_not_flatten_the_rest() {
        assert_eq!(ceiling(&[1e6, 2.0, 1.5, 1.0]), Some(2.0));
        assert_eq!(ceiling(&[1e6, 1e4, 2.0, 1.9, 1.8, 1.5, 1.2, 1.0]), Some(2.0));
        assert_eq!(ceiling(&[1e6, 1e6, 1e6, 1.0]), Some(1e6), "that is no exception any more");
        assert_eq!(ceiling(&[9.0, 1.0]), Some(9.0), "two values tell nothing");
        assert_eq!(ceiling(&[3.0, 2.0, 1.0, 0.5, 0.25]), Some(3.0));
        let long = |first: f64| ceiling(&[[first].as_slice(), &[0.1; 19]].concat());
        assert_eq!((long(0.9), long(1.1)), (Some(0.9), Some(0.1)));
        assert_eq!(ceiling(&[]), None);
    }

    #[test]
    fn short_numbers_have_three_digits() {
        let numbers = [0.0, 0.5, 0.98765, 12.3456, 1234.56, 123_456.0, 1e-4, -2.5, f64::NAN].map(short);
        let expected = ["0", "0.500", "0.988", "12.3", "1235", "1.23e5", "1.00e-4", "-2.50", "NaN"];
        assert_eq!(numbers, expected);
    }
}
