use tensor::Span;

/// How an arena of gradients is cut into runs that replicas add up while the backward pass goes on.
///
/// Backward goes through the layers from the last to the first, and the arena has them from the first to the last. So the
/// buckets are cut from the arena's end: each is a run of whole tensors, complete when backward has passed all their layers.
/// What is written before backward begins, as the sums of normalizations and the metrics, lies behind the gradients and comes
/// last, because a replica's wish to stop is part of it.
///
/// The buckets and their order depend on the network alone, so all replicas add up the same runs in the same order.
///
/// ```
/// use parallel::Buckets;
/// use tensor::Span;
///
/// // Three layers, the second without parameters; seven elements of sums and metrics behind them.
/// let tensors = [(0, Span::new(0, 30)), (0, Span::new(32, 5)), (2, Span::new(48, 100))];
/// let mut buckets = Buckets::new(&tensors, 155, 40);
/// buckets.begin();
/// assert_eq!(buckets.passed(2), [Span::new(48, 100)]);
/// assert_eq!(buckets.passed(1), []);
/// assert_eq!(buckets.passed(0), [Span::new(0, 48)]);
/// assert_eq!(buckets.behind(), Span::new(148, 7));
/// ```
///
/// A pass hands each run to [`Collective::begin_sum`](crate::Collective::begin_sum) as soon as it is complete, and
/// [`Collective::finish_sum`](crate::Collective::finish_sum) adds up what lies behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// In the order in which they are added up; the last is what lies behind the gradients.
    runs: Vec<Span>,
    /// Of each bucket of gradients, the layers that it waits for.
    layers: Vec<Vec<usize>>,
    /// How many of them backward has not passed yet.
    missing: Vec<usize>,
    /// How many runs were given out.
    given: usize,
}

impl Buckets {
    /// Elements that make a bucket large enough: 1 MiB of gradients. Smaller ones cost more latency than they hide, and much
    /// larger ones hide nothing in a network of a few megabytes.
    pub const ELEMENTS: usize = 1 << 18;

    /// Buckets of at least `least` elements, but for the one with the first layers, of an arena of `len` elements. `tensors`
    /// are the trainable ones from the arena's start to their end, each with the number of its layer; gaps between them
    /// go with the tensor before.
    ///
    /// # Panics
    /// If tensors overlap, are not in order, or lie outside of the arena.
    pub fn new(tensors: &[(usize, Span)], len: usize, least: usize) -> Self {
        let mut buckets = Buckets { runs: Vec::new(), layers: Vec::new(), missing: Vec::new(), given: 0 };
        let trainable = tensors.last().map_or(0, |(_, span)| span.end());
        assert!(trainable <= len, "gradients end at {trainable}, the arena at {len}");
        let (mut end, mut layers) = (trainable, Vec::new());
        for (k, (layer, span)) in tensors.iter().enumerate().rev() {
            // The first tensor's bucket begins where the arena does.
            let start = if k == 0 { 0 } else { span.offset };
            let before = k.checked_sub(1).map_or(0, |before| tensors[before].1.end());
            assert!(before <= span.offset, "tensors in their order");
            if !layers.contains(layer) {
                layers.push(*layer);
            }
            if end - start >= least || k == 0 {
                buckets.runs.push(Span::new(start, end - start));
                buckets.layers.push(std::mem::take(&mut layers));
                end = start;
            }
        }
        buckets.runs.push(Span::new(trainable, len - trainable));
        buckets.begin();
        buckets
    }

    /// All runs, in the order in which they are added up: together the whole arena.
    pub fn runs(&self) -> &[Span] {
        &self.runs
    }

    /// Makes ready for a backward pass.
    pub fn begin(&mut self) {
        self.given = 0;
        self.missing.clear();
        self.missing.extend(self.layers.iter().map(Vec::len));
    }

    /// Takes note that backward has passed a layer, once a pass. Returns the runs that are complete by that: in their fixed
    /// order, so a bucket that is complete too early waits for those before it.
    pub fn passed(&mut self, layer: usize) -> &[Span] {
        for (missing, layers) in self.missing.iter_mut().zip(&self.layers) {
            if layers.contains(&layer) {
                *missing = missing.saturating_sub(1);
            }
        }
        let from = self.given;
        while self.missing.get(self.given) == Some(&0) {
            self.given += 1;
        }
        &self.runs[from..self.given]
    }

    /// Ends a backward pass: the runs of gradients that are left, because it passed no layer, as one without samples does.
    pub fn rest(&mut self) -> &[Span] {
        let gradients = self.layers.len();
        let from = core::mem::replace(&mut self.given, gradients);
        &self.runs[from..gradients]
    }

    /// What lies behind the gradients: the last run.
    pub fn behind(&self) -> Span {
        self.runs[self.layers.len()]
    }

    /// The arena, as one run.
    pub fn whole(&self) -> Span {
        Span::new(0, self.behind().end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tensors of many sizes, one to three a layer, aligned to 16 elements as the arena does; some layers have none.
    fn tensors(layers: usize, mut seed: u64) -> (Vec<(usize, Span)>, usize) {
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((seed >> 33) % below) as usize
        };
        let (mut all, mut end) = (Vec::new(), 0);
        for layer in 0..layers {
            for _ in 0..next(4) {
                let len = if next(5) == 0 { next(3000) } else { next(60) } + 1;
                all.push((layer, Span::new(end, len)));
                end = (end + len).next_multiple_of(16);
            }
        }
        let len = all.last().map_or(0, |(_, span)| span.end()) + next(40);
        (all, len)
    }

    #[test]
    fn every_element_is_in_one_run_and_none_comes_too_early() {
        for seed in 0..200 {
            let layers = 1 + seed as usize % 30;
            let (tensors, len) = tensors(layers, seed);
            for least in [1, 100, 1000, usize::MAX] {
                let mut buckets = Buckets::new(&tensors, len, least);
                // The second pass is as the first.
                for _ in 0..2 {
                    buckets.begin();
                    let (mut given, mut added) = (Vec::new(), vec![0; len]);
                    for layer in (0..layers).rev() {
                        for run in buckets.passed(layer) {
                            let waits = tensors.iter().filter(|(_, span)| run.range().contains(&span.offset));
                            assert!(waits.clone().count() > 0);
                            waits.for_each(|(of, _)| assert!(*of >= layer, "layer {of} in a run at {layer}"));
                            given.push(*run);
                        }
                    }
                    assert_eq!(buckets.rest(), [], "only what lies behind the gradients is left");
                    given.push(buckets.behind());
                    assert_eq!(buckets.whole(), Span::new(0, len));
                    assert_eq!(given, buckets.runs());
                    given.iter().flat_map(|run| run.range()).for_each(|element| added[element] += 1);
                    assert!(added.iter().all(|count| *count == 1), "seed {seed}, least {least}");
                }
            }
        }
    }

    /// A bucket is complete with the first of its layers that is passed last, not earlier and not later.
    #[test]
    fn a_run_comes_as_soon_as_it_can() {
        let tensors =
            [(0, Span::new(0, 4)), (1, Span::new(16, 4)), (2, Span::new(32, 4)), (3, Span::new(48, 4))];
        let mut buckets = Buckets::new(&tensors, 60, 20);
        assert_eq!(buckets.runs(), [Span::new(32, 20), Span::new(0, 32), Span::new(52, 8)]);
        assert_eq!(buckets.passed(3), []);
        assert_eq!(buckets.passed(2), [Span::new(32, 20)]);
        assert_eq!(buckets.passed(1), []);
        assert_eq!(buckets.passed(0), [Span::new(0, 32)]);
        assert_eq!(buckets.rest(), []);
        assert_eq!(buckets.behind(), Span::new(52, 8));
    }

    /// In whatever order layers are passed, runs come in theirs; and what nobody passed comes in the end.
    #[test]
    fn the_order_of_the_runs_is_fixed() {
        let tensors = [(0, Span::new(0, 16)), (1, Span::new(16, 16)), (2, Span::new(32, 16))];
        let mut buckets = Buckets::new(&tensors, 50, 1);
        assert_eq!(buckets.passed(0), []);
        assert_eq!(buckets.passed(2), [Span::new(32, 16)]);
        assert_eq!(buckets.rest(), [Span::new(16, 16), Span::new(0, 16)]);
        assert_eq!(buckets.rest(), []);
        assert_eq!(buckets.behind(), Span::new(48, 2));
    }

    #[test]
    fn a_network_without_parameters_has_its_metrics() {
        let mut buckets = Buckets::new(&[], 3, 10);
        assert_eq!(buckets.passed(0), []);
        assert_eq!(buckets.rest(), []);
        assert_eq!(buckets.behind(), Span::new(0, 3));
    }

    /// MiniGoogLeNet's 6.6 MB make a handful of buckets.
    #[test]
    fn buckets_of_the_usual_size_are_few() {
        let tensors: Vec<_> = (0..100).map(|layer| (layer, Span::new(layer * 16_512, 16_500))).collect();
        let buckets = Buckets::new(&tensors, 1_651_300, Buckets::ELEMENTS);
        assert_eq!(buckets.runs().len(), 8);
    }

    #[test]
    #[should_panic(expected = "tensors in their order")]
    fn overlapping_tensors_are_refused() {
        Buckets::new(&[(0, Span::new(0, 10)), (1, Span::new(5, 10))], 20, 1);
    }
}
