//! Long things in short messages: a failure is read in a terminal.

use core::fmt::{self, Debug};

/// The most characters of a case or a program.
const MOST: usize = 240;

/// Numbers, of which the first few are shown.
pub(crate) struct Few<'a>(pub(crate) &'a [f32]);

impl Debug for Few<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 4;
        match self.0 {
            few if few.len() <= SHOWN => write!(f, "{few:?}"),
            many => write!(f, "{:?} and {} more", &many[..SHOWN], many.len() - SHOWN),
        }
    }
}

/// A case as messages show it, without its end if it is long.
pub(crate) fn brief(case: &dyn Debug) -> String {
    cut(format!("{case:?}"))
}

/// A long text without its end.
pub(crate) fn cut(text: String) -> String {
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// Asserts that numbers are equal, and names the first two that aren't.
pub(crate) fn assert_equal(what: &str, got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let differs = (0..got.len()).find(|&k| got[k] != expected[k]);
    if let Some(k) = differs {
        panic!("{what}[{k}] is {}, not {}", got[k], expected[k]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ALONE, Operand, Output};
    use towers_program::Shape;

    #[test]
    fn of_many_numbers_few_are_shown() {
        assert_eq!(format!("{:?}", Few(&[1.0, 2.5])), "[1.0, 2.5]");
        assert_eq!(format!("{:?}", Few(&[0.0; 100])), "[0.0, 0.0, 0.0, 0.0] and 96 more");
        let output = Output::new("y", vec![0.5; 10_000], 0.0);
        assert!(format!("{output:?}").contains("and 9996 more"), "{output:?}");
        let operand = Operand::constant(0.5, Shape::new(8, 32, 32, 4), ALONE);
        assert!(format!("{operand:?}").contains("[0.5, 0.5, 0.5, 0.5] and 32767 more"), "{operand:?}");
    }

    #[test]
    #[should_panic(expected = "y[1] is 2, not 3")]
    fn unequal_numbers_are_named() {
        assert_equal("y", &[1.0, 2.0, 5.0], &[1.0, 3.0, 4.0]);
    }

    #[test]
    fn a_long_case_lacks_its_end() {
        assert_eq!(brief(&"é".repeat(300)), format!("\"{}...", "é".repeat(239)));
        assert_eq!(brief(&[1, 2]), "[1, 2]");
    }
}
