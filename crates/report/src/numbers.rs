//! Numbers and times for people.

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
    fn times_are_short() {
        assert_eq!([2.34, 754.0, 7300.0].map(time), ["2.3 s", "12 min 34 s", "2 h 01 min"]);
    }
}
