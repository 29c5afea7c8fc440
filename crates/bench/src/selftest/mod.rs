//! `towers selftest`: the results of a device, compared with those of the CPU and of the f64 reference.

mod report;

pub use report::{SelfTest, TestRow};

use crate::{Error, Result, subject};
use config::{Arithmetic, Config, Devices};
use conformance::{Subject, checks};
use layers::{Comparison, Initializer};
use options::Message;
use parallel::run_replicas;
use program::{Device, Precision, Span};
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;
use tensor_cuda::Cuda;
use train::{REPLAY, SampleStep, comparison_device, count_gpus, open_devices, way_around};

/// What a self-test runs.
#[derive(Clone, Debug, Default)]
pub struct SelfTestOptions {
    /// The precisions; by default all that the device has.
    pub precisions: Vec<Precision>,
    /// The tests, by their names; by default all.
    pub only: Vec<String>,
}

/// The test of a collective.
const SUMS: &str = "sums";

/// Samples of the batch of a GPU. The CPU gets one, since the f64 reference is slow.
const SAMPLES: usize = 8;

/// Numbers that replicas add up.
const ADDENDS: usize = 100_000;

impl SelfTestOptions {
    /// The names of all tests.
    pub fn names() -> Vec<&'static str> {
        let mut names: Vec<_> = checks().iter().map(|check| check.topic).collect();
        names.dedup();
        names.into_iter().chain(models::NAMES).chain([SUMS]).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

/// Tests the first device of a configuration: every op against the f64 reference, a training step of each
/// network, the replay of a graph, and the sums over replicas. `tell` gets each row at once.
///
/// ```
/// use bench::{SelfTestOptions, selftest};
///
/// let only = ["pooling", "small_cnn", "sums"].map(str::to_owned).to_vec();
/// let config = config::recipe("quick")?.with(|config| config.placement.devices.device = config::DeviceKind::Cpu);
/// let found = selftest(&config, &SelfTestOptions { only, ..SelfTestOptions::default() }, |_| ())?;
/// assert!(found.rows.len() >= 3 && found.failures().count() == 0);
/// # Ok::<(), bench::Error>(())
/// ```
///
/// # Errors
/// If there is no such device. A test that fails is a row.
pub fn selftest(
    config: &Config,
    options: &SelfTestOptions,
    tell: impl FnMut(&TestRow) + Send,
) -> Result<SelfTest> {
    let began = Instant::now();
    let of = |precision| Arithmetic { precision, ..config.training.arithmetic };
    let open = |precision| subject::device_with(config, &of(precision));
    let first = open(options.precisions.first().copied().unwrap_or_default())?;
    let kind = first.kind();
    let precisions = match &options.precisions[..] {
        [] if kind != "cpu" => Precision::ALL.to_vec(),
        [] if tensor_cpu::bf16_level().is_some() => vec![Precision::Fp32, Precision::Bf16],
        [] => vec![Precision::Fp32],
        given => given.to_vec(),
    };
    let (mut facts, device) = (report::facts(config), first.model());
    let tell = Mutex::new(tell);
    let tell = |row: &TestRow| tell.lock().unwrap_or_else(PoisonError::into_inner)(row);
    let of_precision = |precision| {
        let mut tests = Tests { rows: Vec::new(), options, tell: &tell };
        match if precision == first.precision() { Ok(first.clone()) } else { open(precision) } {
            Ok(device) => {
                tests.ops(&device);
                tests.networks(&device);
                (tests.rows, report::algorithms(&device))
            }
            Err(why) => {
                tests.test(precision, "open the device", || Err(why));
                (tests.rows, Vec::new())
            }
        }
    };
    // The f64 reference takes most of the time, and one thread: so the precisions are tested side by side.
    let found = thread::scope(|scope| {
        let of_precision = &of_precision;
        let start = |&precision| scope.spawn(move || of_precision(precision));
        let threads: Vec<_> = precisions.iter().map(start).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|ended| ended.unwrap_or_else(|panic| resume_unwind(panic))).collect::<Vec<_>>()
    });
    let mut rows = Vec::new();
    for (own, algorithms) in found {
        rows.extend(own);
        facts.extend(algorithms);
    }
    let mut tests = Tests { rows, options, tell: &tell };
    tests.sums(&config.placement.devices, &of(precisions[0]), kind);
    Ok(SelfTest { device, facts, rows: tests.rows, seconds: began.elapsed().as_secs_f64() })
}

/// The tests so far.
struct Tests<'a> {
    rows: Vec<TestRow>,
    options: &'a SelfTestOptions,
    tell: &'a (dyn Fn(&TestRow) + Sync),
}

/// What a test found: results, the largest difference as a part of the tolerance, and the failure.
type Found = (usize, f32, Option<Message>);

impl Tests<'_> {
    /// Runs a test.
    fn test(&mut self, precision: Precision, name: &str, test: impl FnOnce() -> Result<Found>) {
        let began = Instant::now();
        let failed = |error: Error| (0, f32::INFINITY, Some(error.message()));
        let (results, worst, failure) = test().unwrap_or_else(failed);
        let (name, seconds) = (name.to_owned(), began.elapsed().as_secs_f64());
        let row = TestRow { precision, name, results, worst, seconds, failure };
        (self.tell)(&row);
        self.rows.push(row);
    }

    /// Every op against the f64 reference, a row for each topic.
    fn ops(&mut self, device: &Device) {
        let loss_scale = device.loss_scale().ok().flatten().map_or(1.0, |[scale, _]| scale);
        let subject = Subject::new([("the device".to_owned(), device.clone())]);
        let subject = subject.precision(device.precision()).loss_scale(loss_scale);
        let is_emulated = device.get::<Cuda>().is_some_and(Cuda::is_emulated);
        let subject = if is_emulated { subject.slow() } else { subject };
        for topic in checks().chunk_by(|a, b| a.topic == b.topic) {
            let name = topic[0].topic;
            if !self.options.has(name) {
                continue;
            }
            self.test(device.precision(), name, || {
                let (mut results, mut worst) = (0, 0.0_f32);
                for check in topic {
                    let checked = check.run(&subject);
                    (results, worst) = (results + checked.results, worst.max(checked.worst));
                    if let Some(why) = checked.failure {
                        let why = Message::from(format!("{}: {why}; ", check.name));
                        return Ok((results, worst, Some(why.and(way_around(device, name)))));
                    }
                }
                Ok((results, worst, None))
            });
        }
    }

    /// A training step of each network, of which another device repeats each op, and the replay of its graph.
    fn networks(&mut self, device: &Device) {
        let other = comparison_device(device);
        let samples = if device.kind() == "cpu" { 1 } else { SAMPLES };
        for name in models::NAMES.into_iter().filter(|name| self.options.has(name)) {
            let mut replayed = Vec::new();
            self.test(device.precision(), name, || {
                let model = models::by_name(name, 10).ok_or_else(|| Error::Device(name.into()))??;
                let step = SampleStep::random(model, "sgd:momentum=0.9".parse()?, samples);
                let results = step.compare(device, &other)?.into_iter();
                let (of_graph, of_ops): (Vec<_>, Vec<_>) = results.partition(|result| result.op == REPLAY);
                replayed = of_graph;
                Ok(judge(device, &of_ops))
            });
            if !replayed.is_empty() {
                let name = format!("{name}, replayed");
                self.test(device.precision(), &name, || Ok(judge(device, &replayed)));
            }
        }
    }

    /// The sums over a replica on each GPU, or over two on the only device.
    fn sums(&mut self, devices: &Devices, arithmetic: &Arithmetic, kind: &str) {
        if !self.options.has(SUMS) {
            return;
        }
        let all = (kind != "cpu" && devices.gpus.is_none() && count_gpus() > 1)
            .then(|| (0..count_gpus()).collect());
        let gpus = all.or_else(|| devices.gpus.clone());
        let each = gpus.as_ref().map_or(2, |gpus: &Vec<usize>| gpus.len().max(2));
        let replicas = if devices.replicas == 0 { each } else { devices.replicas };
        let devices = Devices { gpus, replicas, ..devices.clone() };
        self.test(arithmetic.precision, SUMS, || {
            let opened = open_devices(&devices, arithmetic)?;
            let own = |rank: usize| Initializer::Normal(0.0, 1.0).values(rank as u64, SUMS, &[ADDENDS]);
            let sums = run_replicas(&opened, |mut replica| {
                let (device, rank) = (replica.device.clone(), replica.rank());
                let mut data = device.alloc(ADDENDS)?;
                device.upload(&own(rank), &mut data, 0)?;
                replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, ADDENDS))?;
                Ok::<_, Error>(data.to_vec(&device, 0, ADDENDS)?)
            })?;
            let mut expected = vec![0.0_f32; ADDENDS];
            for rank in 0..opened.len() {
                expected.iter_mut().zip(own(rank)).for_each(|(sum, x)| *sum += x);
            }
            let how = layers::Tolerance::of(Precision::Fp32);
            let compare = |(rank, sums): (usize, &Vec<f32>)| {
                let layer = format!("{} replicas, on rank {rank}", opened.len());
                Comparison::new(&layer, "the sum", [sums, &expected], &how)
            };
            let results: Vec<_> = sums.iter().enumerate().map(compare).collect();
            let (count, worst, failure) = judge(&opened[0], &results);
            let is_same =
                sums.iter().all(|own| own.iter().zip(&sums[0]).all(|(a, b)| a.to_bits() == b.to_bits()));
            let differ = || Some("replicas have sums with different bits".into());
            Ok((count, worst, if is_same { failure } else { differ() }))
        });
    }
}

/// The largest difference, and the first result that is wrong.
fn judge(device: &Device, results: &[Comparison]) -> Found {
    let part = |result: &Comparison| result.difference / result.tolerance;
    let worst = results.iter().map(part).fold(0.0, f32::max);
    let wrong = results.iter().find(|result| !result.agrees());
    let failure = wrong.map(|wrong| Message::from(format!("{wrong}; ")).and(way_around(device, &wrong.op)));
    (results.len(), worst, failure)
}
