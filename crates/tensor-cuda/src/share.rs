//! How a run of numbers is divided among the members of a sum.

use core::ops::Range;

/// The part of `len` numbers that member `number` of `members` adds up. All but the last begin and end on 16
/// bytes from the start. The division changes no sum.
pub(crate) fn share(len: usize, members: usize, number: usize) -> Range<usize> {
    let each = len.div_ceil(members).next_multiple_of(4);
    (number * each).min(len)..((number + 1) * each).min(len)
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_cover_the_run_in_order() {
        for len in [0, 1, 3, 4, 5, 16, 17, 1001] {
            for members in 1..=5 {
                let mut end = 0;
                for number in 0..members {
                    let own = share(len, members, number);
                    assert_eq!(own.start, end, "{len} over {members}");
                    assert!(own.start.is_multiple_of(4) || own.is_empty());
                    end = own.end;
                }
                assert_eq!(end, len);
            }
        }
    }
}
