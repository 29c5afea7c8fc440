//! A recorded step, replayed with the numbers of each turn, against the same ops run one by one.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

use crate::harness::*;
use tensor_backend::{
    Backend, DropoutMask, Precision, SgdStep, Shape, SoftmaxXent, Span, Velocity, WeightDecay, Write,
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
