//! Forward and backward passes and some steps of SGD against PyTorch: `tests/golden/networks.py` made the values, in f64.
#![allow(clippy::unwrap_used)]

use towers_layers::{Draws, Mode, Network, Role};
use towers_models::Model;
use towers_optim::Sgd;
use towers_program::{Device, OptimizerState, Span, View};
use towers_testkit::{Golden, Tolerance, compare, fingerprint, pattern, read};

const SEED: u64 = 7;

/// How far a device may be from f64: in the first step, where only one pass rounds, and after the last one,
/// since rounding errors grow.
struct Precision {
    first: Tolerance,
    last: Tolerance,
}

/// `rounding` are the relative errors in f32 after the first step and after all of them. Few samples under
/// many batch normalizations enlarge every error.
fn precision(device: &Device, [first, last]: [f64; 2]) -> Precision {
    match device.kind() {
        // PyTorch sums in another order, in f64 too.
        "reference" => Precision { first: Tolerance::new(1e-13, 1e-10), last: Tolerance::new(1e-12, 1e-8) },
        // The absolute part is for biases before a batch normalization, whose gradient is 0 but for rounding.
        _ => Precision { first: Tolerance::new(3e-6, first), last: Tolerance::new(1e-5, last) },
    }
}

/// A network and the values that it should give.
struct Case {
    name: &'static str,
    network: Network,
    batch: usize,
    golden: Golden,
    precision: Precision,
}

impl Case {
    /// The network with the script's images, labels and parameters.
    fn new(device: &Device, name: &'static str, model: &Model, batch: usize, rounding: [f64; 2]) -> Case {
        let mut network = model.build(device, batch, Mode::Training).unwrap();
        let images: Vec<f32> = pattern(1, batch * 32 * 32 * 3, 1.0).iter().map(|&x| x as f32).collect();
        let labels: Vec<u32> = (0..batch as u32).collect();
        network.set_input(&images, &labels).unwrap();
        for (k, slot) in network.arena().slots().to_vec().iter().enumerate() {
            let values: Vec<f32> = if !slot.role.is_running() {
                let (middle, limit) = match slot.shape[..] {
                    [_] => (if slot.name.ends_with("/gamma") { 1.0 } else { 0.0 }, 0.25),
                    [ref inputs @ .., _] => (0.0, (6.0 / inputs.iter().product::<usize>() as f64).sqrt()),
                    [] => unreachable!("no parameter is a scalar"),
                };
                let scale = limit.log2().round().exp2();
                pattern(k as u32 + 2, slot.span.len, scale).iter().map(|x| (x + middle) as f32).collect()
            } else {
                vec![if slot.name.ends_with("moving_variance") { 1.0 } else { 0.0 }; slot.span.len]
            };
            network.arena_mut().load(device, slot, &values).unwrap();
        }
        let file = if name == "airbench94_muon" { name } else { "networks" };
        let golden = Golden::open(file).unwrap();
        Case { name, network, batch, golden, precision: precision(device, rounding) }
    }

    fn check(&self, what: &str, got: &[f64], tolerance: Tolerance) {
        self.golden.check(&format!("{}/{what}", self.name), got, tolerance).unwrap_or_else(|e| panic!("{e}"));
    }

    /// Every tensor's fingerprint. The product and the norm are apart from the elements, each with a
    /// tolerance for its own size.
    fn check_tensor(&self, what: &str, got: &[f64], tolerance: Tolerance) {
        let name = format!("{}/{what}", self.name);
        let (got, expected) = (fingerprint(got), self.golden.get(&name).unwrap());
        let norm = expected[1];
        compare(&format!("{name}: product and norm"), &got[..2], &expected[..2], tolerance)
            .unwrap_or_else(|e| panic!("{e} (norm {norm:e})"));
        compare(&format!("{name}: elements"), &got[2..], &expected[2..], tolerance)
            .unwrap_or_else(|e| panic!("{e} (norm {norm:e})"));
    }

    /// The gradients, and the new running averages.
    fn check_gradients(&self) {
        let (device, arena) = (self.network.device(), self.network.arena());
        for slot in arena.slots().iter().filter(|slot| slot.role != Role::Frozen) {
            let storage = if slot.role == Role::Trainable { &arena.grads } else { &arena.running };
            let values = read(device, storage, slot.span).unwrap();
            self.check_tensor(&slot.name, &values, self.precision.first);
        }
    }

    fn check_parameters(&self) {
        let (device, arena) = (self.network.device(), self.network.arena());
        for slot in arena.slots() {
            let values = read(device, arena.storage(slot), slot.span).unwrap();
            self.check_tensor(&format!("final/{}", slot.name), &values, self.precision.last);
        }
    }

    fn logits(&self) -> Vec<f64> {
        let View { data, layout } = self.network.logits();
        read(self.network.device(), data, Span::new(layout.offset, layout.shape.len())).unwrap()
    }

    /// The mean loss of the last pass.
    fn loss(&self) -> f64 {
        let arena = self.network.arena();
        read(self.network.device(), &arena.grads, arena.metrics).unwrap()[0] / self.batch as f64
    }

    /// Some steps of SGD with momentum, then an evaluation.
    fn run(mut self, steps: u64, lr: f64) {
        let device = self.network.device().clone();
        let len = self.network.arena().params.len();
        let mut optimizer = OptimizerState::new(&device, Sgd::keras().momentum(0.875), len).unwrap();
        let mut losses = Vec::new();
        for step in 0..steps {
            let draws = Draws { seed: SEED, step, first_sample: 0 };
            self.network.train_pass(draws, 0.0, self.batch).unwrap();
            losses.push(self.loss());
            self.network.finish_step(self.batch).unwrap();
            if step == 0 {
                self.check("logits", &self.logits(), self.precision.first);
                self.check_gradients();
            }
            let arena = self.network.arena_mut();
            optimizer.step(&device, lr, &mut arena.params, &mut arena.grads, arena.trainable).unwrap();
        }
        self.check("losses", &losses, self.precision.last);
        self.check_parameters();
        self.network.evaluate_pass().unwrap();
        self.check("evaluated", &self.logits(), self.precision.last);
    }
}

/// On the reference and on the CPU: each number of threads gives the same bits, as another test shows.
fn check(name: &'static str, model: &Model, batch: usize, steps: u64, lr: f64, rounding: [f64; 2]) {
    for device in [towers_tensor_cpu::reference(), towers_tensor_cpu::device(2)] {
        println!("{name} on {}", device.name());
        Case::new(&device, name, model, batch, rounding).run(steps, lr);
    }
}

#[test]
fn small_cnn() {
    check("small_cnn", &towers_models::small_cnn(10).unwrap(), 4, 10, 1.0 / 512.0, [3e-5, 1e-4]);
}

#[test]
fn keras_cnn() {
    check("keras_cnn", &towers_models::keras_cnn(10).unwrap(), 4, 10, 1.0 / 8192.0, [3e-5, 1e-4]);
}

#[test]
fn minigooglenet() {
    check("minigooglenet", &towers_models::minigooglenet(10).unwrap(), 2, 10, 1.0 / 512.0, [3e-5, 1e-2]);
}

#[test]
fn resnet18() {
    check("resnet18", &towers_models::resnet18(10).unwrap(), 2, 2, 1.0 / 512.0, [1e-2, 2e-2]);
}

#[test]
fn airbench94() {
    check("airbench94", &towers_models::airbench94(10).unwrap(), 2, 2, 1.0 / 512.0, [1e-4, 1e-3]);
}

/// `tests/golden/airbench94_muon.py`.
#[test]
fn airbench94_muon() {
    check("airbench94_muon", &towers_models::airbench94_muon(10).unwrap(), 2, 2, 1.0 / 512.0, [1e-4, 1e-3]);
}
