//! `towers selftest`: the results of a device, compared with those of the CPU and of the f64 reference.

use crate::report::{self, SelfTestReport, TestRow};
use crate::sample_step::{REPLAY, SampleStep, comparison_device, way_around};
use crate::{Error, gpus};
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;
use towers_conformance::{Subject, checks};
use towers_layers::{Comparison, Initializer};
use towers_optim::Sgd;
use towers_options::Message;
use towers_parallel::run_replicas;
use towers_program::{Device, Precision, Span};

/// The test of a collective.
const SUMS: &str = "sums";

/// Samples of the batch of a GPU. The CPU gets one, since the f64 reference is slow.
const SAMPLES: usize = 8;

/// Numbers that replicas add up.
const ADDENDS: usize = 100_000;

type Open<'a> = Box<dyn Fn(Precision) -> Result<Device, Message> + Sync + 'a>;
type OpenReplicas<'a> = Box<dyn Fn() -> Result<Vec<Device>, Message> + 'a>;

/// Tests a device: every op against the f64 reference, a training step of each network, the replay of a graph, and
/// sums over replicas.
///
/// ```
/// use towers_diagnose::SelfTest;
///
/// let device = towers_tensor_cpu::device(1);
/// let report = SelfTest::on(&device)
///     .only(["pooling", "small_cnn", "sums"])
///     .replicas(|| Ok(vec![towers_tensor_cpu::device(1); 2]))
///     .run(|row| println!("{} {}", row.name, row.percent()));
/// assert!(report.rows.len() == 3 && report.failures().count() == 0);
/// assert!(report.markdown().starts_with("# `towers selftest` on the CPU"));
/// ```
#[must_use = "a self-test begins with `run`"]
pub struct SelfTest<'a> {
    device: Device,
    only: Vec<String>,
    open: Option<Open<'a>>,
    replicas: Option<OpenReplicas<'a>>,
}

impl<'a> SelfTest<'a> {
    /// The test of this device, in its precision.
    pub fn on(device: &Device) -> Self {
        SelfTest { device: device.clone(), only: Vec::new(), open: None, replicas: None }
    }

    /// The names of all tests.
    pub fn names() -> Vec<&'static str> {
        let mut names: Vec<_> = checks().iter().map(|check| check.topic).collect();
        names.dedup();
        names.into_iter().chain(towers_models::NAMES).chain([SUMS]).collect()
    }

    /// These of the [`names`](SelfTest::names) alone, or without any all of them.
    pub fn only(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        SelfTest { only: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// All precisions of such a device. `open` opens it in another one.
    pub fn precisions(self, open: impl Fn(Precision) -> Result<Device, Message> + Sync + 'a) -> Self {
        SelfTest { open: Some(Box::new(open)), ..self }
    }

    /// Also the sums over replicas, for each of which `open` opens a device.
    pub fn replicas(self, open: impl Fn() -> Result<Vec<Device>, Message> + 'a) -> Self {
        SelfTest { replicas: Some(Box::new(open)), ..self }
    }

    /// Runs the tests. `tell` gets each row at once. A test that fails is a row.
    pub fn run(self, tell: impl FnMut(&TestRow) + Send) -> SelfTestReport {
        let began = Instant::now();
        let SelfTest { device, only, open, replicas } = self;
        let precisions = match &open {
            None => vec![device.precision()],
            Some(_) if device.kind() != "cpu" => Precision::ALL.to_vec(),
            Some(_) if towers_tensor_cpu::bf16_level().is_some() => vec![Precision::Fp32, Precision::Bf16],
            Some(_) => vec![Precision::Fp32],
        };
        let mut facts = report::facts(&device);
        let tell = Mutex::new(tell);
        let tell = |row: &TestRow| tell.lock().unwrap_or_else(PoisonError::into_inner)(row);
        let none = || Tests { rows: Vec::new(), only: &only, tell: &tell };
        let of_precision = |precision| {
            let mut tests = none();
            let opened = match &open {
                Some(open) if precision != device.precision() => open(precision),
                _ => Ok(device.clone()),
            };
            match opened {
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
        let mut tests = none();
        for (own, algorithms) in found {
            tests.rows.extend(own);
            facts.extend(algorithms);
        }
        if let Some(open) = replicas {
            tests.sums(device.precision(), open);
        }
        let (device, seconds) = (device.model(), began.elapsed().as_secs_f64());
        SelfTestReport { device, facts, rows: tests.rows, seconds }
    }
}

/// The tests so far.
struct Tests<'a> {
    rows: Vec<TestRow>,
    only: &'a [String],
    tell: &'a (dyn Fn(&TestRow) + Sync),
}

/// The findings of a test: results, the largest difference as a part of the tolerance, and the failure.
type Found = (usize, f32, Option<Message>);

impl Tests<'_> {
    fn has(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// Runs a test.
    fn test(&mut self, precision: Precision, name: &str, test: impl FnOnce() -> Result<Found, Message>) {
        let began = Instant::now();
        let failed = |why: Message| (0, f32::INFINITY, Some(why));
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
        let subject = if gpus::is_emulated(device) == Some(true) { subject.slow() } else { subject };
        for topic in checks().chunk_by(|a, b| a.topic == b.topic) {
            let name = topic[0].topic;
            if !self.has(name) {
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
        let networks = towers_models::NAMES
            .into_iter()
            .filter_map(|name| Some((name, towers_models::by_name(name, 10)?)));
        for (name, model) in networks {
            if !self.has(name) {
                continue;
            }
            let mut replayed = Vec::new();
            self.test(device.precision(), name, || {
                let step =
                    SampleStep::random(model.map_err(Error::from)?, Sgd::keras().momentum(0.9), samples);
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

    /// The sums over replicas on these devices.
    fn sums(&mut self, precision: Precision, open: impl Fn() -> Result<Vec<Device>, Message>) {
        if !self.has(SUMS) {
            return;
        }
        self.test(precision, SUMS, || {
            let opened = open()?;
            let first = opened.first().ok_or("there is no device")?;
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
            let how = towers_layers::Tolerance::of(Precision::Fp32);
            let compare = |(rank, sums): (usize, &Vec<f32>)| {
                let layer = format!("{} replicas, on rank {rank}", opened.len());
                Comparison::new(&layer, "the sum", [sums, &expected], &how)
            };
            let results: Vec<_> = sums.iter().enumerate().map(compare).collect();
            let (count, worst, failure) = judge(first, &results);
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
