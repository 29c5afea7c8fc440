//! Numbers and times for people.

/// A number with three digits that matter.
pub(crate) fn short(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !(1e-3..1e5).contains(&value.abs()) {
        return format!("{value:.2e}");
    }
    let first = value.abs().log10().floor() as i32;
    format!("{value:.*}", (2 - first).max(0) as usize)
}

/// An accuracy, as in the lines of a run.
pub(crate) fn accuracy(value: f64) -> String {
    format!("{value:.4}")
}

/// A duration in its two largest units.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 6000.0 => format!("{:.0} min {:02.0} s", (s / 60.0).floor(), s % 60.0),
        s => format!("{:.0} h {:02.0} min", (s / 3600.0).floor(), (s % 3600.0 / 60.0).floor()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_short() {
        let numbers = [0.0, 0.5, 0.98765, 12.3456, 1234.56, 123_456.0, 1e-4, -2.5, f64::NAN].map(short);
        let expected = ["0", "0.500", "0.988", "12.3", "1235", "1.23e5", "1.00e-4", "-2.50", "NaN"];
        assert_eq!(numbers, expected);
        assert_eq!([2.34, 754.0, 7300.0].map(time), ["2.3 s", "12 min 34 s", "2 h 01 min"]);
    }
}
