//! A recorded step, replayed with the numbers of each turn, against the same ops run one by one.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

use crate::harness::*;
use program::{
    Backend, DropoutMask, Fill, ImageDraw, ImageSet, Linear, LoadImages, Precision, RunMut, SgdStep, Shape,
    SoftmaxXent, Span, Velocity, WeightDecay, WeightSpans, Write,
};
use tensor_cuda::{Buffer, Cuda, Ints, Turn};

/// Numbers of an arena.
const LEN: usize = 333;
/// So many that their loss comes from several blocks.
const SAMPLES: usize = 700;

/// Everything that a step of these ops reads and writes.
struct Step {
    cuda: Cuda,
    x: Tensor<Cuda>,
    y: Tensor<Cuda>,
    logits: Tensor<Cuda>,
    dlogits: Tensor<Cuda>,
    labels: Ints,
    params: Buffer,
    grads: Buffer,
    velocity: Buffer,
    sums: Buffer,
    meter: Buffer,
}

impl Step {
    fn new(precision: Precision) -> Step {
        let cuda = emulated(precision);
        let image = |name, shape| Operand::draw(name, shape, PLACEMENTS[1]).on(&cuda, precision).unwrap();
        let arena = |name| upload(&cuda, &numbers(name, LEN)).unwrap();
        let (images, vectors) = (Shape::new(3, 4, 4, 24), Shape::vectors(SAMPLES, 10));
        let (x, y) = (image("x", images), image("y", images));
        let (logits, dlogits) = (image("logits", vectors), image("dlogits", vectors));
        let mut labels = cuda.alloc_ints(SAMPLES).unwrap();
        cuda.upload_ints(&(0..SAMPLES as u32).map(|k| k % 10).collect::<Vec<_>>(), &mut labels).unwrap();
        let (params, grads, velocity) = (arena("p"), arena("g"), arena("v"));
        let (sums, meter) = (cuda.alloc(2).unwrap(), cuda.alloc(4).unwrap());
        Step { cuda, x, y, logits, dlogits, labels, params, grads, velocity, sums, meter }
    }

    fn run(&mut self, turn: &Turn) {
        let mask = DropoutMask { rate: 0.4, key: [5, 6], step: turn.step, first_sample: 64 };
        let sgd = SgdStep {
            lr: turn.lr,
            momentum: 0.9,
            nesterov: true,
            velocity: Velocity::Keras,
            weight_decay: WeightDecay::Decoupled(0.01),
        };
        self.cuda.dropout(&mask, self.x.view(), self.y.view_mut(), Write::Add).unwrap();
        let (xent, metrics) =
            (SoftmaxXent { label_smoothing: 0.1, scale: 1e-3, mixed: false }, Span::new(0, 2));
        let (logits, d) = (self.logits.view(), Some(self.dlogits.view_mut()));
        self.cuda.softmax_xent(&xent, logits, &self.labels, d, &mut self.sums, metrics).unwrap();
        self.cuda.meter(&self.sums, metrics, &mut self.meter).unwrap();
        let at = Span::new(4, LEN - 9);
        self.cuda.sgd_step(&sgd, &mut self.params, &self.grads, &mut self.velocity, at).unwrap();
    }

    fn bits(&self) -> Vec<u32> {
        [&self.y.data, &self.dlogits.data, &self.params, &self.velocity, &self.meter]
            .into_iter()
            .flat_map(|buffer| download(&self.cuda, buffer, Span::new(0, buffer.len())).unwrap())
            .map(f32::to_bits)
            .collect()
    }
}

#[test]
fn replays_have_the_bits_of_eager_steps() {
    for precision in PRECISIONS {
        let turns: Vec<Turn> =
            (0..5).map(|k| Turn { step: 1 << (10 * k), lr: 0.1 / (k + 1) as f32, first: 0 }).collect();
        let (mut eager, mut recorded) = (Step::new(precision), Step::new(precision));
        for step in [&mut eager, &mut recorded] {
            step.run(&turns[0]);
        }
        recorded.cuda.begin_recording().unwrap();
        recorded.run(&Turn::default());
        let recording = recorded.cuda.end_recording().unwrap();
        assert_eq!(recorded.bits(), eager.bits(), "writing ops down carries none out");
        for turn in &turns[1..] {
            eager.run(turn);
            recording.replay(turn).unwrap();
            assert_eq!(recorded.bits(), eager.bits(), "{turn:?} in {precision}");
        }
    }
}

/// The emulated driver does the work of a recording in any order that it allows, so several replays see several.
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
    cuda.begin_recording().unwrap();
    ops();
    let recording = cuda.end_recording().unwrap();
    for step in 0..REPLAYS {
        begin();
        recording.replay(&Turn { step, lr: 0.5, first: 0 }).unwrap();
        assert!(bits() == expected, "replay {step}");
    }
    recording.size()
}

/// Sums in two pieces of work each, with scratch memory between them and nothing in common otherwise.
#[test]
fn ops_that_share_scratch_memory_wait_for_each_other() {
    let cuda = emulated(Precision::Fp32);
    let linear = Linear { inputs: 1, outputs: 256 };
    let (w, b) = (Span::new(0, 256), Span::new(256, 256));
    let operand = |k: usize, name: &str, c| {
        let operand = Operand::draw(&format!("{name} {k}"), Shape::vectors(70, c), PLACEMENTS[0]);
        operand.on(&cuda, Precision::Fp32).unwrap()
    };
    let inputs: Vec<_> = (0..10).map(|k| (operand(k, "x", 1), operand(k, "dy", 256))).collect();
    let grads: Vec<_> = (0..10).map(|_| core::cell::RefCell::new(cuda.alloc(512).unwrap())).collect();
    let begin = || grads.iter().for_each(|g| cuda.fill(7.0, &mut g.borrow_mut(), b).unwrap());
    let mut ops = || {
        for ((x, dy), grads) in inputs.iter().zip(&grads) {
            let mut grads = grads.borrow_mut();
            cuda.linear_bwd_filter(
                &linear,
                x.view(),
                dy.view(),
                RunMut::new(&mut grads, WeightSpans { w, b: Some(b) }),
            )
            .unwrap();
        }
    };
    let left = || grads.iter().flat_map(|g| download(&cuda, &g.borrow(), b).unwrap()).collect();
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
    let (grads, mut velocity) = (upload(&cuda, &numbers("g", LEN)).unwrap(), cuda.alloc(LEN).unwrap());
    let sgd = SgdStep {
        lr: 0.5,
        momentum: 0.0,
        nesterov: false,
        velocity: Velocity::Keras,
        weight_decay: WeightDecay::None,
    };
    let begin = || {
        cuda.set_loss_scale([1.0, 0.0]).unwrap();
        cuda.fill(0.0, &mut meter.borrow_mut(), Span::new(0, 4)).unwrap();
        cuda.upload(&numbers("p", LEN), &mut params.borrow_mut(), 0).unwrap();
    };
    let mut ops = || {
        cuda.meter(&sums, Span::new(0, 2), &mut meter.borrow_mut()).unwrap();
        let at = Span::new(0, LEN);
        cuda.sgd_step(&sgd, &mut params.borrow_mut(), &grads, &mut velocity, at).unwrap();
    };
    let left = || download(&cuda, &params.borrow(), Span::new(0, LEN)).unwrap();
    replays_agree(&cuda, begin, &mut ops, left);
    assert!(left() == numbers("p", LEN), "nothing has moved");
}

/// Labels that come with images, for logits that have nothing to do with these.
#[test]
fn a_loss_waits_for_its_labels() {
    let cuda = emulated(Precision::Fp32);
    let load = LoadImages { height: 2, width: 2, channels: 1, fill: Fill::Nearest, scale: 1.0 };
    let mut images = cuda.alloc_bytes(3 * 4).unwrap();
    cuda.upload_bytes(&[7; 12], &mut images, 0).unwrap();
    let ints = |values: &[u32]| {
        let mut ints = cuda.alloc_ints(values.len()).unwrap();
        cuda.upload_ints(values, &mut ints).unwrap();
        ints
    };
    let all = ints(&[3, 1, 4]);
    let draws = (0..3).flat_map(|image| ImageDraw { image, ..ImageDraw::default() }.to_words());
    let draws = ints(&draws.collect::<Vec<_>>());
    let means = upload(&cuda, &[0.0; 8]).unwrap();
    let mut x = Operand::draw("x", load.shape(3), PLACEMENTS[0]).on(&cuda, Precision::Fp32).unwrap();
    let shape = Shape::vectors(3, 10);
    let logits = Operand::draw("logits", shape, PLACEMENTS[0]).on(&cuda, Precision::Fp32).unwrap();
    let labels = core::cell::RefCell::new(cuda.alloc_ints(3).unwrap());
    let sums = core::cell::RefCell::new(cuda.alloc(2).unwrap());
    let (xent, metrics) = (SoftmaxXent { label_smoothing: 0.0, scale: 1.0, mixed: false }, Span::new(0, 2));
    let begin = || cuda.upload_ints(&[0, 0, 0], &mut labels.borrow_mut()).unwrap();
    let mut ops = || {
        let mut to = labels.borrow_mut();
        cuda.load_images(
            &load,
            ImageSet { images: &images, labels: &all, means: &means },
            &draws,
            0,
            x.view_mut(),
            &mut to,
        )
        .unwrap();
        let mut sums = sums.borrow_mut();
        cuda.softmax_xent(&xent, logits.view(), &to, None, &mut sums, metrics).unwrap();
    };
    let left = || download(&cuda, &sums.borrow(), metrics).unwrap();
    replays_agree(&cuda, begin, &mut ops, left);
}
