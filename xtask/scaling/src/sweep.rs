//! The model over many numbers of devices.

use crate::model::Model;
use crate::options::Question;
use crate::schedule::Schedule;
use crate::straggler::slowest;
use serde::Serialize;

/// What stays the same as devices are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scaling {
    /// The batch of each device.
    Weak,
    /// The batch of all devices together.
    Strong,
}

/// One prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub scaling: Scaling,
    pub fabric: String,
    pub gpus: usize,
    /// The largest batch of a device.
    pub batch: usize,
    pub step_ms: f64,
    pub images_per_s: f64,
    /// Over one device.
    pub speed_up: f64,
    /// The speed-up, a device.
    pub efficiency: f64,
    /// How long the link is busy in a step.
    pub communication_ms: f64,
    /// What share of that goes on behind backward; null where there is nothing to send.
    pub hidden: Option<f64>,
}

/// A row for each kind of scaling, fabric and number of devices, in this order.
pub fn sweep(model: &Model, question: &Question) -> Vec<Row> {
    let mut rows = Vec::new();
    for scaling in [Scaling::Weak, Scaling::Strong] {
        for fabric in &question.fabrics {
            let predict = |gpus: usize| {
                let (batch, images) = match scaling {
                    Scaling::Weak => (question.batch, question.batch * gpus),
                    Scaling::Strong => (question.global_batch.div_ceil(gpus), question.global_batch),
                };
                let work = model.at(batch).slower(slowest(gpus, question.jitter));
                let schedule = Schedule::new(&work, question.bucket, |bytes| fabric.all_reduce(gpus, bytes));
                (batch, images as f64 / schedule.end, schedule)
            };
            let (_, alone, _) = predict(1);
            rows.extend(question.gpus.iter().map(|&gpus| {
                let (batch, images_per_s, schedule) = predict(gpus);
                let speed_up = images_per_s / alone;
                Row {
                    scaling,
                    fabric: fabric.name(),
                    gpus,
                    batch,
                    step_ms: 1e3 * schedule.end,
                    images_per_s,
                    speed_up,
                    efficiency: speed_up / gpus as f64,
                    communication_ms: 1e3 * schedule.communication(),
                    hidden: schedule.hidden(),
                }
            }));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::tests::fabric;
    use crate::profile::tests::profile;
    use proptest::prelude::*;

    fn question(gpus: Vec<usize>, bandwidth: f64, jitter: f64) -> Question {
        let fabrics = vec![fabric(bandwidth, 1e-6, 8)];
        Question { gpus, fabrics, bucket: Some(1_000_000), batch: 10, global_batch: 1000, jitter }
    }

    fn model(layers: &[(usize, f64, f64)], fixed: f64) -> Model {
        Model::new(&[profile(10, layers)], fixed, None).unwrap()
    }

    #[test]
    fn a_perfect_link_makes_weak_scaling_perfect() {
        let mut question = question(vec![1, 2, 8], f64::INFINITY, 0.0);
        question.fabrics[0].inside.hops = [0.0; 2];
        let rows = sweep(&model(&[(500_000, 10.0, 20.0), (100, 5.0, 9.0)], 0.3), &question);
        let weak: Vec<f64> =
            rows.iter().filter(|r| r.scaling == Scaling::Weak).map(|r| r.efficiency).collect();
        // What a collective costs to start is left.
        assert!(weak[0] == 1.0 && weak[1..].iter().all(|e| (0.999..=1.0).contains(e)), "{weak:?}");
    }

    #[test]
    fn one_slice_too_many_costs_a_device_its_sample() {
        let question = Question { global_batch: 9, ..question(vec![1, 4], 1e12, 0.0) };
        let rows = sweep(&model(&[(5, 10.0, 20.0)], 0.0), &question);
        assert_eq!(rows.last().map(|row| (row.batch, row.scaling)), Some((3, Scaling::Strong)));
    }

    #[test]
    fn stragglers_cost_efficiency() {
        let of =
            |jitter| sweep(&model(&[(5, 10.0, 20.0)], 0.0), &question(vec![64], 1e12, jitter))[0].efficiency;
        assert!(of(0.1) < 0.9 * of(0.0));
    }

    proptest! {
        #[test]
        fn no_speed_up_is_more_than_the_devices(
            layers in prop::collection::vec((0..3_000_000usize, 0.01..10.0f64, 0.01..20.0f64), 1..30),
            bandwidth in 1e8..1e12f64, fixed in 0.0..1.0f64, jitter in 0.0..0.3f64,
        ) {
            let gpus: Vec<usize> = (0..13).map(|k| 1 << k).collect();
            let rows = sweep(&model(&layers, fixed), &question(gpus, bandwidth, jitter));
            for row in rows {
                prop_assert!(row.efficiency > 0.0 && row.efficiency <= 1.0 + 1e-9, "{:?}", row);
                prop_assert!(row.gpus > 1 || (row.communication_ms == 0.0 && row.hidden.is_none()));
                prop_assert!((row.gpus == 1) == (row.communication_ms == 0.0));
            }
        }
    }
}
