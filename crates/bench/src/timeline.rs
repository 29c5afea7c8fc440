use crate::options::{LEAST_WARMUP, check_training};
use crate::subject::{Subject, after_passes, step_options};
use crate::{BenchOptions, Result};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Instant;
use towers_config::Config;
use towers_layers::Traced;
use towers_parallel::{Replica, run_replicas};
use towers_program::{Phase, Span};
use towers_train::open_devices;

/// How many steps a timeline shows.
const STEPS: usize = 3;

/// Training steps of a recipe's network in the trace event format, which Perfetto and Chrome's `about:tracing` open: a row for each replica's
/// ops, and one for its part in the sum of the gradients. Times are microseconds.
///
/// The format: Google, "Trace Event Format", 2016.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    /// The events, those of one replica behind the other's.
    #[serde(rename = "traceEvents")]
    pub events: Vec<Value>,
    /// How a viewer shows times.
    #[serde(rename = "displayTimeUnit")]
    pub unit: &'static str,
}

/// Takes some training steps on random data, and notes when each op of each replica began and ended.
///
/// The host waits for the device after each op. The sum of the gradients begins after the backward pass; in a run both overlap.
///
/// # Errors
/// What the devices say.
pub fn timeline(config: &Config, options: &BenchOptions) -> Result<Timeline> {
    config.check()?;
    check_training(options)?;
    let devices = open_devices(&config.placement.devices, &config.training.arithmetic)?;
    let zero = Instant::now();
    let traces = run_replicas(&devices, |replica| trace(config, options, replica, zero))?;
    Ok(Timeline { events: traces.into_iter().flatten().collect(), unit: "ms" })
}

/// The events of a replica.
fn trace(config: &Config, options: &BenchOptions, replica: Replica, zero: Instant) -> Result<Vec<Value>> {
    let (rank, Replica { device, mut collective }) = (replica.rank(), replica);
    let subject = Subject::on(device, config, options)?;
    let Subject { device, mut network, mut optimizer, mut meter, batch, .. } = subject;
    let global = batch * collective.world();
    let mut rows = Rows { ops: 2 * rank, sums: 2 * rank + 1, zero, last: zero, events: Vec::new() };
    for step in 0..LEAST_WARMUP + STEPS {
        if step == LEAST_WARMUP {
            rows.begin(rank);
        }
        let numbers = step_options(config, step as u64, global);
        collective.barrier()?;
        rows.last = Instant::now();
        for (after, name) in after_passes(&optimizer) {
            network.trace_train_pass(numbers.draws, 0.0, global, |traced| match traced {
                Traced::Step(program, number) => {
                    let ended = Instant::now();
                    let step = &program.steps[number];
                    let phase = match step.phase {
                        Phase::Forward => "forward",
                        Phase::Loss => "loss",
                        Phase::Backward => "backward",
                    };
                    let layer = program.layers.get(step.layer).map_or("", String::as_str);
                    let args = json!({ "step": number, "layer": layer, "what": program.step_text(step) });
                    rows.add_until(ended, rows.ops, step.op.name(), phase, args);
                }
                Traced::Gradients => rows.add(rows.ops, "finish gradients", "backward", json!({})),
            })?;
            let grads = &mut network.arena_mut().grads;
            let all = Span::new(0, grads.len());
            collective.all_reduce_sum(&device, grads, all)?;
            device.synchronize()?;
            rows.add(rows.sums, "sum of the gradients", "collective", json!({ "bytes": 4 * all.len }));
            after(&mut network, &mut optimizer, &mut meter, &numbers)?;
            device.synchronize()?;
            rows.add(rows.ops, name, "update", json!({}));
        }
    }
    Ok(rows.events)
}

/// The rows of a replica, and where the last event ended.
struct Rows {
    ops: usize,
    sums: usize,
    zero: Instant,
    last: Instant,
    events: Vec<Value>,
}

impl Rows {
    /// Forgets all events, and names the rows.
    fn begin(&mut self, rank: usize) {
        let name = |row: usize, name: String| json!({ "name": "thread_name", "ph": "M", "pid": 0, "tid": row, "args": { "name": name } });
        self.events = vec![
            name(self.ops, format!("replica {rank}")),
            name(self.sums, format!("replica {rank}: sum over replicas")),
        ];
    }

    /// The work since the last event.
    fn add(&mut self, row: usize, name: &str, category: &str, args: Value) {
        self.add_until(Instant::now(), row, name, category, args);
    }

    /// The work from the last event until `ended`. The next one begins now, because adding an event takes
    /// time too.
    fn add_until(&mut self, ended: Instant, row: usize, name: &str, category: &str, args: Value) {
        let [from, to] = [self.last, ended].map(|time| (time - self.zero).as_secs_f64() * 1e6);
        self.events.push(json!({
            "name": name, "cat": category, "ph": "X", "pid": 0, "tid": row, "ts": from, "dur": to - from, "args": args,
        }));
        self.last = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towers_config::{DeviceKind, recipe};

    #[test]
    fn every_replica_has_a_row_of_ops_and_one_of_sums() {
        let mut config = recipe("quick").unwrap();
        (
            config.placement.devices.device,
            config.placement.devices.replicas,
            config.placement.devices.threads,
        ) = (DeviceKind::Cpu, 2, 2);
        let options = BenchOptions { batch: Some(2), ..BenchOptions::default() };
        let Timeline { events, .. } = timeline(&config, &options).unwrap();
        let names: Vec<&str> = events.iter().filter_map(|event| event["args"]["name"].as_str()).collect();
        let expected =
            ["replica 0", "replica 0: sum over replicas", "replica 1", "replica 1: sum over replicas"];
        assert_eq!(names, expected);
        for row in 0..4 {
            let own: Vec<&Value> =
                events.iter().filter(|event| event["tid"] == row && event["ph"] == "X").collect();
            assert_eq!(own.len() % STEPS, 0);
            assert!(own.len() > if row % 2 == 0 { 20 * STEPS } else { 0 }, "row {row}");
            let ends = own.iter().map(|event| event["ts"].as_f64().unwrap() + event["dur"].as_f64().unwrap());
            let begins = own.iter().skip(1).map(|event| event["ts"].as_f64().unwrap());
            assert!(
                ends.zip(begins).all(|(end, begin)| end <= begin + 1e-6),
                "events of a row follow one another"
            );
        }
    }
}
