//! A recorded step, replayed with the numbers of each turn, against the same ops run one by one.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

use crate::harness::*;
use towers_optim::{Sgd, WeightDecay};
use towers_program::ops::{CrossEntropy, Dropout, LinearWeightGradient};
use towers_program::{
    Arena, Backend, CapturedGraph as _, ImageSet, Layout, Linear, LoadImages, Noise, ParamRun, Precision,
    ReplayArgs, Shape, Span, StepArgs, Storage, TensorId, Trial, TrialRun, ViewMut, Write,
};
use towers_tensor_cuda::{Cuda, Options};

/// Numbers of an arena.
const LEN: usize = 333;
/// So many that their loss comes from several blocks.
const SAMPLES: usize = 700;

/// Everything that a step of these ops reads and writes.
struct Step<'a> {
    cuda: &'a Cuda,
    ops: TrialRun<'a>,
    /// The outputs of dropout and loss, and the metrics.
    results: [TensorId; 3],
    params: Storage,
    grads: Storage,
    velocity: Storage,
    meter: Storage,
}

impl<'a> Step<'a> {
    fn new(cuda: &'a Cuda) -> Step<'a> {
        let mut trial = Trial::new(SAMPLES);
        let batch = |trial: &mut Trial, name: &str, c: usize| {
            let shape = Shape::vectors(SAMPLES, c);
            let at = Layout { offset: 16, shape, stride: c + 24 };
            let precision = cuda.options().precision;
            let values: Vec<f32> = numbers(name, at.end()).iter().map(|&x| rounded(precision, x)).collect();
            trial.activations(at, &values)
        };
        let [x, y] = ["x", "y"].map(|name| batch(&mut trial, name, 24));
        let [logits, dlogits] = ["logits", "dlogits"].map(|name| batch(&mut trial, name, 10));
        let labels = trial.labels(&(0..SAMPLES as u32).map(|k| k % 10).collect::<Vec<_>>());
        let metrics = trial.run(Arena::Gradients, &[0.0; 2]);
        trial.step(Dropout { rate: 0.4, noise: Noise::Element, domain: 5 }, &[x], &[y], Write::Add);
        trial.step(
            CrossEntropy { gradient: true, multi_label: false },
            &[logits, labels],
            &[dlogits, metrics],
            Write::Set,
        );
        let arena = |name| upload(cuda, &numbers(name, LEN)).unwrap();
        let (params, grads, velocity) = (arena("p"), arena("g"), arena("v"));
        let (ops, meter) = (trial.on(cuda).unwrap(), cuda.alloc(4).unwrap());
        Step { cuda, ops, results: [y, dlogits, metrics], params, grads, velocity, meter }
    }

    fn run(&mut self, replay: &ReplayArgs) {
        let args = StepArgs {
            step: replay.step,
            seed: 6,
            first_sample: 64,
            label_smoothing: 0.1,
            global_batch: 1000,
            ..StepArgs::inference(SAMPLES)
        };
        self.ops.run(&args).unwrap();
        let metrics = self.ops.executable.span(self.results[2]);
        self.cuda.meter(&self.ops.gradients, metrics, &mut self.meter).unwrap();
        let run = ParamRun::new(Span::new(4, LEN - 9), WeightDecay::Decoupled(0.01));
        let (rule, state) = (Sgd::keras().momentum(0.9).nesterov().into(), &mut [&mut self.velocity]);
        self.cuda.optimizer_step(&rule, replay.lr, &mut self.params, &self.grads, state, &[run]).unwrap();
    }

    fn bits(&self) -> Vec<u32> {
        let of_ops = self.results.into_iter().flat_map(|id| self.ops.read(id, SAMPLES).unwrap());
        let buffers = [&self.params, &self.velocity, &self.meter].into_iter();
        let of_buffers =
            buffers.flat_map(|buffer| download(self.cuda, buffer, Span::new(0, buffer.len())).unwrap());
        of_ops.chain(of_buffers).map(f32::to_bits).collect()
    }
}

#[test]
fn replays_have_the_bits_of_eager_steps() {
    for precision in PRECISIONS {
        let turns: Vec<ReplayArgs> =
            (0..5).map(|k| ReplayArgs { step: 1 << (10 * k), lr: 0.1 / (k + 1) as f32, first: 0 }).collect();
        let (one, other) = (emulated(precision), emulated(precision));
        let (mut eager, mut recorded) = (Step::new(&one), Step::new(&other));
        for step in [&mut eager, &mut recorded] {
            step.run(&turns[0]);
        }
        recorded.cuda.begin_capture().unwrap();
        recorded.run(&ReplayArgs::default());
        let graph = recorded.cuda.end_capture().unwrap();
        assert_eq!(recorded.bits(), eager.bits(), "writing ops down carries none out");
        for args in &turns[1..] {
            eager.run(args);
            graph.replay(args).unwrap();
            assert_eq!(recorded.bits(), eager.bits(), "{args:?} in {precision}");
        }
    }
}

#[test]
fn options_take_the_graph_or_its_branches_away() {
    let open = |options| Cuda::emulated_with(options).unwrap();
    assert!(open(Options::default()).captures_graphs());
    assert!(!open(Options { no_graph: true, ..Options::default() }).captures_graphs());
    let size = |one_stream| {
        let cuda = open(Options { one_stream, ..Options::default() });
        let [mut a, mut b] = [(); 2].map(|()| cuda.alloc(3).unwrap());
        let mut fill = || {
            cuda.fill(1.0, &mut a, Span::new(0, 3)).unwrap();
            cuda.fill(1.0, &mut b, Span::new(0, 3)).unwrap();
        };
        fill();
        cuda.begin_capture().unwrap();
        fill();
        cuda.end_capture().unwrap().size()
    };
    assert_eq!(size(false), [2, 1], "both may run at once");
    assert_eq!(size(true), [0, 0], "one sequence, which is not looked at in pieces");
}

/// The emulated driver does the work of a capture in any order that it allows, so several replays see several.
const REPLAYS: u64 = 12;

/// What the ops leave when they run one by one must be what every replay leaves, from the same beginning.
fn replays_agree(
    cuda: &Cuda,
    begin: impl Fn(),
    ops: &mut dyn FnMut(),
    left: impl Fn() -> Vec<f32>,
) -> [usize; 2] {
    begin();
    ops();
    begin();
    ops();
    let bits = || left().into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let expected = bits();
    cuda.begin_capture().unwrap();
    ops();
    let graph = cuda.end_capture().unwrap();
    for step in 0..REPLAYS {
        begin();
        graph.replay(&ReplayArgs { step, lr: 0.5, first: 0 }).unwrap();
        assert!(bits() == expected, "replay {step}");
    }
    graph.size()
}

/// Sums in two pieces of work each, with scratch memory between them and nothing in common otherwise.
#[test]
fn ops_that_share_scratch_memory_wait_for_each_other() {
    let cuda = emulated(Precision::Fp32);
    let (linear, mut trial) = (Linear { inputs: 1, outputs: 256 }, Trial::new(70));
    let biases: Vec<TensorId> = (0..10)
        .map(|k| {
            let [x, dy] = [1, 256].map(|c| {
                let shape = Shape::vectors(70, c);
                trial.activations(Layout::contiguous(shape), &numbers(&format!("{c} {k}"), shape.len()))
            });
            let [w, b] = [(); 2].map(|()| trial.run(Arena::Gradients, &[0.0; 256]));
            trial.step(LinearWeightGradient { linear, bias: true }, &[x, dy], &[w, b], Write::Set);
            b
        })
        .collect();
    let run = core::cell::RefCell::new(trial.on(&cuda).unwrap());
    let spans: Vec<Span> = biases.iter().map(|&b| run.borrow().executable.span(b)).collect();
    let begin = || spans.iter().for_each(|&b| cuda.fill(7.0, &mut run.borrow_mut().gradients, b).unwrap());
    let mut ops = || run.borrow_mut().run_steps(0..10, &StepArgs::inference(70)).unwrap();
    let left = || spans.iter().flat_map(|&b| download(&cuda, &run.borrow().gradients, b).unwrap()).collect();
    let [works, chain] = replays_agree(&cuda, begin, &mut ops, left);
    assert!(works >= 30 && chain < works, "{works} pieces of work, {chain} in a chain");
}

/// A loss that is not finite keeps the parameters from moving, with which it has nothing in common but the turn.
#[test]
fn a_step_waits_for_what_may_halt_it() {
    let cuda = emulated(Precision::Fp16);
    let sums = upload(&cuda, &[f32::NAN, 0.0]).unwrap();
    let meter = core::cell::RefCell::new(cuda.alloc(4).unwrap());
    let params = core::cell::RefCell::new(upload(&cuda, &numbers("p", LEN)).unwrap());
    let grads = upload(&cuda, &numbers("g", LEN)).unwrap();
    let begin = || {
        cuda.set_loss_scale([1.0, 0.0]).unwrap();
        cuda.fill(0.0, &mut meter.borrow_mut(), Span::new(0, 4)).unwrap();
        cuda.upload(&numbers("p", LEN), &mut params.borrow_mut(), 0).unwrap();
    };
    let mut ops = || {
        cuda.meter(&sums, Span::new(0, 2), &mut meter.borrow_mut()).unwrap();
        let run = ParamRun::new(Span::new(0, LEN), WeightDecay::None);
        let sgd = Sgd::keras().into();
        cuda.optimizer_step(&sgd, 0.5, &mut params.borrow_mut(), &grads, &mut [], &[run]).unwrap();
    };
    let left = || download(&cuda, &params.borrow(), Span::new(0, LEN)).unwrap();
    replays_agree(&cuda, begin, &mut ops, left);
    assert!(left() == numbers("p", LEN), "nothing has moved");
}

/// Labels that come with images, for logits that have nothing to do with these.
#[test]
fn a_loss_waits_for_its_labels() {
    let cuda = emulated(Precision::Fp32);
    let load = LoadImages { height: 2, width: 2, channels: 1, constant: 0.0, scale: 1.0, label: 1 };
    let mut images = cuda.alloc_bytes(3 * 4).unwrap();
    cuda.upload_bytes(&[7; 12], &mut images, 0).unwrap();
    let ints = |values: &[u32]| {
        let mut ints = cuda.alloc_ints(values.len()).unwrap();
        cuda.upload_ints(values, &mut ints).unwrap();
        ints
    };
    let all = ints(&[3, 1, 4]);
    // Every row and column shows pixel 0.
    let draws = ints(&(0..3).flat_map(|image| [&[image], &[0; 9][..]].concat()).collect::<Vec<u32>>());
    let planes = upload(&cuda, &[[0.0; 8].as_slice(), &[1.0; 4]].concat()).unwrap();
    let (mut x, shape) = (cuda.alloc_activations(load.shape(3).len()).unwrap(), Shape::vectors(3, 10));
    let mut trial = Trial::new(3);
    let logits = trial.activations(Layout::contiguous(shape), &numbers("logits", 30));
    let (labels, metrics) = (trial.labels(&[]), trial.run(Arena::Gradients, &[0.0; 2]));
    trial.step(
        CrossEntropy { gradient: false, multi_label: false },
        &[logits, labels],
        &[metrics],
        Write::Set,
    );
    let run = core::cell::RefCell::new(trial.on(&cuda).unwrap());
    let begin = || cuda.upload_ints(&[0, 0, 0], &mut run.borrow_mut().labels).unwrap();
    let mut ops = || {
        let mut run = run.borrow_mut();
        cuda.load_images(
            &load,
            ImageSet { images: &images, labels: &all, planes: &planes },
            &draws,
            0,
            ViewMut::new(&mut x, Layout::contiguous(load.shape(3))),
            &mut run.labels,
        )
        .unwrap();
        run.run_steps(0..1, &StepArgs::inference(3)).unwrap();
    };
    let left = || run.borrow().read(metrics, 3).unwrap();
    replays_agree(&cuda, begin, &mut ops, left);
    // A place behind the table of draws shows too.
    cuda.begin_capture().unwrap();
    ops();
    let graph = cuda.end_capture().unwrap();
    graph.replay(&ReplayArgs { first: 1, ..ReplayArgs::default() }).unwrap();
    let mut loaded = vec![0.0; load.shape(3).len()];
    cuda.download(&x, 0, &mut loaded).unwrap();
    let (known, behind) = loaded.split_at(load.shape(2).len());
    assert!(known.iter().all(|x| x.is_finite()) && behind.iter().all(|x| x.is_nan()), "{loaded:?}");
}
