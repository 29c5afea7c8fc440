use crate::options::{LEAST_WARMUP, batch_size, check_training};
use crate::subject::{self, After, after_passes, step_options};
use crate::{BenchOptions, Error, Result, Setup};
use serde::Serialize;
use std::time::Instant;
use towers_config::Config;
use towers_layers::Network;
use towers_parallel::{Collective, Exchanges, GraphCapture, Replica, run_replicas};
use towers_program::{Device, OptimizerState, ReplayArgs, Span};
use towers_train::median;
use towers_train::rendezvous::Agreement;
use towers_train::{Meter, Process, StepOptions, gradients, open_devices};

/// Replicas that train together, and the parts of their steps' time: the output of `towers bench --replicas N
/// --json`.
///
/// A step takes as long as the slowest replica computes, and as the sum of the gradients takes that no computing hides:
/// `step_s = slowest_s + exchange_s`. Replicas with equal shares of the work that compute unequally long sit on devices of
/// unequal speed; more of the slowest's time than of each one's mean says that they take turns in being slow.
#[derive(Clone, Debug, Serialize)]
pub struct ReplicaBench {
    /// What was measured, and on what.
    #[serde(flatten)]
    pub setup: Setup,
    /// How many replicas there are.
    pub replicas: usize,
    /// Of all replicas together: the median over the repeats.
    pub images_per_s: f64,
    /// Every repeat's throughput.
    pub repeats: Vec<f64>,
    /// How many steps were measured.
    pub steps: usize,
    /// Seconds of a step, the mean over the steps.
    pub step_s: f64,
    /// Seconds in which each replica computes, by rank, the means over the steps. Empty on devices that run ahead of the host, where
    /// no clock of the host can tell.
    pub computing_s: Vec<f64>,
    /// Seconds in which the replica computes that is the slowest of its step, the mean over the steps.
    pub slowest_s: Option<f64>,
    /// Seconds of a step in which no replica computes: the part of the sum over all replicas that no
    /// computation hides.
    pub exchange_s: Option<f64>,
    /// The mean loss of the last step's batch.
    pub last: f64,
    /// Why a device that can play back recorded steps was told each op of each step; `None` where all went as it should.
    pub not_recorded: Option<String>,
}

/// Measures the throughput of replicas that train a recipe's network together, each on random data that is already on its device.
///
/// # Errors
/// The errors of the devices; [`towers_config::Error::Option`] for inference, in which replicas share no work.
pub fn bench_replicas(config: &Config, options: &BenchOptions) -> Result<ReplicaBench> {
    check_training(options)?;
    let devices = open_devices(&config.placement.devices, &config.training.arithmetic)?;
    let results = run_replicas(&devices, |replica| bench_replica(config, options, replica))?;
    results.into_iter().next().ok_or_else(|| Error::Device("there is no device".into()))
}

/// As [`bench_replicas`], with this process's replica together with those of the other processes; all return the same.
///
/// # Errors
/// As [`bench_replicas`]; and if another process failed, did not come in time, or was asked to measure something else.
pub fn bench_process(process: Process, config: &Config, options: &BenchOptions) -> Result<ReplicaBench> {
    check_training(options)?;
    process.run(config, &facts(config, options), |replica| bench_replica(config, options, replica))
}

/// What must be the same in all processes that measure together, besides the arithmetic.
fn facts(config: &Config, options: &BenchOptions) -> Agreement {
    Agreement::new()
        .with("the network", &config.training.model)
        .with("the optimizer", config.training.optimizer)
        .with("images of", towers_config::ImageSize::of(config.training.data.image()))
        .with("a batch of", batch_size(config, options))
        .with("a time of", format_args!("{} s, {} times", options.seconds, options.repeats))
}

/// One of the replicas. All return the same.
fn bench_replica(config: &Config, options: &BenchOptions, replica: Replica) -> Result<ReplicaBench> {
    let mut subject = Subject::new(config, options, replica)?;
    for _ in 0..options.warmup.max(LEAST_WARMUP) {
        subject.step()?;
    }
    let began = Instant::now();
    subject.step()?;
    subject.device.synchronize()?;
    let step = subject.all(&[began.elapsed().as_secs_f64()])?.into_iter().fold(1e-6, f64::max);
    let steps = ((options.seconds / step).ceil() as usize).clamp(3, MOST_STEPS);
    let (mut computing, mut seconds, mut repeats) = (Vec::new(), 0.0, Vec::new());
    for _ in 0..options.repeats.max(1) {
        let own = subject.run(steps)?;
        computing.push(subject.all(&own.computing)?);
        // Replicas leave the last sum at one time, but for a moment.
        let all = subject.all(&[own.seconds])?.into_iter().fold(0.0, f64::max);
        seconds += all;
        repeats.push((steps * subject.batch * subject.world) as f64 / all);
    }
    let told = !subject.device.runs_ahead();
    let times = Times::of(&computing, subject.world);
    let step_s = seconds / (steps * repeats.len()) as f64;
    Ok(ReplicaBench {
        setup: Setup::of(config, options, subject.batch, &subject.device),
        replicas: subject.world,
        images_per_s: median(&repeats),
        steps: steps * repeats.len(),
        repeats,
        step_s,
        slowest_s: told.then_some(times.slowest),
        exchange_s: told.then_some(step_s - times.slowest),
        computing_s: if told { times.mean } else { Vec::new() },
        last: subject.loss()?,
        not_recorded: subject.capture.refusal().map(str::to_owned),
    })
}

/// Of one repeat.
const MOST_STEPS: usize = 100_000;

/// How long replicas computed, the means over all steps.
struct Times {
    mean: Vec<f64>,
    slowest: f64,
}

impl Times {
    /// Each repeat has the steps of the first replica, then those of the next, and so on.
    fn of(repeats: &[Vec<f64>], world: usize) -> Self {
        let steps: usize = repeats.iter().map(|repeat| repeat.len() / world).sum();
        let (mut mean, mut slowest) = (vec![0.0; world], 0.0);
        for repeat in repeats {
            let per_replica = repeat.len() / world;
            for step in 0..per_replica {
                let each = (0..world).map(|rank| repeat[rank * per_replica + step]);
                mean.iter_mut().zip(each.clone()).for_each(|(mean, s)| *mean += s / steps as f64);
                slowest += each.fold(0.0, f64::max) / steps as f64;
            }
        }
        Times { mean, slowest }
    }
}

/// What one replica measured in one repeat.
struct Measured {
    seconds: f64,
    /// Of each step.
    computing: Vec<f64>,
}

/// A replica's network with a batch of random data in place.
struct Subject<'a> {
    config: &'a Config,
    device: Device,
    /// In front of the collective, which goes after the recordings of its sums.
    capture: GraphCapture<Part>,
    collective: Box<dyn Collective>,
    world: usize,
    batch: usize,
    network: Network,
    optimizer: OptimizerState,
    buckets: Vec<Span>,
    meter: Meter,
    number: u64,
}

/// The recorded parts of a step: before a sum over all replicas, and after it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Gradients,
    /// The number of the pass that it follows on.
    After(usize),
}

impl<'a> Subject<'a> {
    fn new(config: &'a Config, options: &BenchOptions, replica: Replica) -> Result<Self> {
        let Replica { device, collective } = replica;
        let world = collective.world();
        let subject = subject::Subject::on(device, config, options)?;
        let subject::Subject { device, network, optimizer, meter, batch, .. } = subject;
        let (buckets, capture, number) = (network.buckets(), GraphCapture::default(), 0);
        Ok(Subject {
            config,
            device,
            collective,
            world,
            batch,
            network,
            optimizer,
            buckets,
            meter,
            capture,
            number,
        })
    }

    /// Makes so many steps, together with the other replicas.
    fn run(&mut self, steps: usize) -> Result<Measured> {
        let mut computing = Vec::with_capacity(steps);
        self.collective.barrier()?;
        let began = Instant::now();
        // The update belongs to the computing that comes before the next sum.
        let mut update = 0.0;
        for _ in 0..steps {
            let (gradients, then) = self.step()?;
            computing.push(update + gradients);
            update = then;
        }
        self.device.synchronize()?;
        Ok(Measured { seconds: began.elapsed().as_secs_f64(), computing })
    }

    /// One step. Returns the seconds before the last sum over all replicas, and those after it.
    fn step(&mut self) -> Result<(f64, f64)> {
        let numbers = step_options(self.config, self.number, self.batch * self.world);
        self.number += 1;
        let mut seconds = (0.0, 0.0);
        for (pass, (after, _)) in after_passes(&self.optimizer).iter().enumerate() {
            let (own, rest) = self.pass(&numbers, Part::After(pass), *after)?;
            seconds = (seconds.0 + seconds.1 + own, rest);
        }
        Ok(seconds)
    }

    /// A pass, the sum over all replicas, and the work that follows. Returns the seconds before the sum, and those after it.
    fn pass(&mut self, numbers: &StepOptions, part: Part, after: After) -> Result<(f64, f64)> {
        let Subject { device, collective, network, optimizer, buckets, meter, capture, .. } = self;
        let turn = ReplayArgs { step: numbers.draws.step, lr: numbers.lr as f32, first: 0 };
        let began = Instant::now();
        capture.run(device, collective.as_mut(), &Part::Gradients, &turn, |collective| {
            let exchanges = Some(Exchanges::of_replicas(collective).with_sums(None, &[]));
            gradients(network, numbers, exchanges).map(drop)
        })?;
        let before = began.elapsed().as_secs_f64();
        collective.finish_all_reduce(device, None, buckets, &mut network.arena_mut().grads)?;
        let began = Instant::now();
        capture
            .run(device, collective.as_mut(), &part, &turn, |_| after(network, optimizer, meter, numbers))?;
        Ok((before, began.elapsed().as_secs_f64()))
    }

    /// What all replicas have measured, one replica behind the other.
    fn all(&mut self, own: &[f64]) -> Result<Vec<f64>> {
        Ok(self.collective.gather_numbers(&self.device, own)?)
    }

    /// The mean loss of the last step over all replicas.
    fn loss(&self) -> Result<f64> {
        let loss = self.network.metrics()?.loss_sum / (self.batch * self.world) as f64;
        if loss.is_finite() {
            return Ok(loss);
        }
        Err(Error::NotFinite { loss, epoch: 1, step: self.number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BenchMode;
    use towers_config::{DeviceKind, recipe};

    #[test]
    fn a_step_waits_for_its_slowest_replica() {
        // Two replicas, which take turns in being slow, in two repeats.
        let times = Times::of(&[vec![1.0, 3.0, 2.0, 1.0], vec![2.0, 2.0, 2.0, 2.0]], 2);
        assert_eq!(times.mean, [2.0, 1.75]);
        assert_eq!(times.slowest, (2.0 + 3.0 + 2.0 + 2.0) / 4.0);
    }

    #[test]
    fn replicas_are_measured_together() {
        let mut config = recipe("quick").unwrap();
        (
            config.placement.devices.device,
            config.placement.devices.replicas,
            config.placement.devices.threads,
        ) = (DeviceKind::Cpu, 3, 3);
        let options =
            BenchOptions { batch: Some(2), seconds: 0.0, repeats: 2, warmup: 0, ..BenchOptions::default() };
        let result = bench_replicas(&config, &options).unwrap();
        assert_eq!((result.replicas, result.setup.batch, result.steps, result.setup.threads), (3, 2, 6, 1));
        assert_eq!(result.computing_s.len(), 3);
        let slowest = result.slowest_s.unwrap();
        assert!(result.computing_s.iter().all(|seconds| *seconds > 0.0 && *seconds <= slowest));
        assert!(result.last.is_finite() && result.images_per_s > 0.0);
    }

    #[test]
    fn inference_is_not_done_together() {
        let options = BenchOptions { mode: BenchMode::Infer, ..BenchOptions::default() };
        let error = bench_replicas(&recipe("quick").unwrap(), &options).unwrap_err().to_string();
        assert!(error.contains("infer"), "{error}");
    }

    #[test]
    fn benchmarks_are_of_images_of_one_size() {
        let of = |image_size: &str| {
            let mut config = recipe("quick").unwrap();
            config.training.data.image_size = Some(image_size.parse().unwrap());
            facts(&config, &BenchOptions::default())
        };
        assert_eq!(of("32"), of("32x32"));
        assert_ne!(of("32"), of("48x32"));
    }
}
