use core::ops::Range;

/// The part of a batch of `n` samples that belongs to replica `part` of `parts`. Each has `n / parts`
/// samples, and the last takes the remainder too, as in Keras' `multi_gpu_model` and its tutorials'
/// `slice_batch`.
///
/// ```
/// use parallel::slice_batch;
/// assert_eq!((0..3).map(|part| slice_batch(100, 3, part)).collect::<Vec<_>>(), [0..33, 33..66, 66..100]);
/// ```
///
/// # Panics
/// If `part` is not below `parts`.
pub fn slice_batch(n: usize, parts: usize, part: usize) -> Range<usize> {
    assert!(part < parts, "part {part} of {parts} parts");
    let len = n / parts;
    let end = if part == parts - 1 { n } else { (part + 1) * len };
    part * len..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_cover_the_batch_in_order() {
        for n in [0, 1, 2, 7, 64, 100] {
            for parts in 1..=5 {
                let mut end = 0;
                for part in 0..parts {
                    let slice = slice_batch(n, parts, part);
                    assert_eq!(slice.start, end);
                    end = slice.end;
                }
                assert_eq!(end, n);
            }
        }
    }

    /// `slice_batch` of the tutorial "Training with multiple GPUs using Keras": 10 samples on 4 GPUs.
    #[test]
    fn the_last_takes_the_remainder() {
        let lens: Vec<usize> = (0..4).map(|part| slice_batch(10, 4, part).len()).collect();
        assert_eq!(lens, [2, 2, 2, 4]);
        assert_eq!(slice_batch(3, 4, 3), 0..3);
    }
}
