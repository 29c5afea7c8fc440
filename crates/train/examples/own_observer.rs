//! A custom observer that stops a run after a time limit:
//! `cargo run --release -p towers-train --example own_observer`

use std::time::{Duration, Instant};
use towers_callbacks::{EpochRecord, Flow, Snapshot, TrainState};
use towers_config::recipe;
use towers_train::{Observer, Result, Training, cifar};

/// Stops a run after the epoch in which its time is over.
struct Deadline(Instant);

impl Observer for Deadline {
    fn on_epoch_end(
        &mut self,
        record: &EpochRecord,
        _: &TrainState,
        _: &dyn Snapshot,
    ) -> towers_callbacks::Result<Flow> {
        if Instant::now() < self.0 {
            return Ok(Flow::Continue);
        }
        Ok(Flow::Stop(format!("the time was over in epoch {}", record.epoch)))
    }
}

fn main() -> Result<()> {
    let mut config = recipe("quick")?;
    config.training.epochs = 1000;
    let deadline = Deadline(Instant::now() + Duration::from_secs(2));
    let data = cifar::synthetic(1, 1000, 200);
    let outcome = Training::new(&config, data).observers(&mut [Box::new(deadline)]).run()?;
    println!("{:?}", outcome.end);
    Ok(())
}

#[test]
fn the_time_is_over() {
    let mut config = recipe("quick").unwrap();
    config.placement.devices.threads = 1;
    let over = Deadline(Instant::now());
    let data = cifar::synthetic(1, 100, 10);
    let outcome = Training::new(&config, data).observers(&mut [Box::new(over)]).run().unwrap();
    assert_eq!(outcome.end, towers_train::End::Stopped("the time was over in epoch 1".into()));
}
