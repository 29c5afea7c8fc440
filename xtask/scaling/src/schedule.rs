//! One step of one device among many: when its gradients are ready, when the link adds them up, when it goes on.

use crate::model::Work;

/// What is added up in one go.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduction {
    pub bytes: usize,
    /// When backward has passed the last of its layers.
    pub ready: f64,
    pub start: f64,
    pub end: f64,
}

/// A step, in seconds from its beginning.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pub reductions: Vec<Reduction>,
    /// The end of the backward pass.
    pub backward_end: f64,
    /// The end of the step.
    pub end: f64,
}

impl Schedule {
    /// A step in which layers pass backward one by one, the last first.
    ///
    /// Gradients of layers that are through fill a bucket of at least `bucket` bytes; a layer's are never cut apart. A full
    /// bucket is added up as soon as the link is free, while backward goes on: that takes `reduce` of its bytes. What lies
    /// behind the gradients comes last. Then the optimizer steps. Without `bucket` all is added up at once, after backward.
    ///
    /// A link adds up one bucket at a time, in their order, and costs the device nothing that computes meanwhile.
    pub fn new(work: &Work, bucket: Option<usize>, reduce: impl Fn(usize) -> f64) -> Schedule {
        let mut full: Vec<(usize, f64)> = Vec::new();
        let (mut now, mut filled) = (work.before, 0);
        for &(seconds, bytes) in &work.layers {
            now += seconds;
            filled += bytes;
            if bucket.is_some_and(|bucket| filled >= bucket.max(1)) {
                full.push((std::mem::take(&mut filled), now));
            }
        }
        let backward_end = now + work.end;
        if bucket.is_some() {
            full.extend([(filled, backward_end), (work.tail, backward_end)]);
        } else {
            full.push((filled + work.tail, backward_end));
        }
        let (mut reductions, mut free) = (Vec::new(), 0.0);
        for (bytes, ready) in full.into_iter().filter(|(bytes, _)| *bytes > 0) {
            let start = f64::max(ready, free);
            free = start + reduce(bytes);
            reductions.push(Reduction { bytes, ready, start, end: free });
        }
        Schedule { reductions, backward_end, end: free.max(backward_end) + work.update }
    }

    /// How long the link was busy.
    pub fn communication(&self) -> f64 {
        self.reductions.iter().map(|reduction| reduction.end - reduction.start).sum()
    }

    /// What share of that went on behind backward; `None` where there was nothing.
    pub fn hidden(&self) -> Option<f64> {
        let after =
            |reduction: &Reduction| reduction.end - reduction.start.max(self.backward_end).min(reduction.end);
        let seen: f64 = self.reductions.iter().map(after).sum();
        let all = self.communication();
        (all > 0.0).then(|| 1.0 - seen / all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Fabric;
    use crate::fabric::tests::fabric;
    use proptest::prelude::*;

    fn work() -> Work {
        Work {
            before: 10.0,
            layers: vec![(1.0, 100), (2.0, 0), (3.0, 50), (4.0, 60)],
            end: 0.0,
            update: 5.0,
            tail: 7,
        }
    }

    #[test]
    fn buckets_go_while_backward_does() {
        let schedule = Schedule::new(&work(), Some(90), |bytes| bytes as f64 / 20.0);
        let seen: Vec<_> = schedule.reductions.iter().map(|r| (r.bytes, r.ready, r.start, r.end)).collect();
        let expected = [(100, 11.0, 11.0, 16.0), (110, 20.0, 20.0, 25.5), (7, 20.0, 25.5, 25.85)];
        for (seen, expected) in seen.iter().zip(expected) {
            assert_eq!((seen.0, seen.1, seen.2), (expected.0, expected.1, expected.2));
            assert!((seen.3 - expected.3).abs() < 1e-12);
        }
        assert_eq!(seen.len(), 3);
        assert_eq!(schedule.backward_end, 20.0);
        assert!((schedule.end - 30.85).abs() < 1e-12);
        assert!((schedule.hidden().unwrap() - 5.0 / 10.85).abs() < 1e-12);
    }

    #[test]
    fn a_busy_link_makes_buckets_wait() {
        let schedule = Schedule::new(&work(), Some(1), |_| 6.0);
        let times: Vec<_> = schedule.reductions.iter().map(|r| (r.ready, r.start)).collect();
        assert_eq!(times, [(11.0, 11.0), (16.0, 17.0), (20.0, 23.0), (20.0, 29.0)]);
        assert_eq!(schedule.end, 40.0);
        assert!((schedule.hidden().unwrap() - 9.0 / 24.0).abs() < 1e-12);
    }

    #[test]
    fn alone_there_is_nothing_to_add_up() {
        let schedule = Schedule::new(&work(), Some(90), |bytes| fabric(1e9, 1e-6, 8).all_reduce(1, bytes));
        assert_eq!((schedule.communication(), schedule.hidden()), (0.0, None));
        assert!((schedule.end - work().compute()).abs() < 1e-12);
    }

    prop_compose! {
        fn any_work()(
            before in 0.0..1.0f64,
            layers in prop::collection::vec((0.0..0.1f64, 0..5_000_000usize), 1..40),
            update in 0.0..0.1f64,
            tail in 0..10_000usize,
        ) -> Work {
            Work { before, layers, end: 0.0, update, tail }
        }
    }

    prop_compose! {
        fn any_fabric()(bandwidth in 1e8..1e12f64, hop in 0.0..1e-4f64, node in 1..16usize) -> Fabric {
            fabric(bandwidth, hop, node)
        }
    }

    proptest! {
        #[test]
        fn every_byte_is_added_up_once(work in any_work(), bucket in prop::option::of(0..4_000_000usize)) {
            let schedule = Schedule::new(&work, bucket, |bytes| bytes as f64 * 1e-9);
            let sum: usize = schedule.reductions.iter().map(|r| r.bytes).sum();
            prop_assert_eq!(sum, work.bytes());
        }

        #[test]
        fn one_after_the_other_and_none_before_it_is_ready(
            work in any_work(), bucket in prop::option::of(0..4_000_000usize), fabric in any_fabric(), n in 2..5000usize,
        ) {
            let schedule = Schedule::new(&work, bucket, |bytes| fabric.all_reduce(n, bytes));
            prop_assert!(schedule.reductions.iter().all(|r| r.start >= r.ready && r.end >= r.start));
            prop_assert!(schedule.reductions.windows(2).all(|pair| pair[1].start >= pair[0].end));
            prop_assert!(schedule.end >= work.compute() - 1e-9);
            prop_assert!(schedule.end <= work.compute() + schedule.communication() + 1e-9);
            prop_assert!(schedule.hidden().is_none_or(|hidden| (-1e-9..=1.0 + 1e-9).contains(&hidden)));
        }

        #[test]
        fn without_buckets_it_is_the_closed_form(work in any_work(), fabric in any_fabric(), n in 2..5000usize) {
            let schedule = Schedule::new(&work, None, |bytes| fabric.all_reduce(n, bytes));
            let expected = work.compute() + fabric.all_reduce(n, work.bytes());
            prop_assert!((schedule.end - expected).abs() < 1e-9 * expected);
            prop_assert!(schedule.hidden().is_none_or(|hidden| hidden.abs() < 1e-9));
        }

        #[test]
        fn a_faster_link_is_never_slower(
            work in any_work(), bucket in prop::option::of(0..4_000_000usize), fabric in any_fabric(), n in 2..5000usize,
            factor in 1.0..100.0f64,
        ) {
            let mut faster = fabric.clone();
            faster.inside.bandwidth *= factor;
            faster.between.bandwidth *= factor;
            let end = |fabric: &Fabric| Schedule::new(&work, bucket, |bytes| fabric.all_reduce(n, bytes)).end;
            prop_assert!(end(&faster) <= end(&fabric) * (1.0 + 1e-12));
        }
    }
}
