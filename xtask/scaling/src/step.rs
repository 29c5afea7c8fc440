//! One step of one device: the gradients of finished layers are exchanged during the backward pass.

/// The work of one device in one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Seconds of the forward pass and the loss.
    pub forward: f64,
    /// The layers in the order of the backward pass: the last layer of the network first.
    pub backward: Vec<Layer>,
    /// Seconds between the backward pass and the exchange of the last gradients.
    pub before_exchange: f64,
    /// Seconds of the running averages and the optimizer, after the exchange.
    pub update: f64,
    /// Bytes that are exchanged behind the gradients: running averages, metrics, the signal to stop.
    pub tail_bytes: usize,
}

/// The backward pass of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layer {
    pub seconds: f64,
    /// The size of its gradients.
    pub bytes: usize,
}

impl Work {
    /// Seconds that the device computes in a step.
    pub fn compute(&self) -> f64 {
        let backward: f64 = self.backward.iter().map(|layer| layer.seconds).sum();
        self.forward + backward + self.before_exchange + self.update
    }

    /// Bytes that the devices add up in a step.
    pub fn bytes(&self) -> usize {
        self.backward.iter().map(|layer| layer.bytes).sum::<usize>() + self.tail_bytes
    }

    /// The same work on a device that needs `factor` times as long.
    pub fn slower(&self, factor: f64) -> Work {
        let slower = |layer: &Layer| Layer { seconds: factor * layer.seconds, ..*layer };
        Work {
            forward: factor * self.forward,
            backward: self.backward.iter().map(slower).collect(),
            before_exchange: factor * self.before_exchange,
            update: factor * self.update,
            tail_bytes: self.tail_bytes,
        }
    }
}

/// The predicted times of a step, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub seconds: f64,
    /// How long the link is busy.
    pub communication: f64,
    /// How long the device waits for the link after the backward pass.
    pub exposed: f64,
}

/// A step in which an all-reduce of so many bytes takes `all_reduce` seconds.
///
/// A bucket is complete when it holds at least `bucket` bytes; the gradients of one layer stay together. The
/// link reduces one bucket after the other, when the bucket is complete and the link is free. The tail comes
/// last. A bucket of `usize::MAX` bytes is never full: all gradients and the tail are one all-reduce after
/// the backward pass.
pub fn simulate(work: &Work, bucket: usize, all_reduce: impl Fn(usize) -> f64) -> Step {
    let mut complete: Vec<(usize, f64)> = Vec::new();
    let mut now = work.forward;
    let mut filled = 0;
    for layer in &work.backward {
        now += layer.seconds;
        filled += layer.bytes;
        if filled >= bucket {
            complete.push((filled, now));
            filled = 0;
        }
    }
    let backward_end = now + work.before_exchange;
    if bucket == usize::MAX {
        complete.push((filled + work.tail_bytes, backward_end));
    } else {
        complete.extend([(filled, backward_end), (work.tail_bytes, backward_end)]);
    }
    let mut link_free: f64 = 0.0;
    let mut communication = 0.0;
    for (bytes, ready) in complete.into_iter().filter(|(bytes, _)| *bytes > 0) {
        let seconds = all_reduce(bytes);
        link_free = link_free.max(ready) + seconds;
        communication += seconds;
    }
    let exposed = (link_free - backward_end).max(0.0);
    Step { seconds: backward_end + exposed + work.update, communication, exposed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn work() -> Work {
        let layers = [(1.0, 100), (2.0, 0), (3.0, 50), (4.0, 60)];
        let backward = layers.map(|(seconds, bytes)| Layer { seconds, bytes }).to_vec();
        Work { forward: 10.0, backward, before_exchange: 0.0, update: 5.0, tail_bytes: 7 }
    }

    #[test]
    fn buckets_are_reduced_during_the_backward_pass() {
        // 100 bytes from 11 to 16, then 110 from 20 to 25.5, then the tail to 25.85.
        let step = simulate(&work(), 90, |bytes| bytes as f64 / 20.0);
        assert!((step.seconds - 30.85).abs() < 1e-12 && (step.exposed - 5.85).abs() < 1e-12, "{step:?}");
        assert!((step.communication - 10.85).abs() < 1e-12);
    }

    #[test]
    fn a_busy_link_delays_the_next_bucket() {
        // Complete at 11, 16, 20 and 20; reduced from 11, 17, 23 and 29.
        let step = simulate(&work(), 1, |_| 6.0);
        assert_eq!(step, Step { seconds: 40.0, communication: 24.0, exposed: 15.0 });
    }

    proptest! {
        #[test]
        fn every_byte_is_reduced_once_and_a_step_is_never_shorter_than_its_parts(
            layers in prop::collection::vec((0.0..0.1f64, 0..5_000_000usize), 1..40),
            tail_bytes in 0..10_000usize, bucket in 1..4_000_000usize, speed in 1e7..1e12f64,
        ) {
            let backward = layers.iter().map(|&(seconds, bytes)| Layer { seconds, bytes }).collect();
            let work = Work { forward: 0.1, backward, before_exchange: 0.0, update: 0.01, tail_bytes };
            let bytes = work.bytes() as f64 / speed;
            for bucket in [bucket, usize::MAX] {
                let step = simulate(&work, bucket, |bytes| bytes as f64 / speed);
                prop_assert!((step.communication - bytes).abs() <= 1e-9 * bytes);
                prop_assert!((step.seconds - work.compute() - step.exposed).abs() < 1e-9);
                prop_assert!(step.exposed <= step.communication + 1e-9);
            }
            let at_once = simulate(&work, usize::MAX, |bytes| bytes as f64 / speed);
            prop_assert!((at_once.seconds - work.compute() - bytes).abs() < 1e-9 * (1.0 + bytes));
        }
    }
}
