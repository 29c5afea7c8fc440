//! Both devices against values from PyTorch and Keras, made by `tests/golden/ops.py`.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

use program::{
    Activation, AffineSpans, Backend, BatchNorm, Layout, NormInfer, NormSaved, NormSpans, NormTrain, Pad,
    Pool2d, RmspropStep, Run, RunMut, SgdStep, Shape, SoftmaxXent, Span, Velocity, View, ViewMut,
    WeightDecay, Write,
};
use safetensors::SafeTensors;
use tensor_cpu::{Buffer, Cpu, Reference};

/// The golden file.
struct Golden(Vec<u8>);

impl Golden {
    fn open() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/ops.safetensors");
        Golden(std::fs::read(path).expect("the golden file is in the repository"))
    }

    fn bytes(&self, name: &str) -> (Vec<usize>, Vec<u8>) {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = tensors.tensor(name).unwrap();
        (tensor.shape().to_vec(), tensor.data().to_vec())
    }

    fn numbers(&self, name: &str) -> Vec<f64> {
        let (_, bytes) = self.bytes(name);
        bytes.as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect()
    }

    fn labels(&self, name: &str) -> Vec<u32> {
        let (_, bytes) = self.bytes(name);
        bytes.as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect()
    }

    fn layout(&self, name: &str) -> Layout {
        let shape = match self.bytes(name).0[..] {
            [n, h, w, c] => Shape::new(n, h, w, c),
            [n, c] => Shape::vectors(n, c),
            ref other => panic!("{name} has {} dimensions", other.len()),
        };
        Layout::contiguous(shape)
    }
}

/// A backend whose buffers a test can read without rounding, and how close it must come to the golden values.
trait Device: Backend {
    const TOLERANCE: f64;

    fn read(buffer: &Self::Buffer) -> Vec<f64>;

    /// The golden tensor `name`, whose numbers f32 holds exactly.
    fn load(&self, golden: &Golden, name: &str) -> Self::Buffer {
        let numbers: Vec<f32> = golden.numbers(name).iter().map(|&x| x as f32).collect();
        assert!(
            numbers.iter().zip(golden.numbers(name)).all(|(&a, b)| f64::from(a) == b),
            "{name} is not exact"
        );
        let mut buffer = self.alloc(numbers.len()).unwrap();
        self.upload(&numbers, &mut buffer, 0).unwrap();
        buffer
    }

    fn expect(&self, golden: &Golden, name: &str, got: &[f64]) {
        let expected = golden.numbers(name);
        let magnitude = expected.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
        assert_eq!(got.len(), expected.len(), "{name}");
        for (k, (got, expected)) in got.iter().zip(&expected).enumerate() {
            let near = (got - expected).abs() <= Self::TOLERANCE * magnitude;
            assert!(near, "{name}[{k}] is {got}, not {expected} (largest {magnitude}), on {}", self.name());
        }
    }
}

impl Device for Reference {
    const TOLERANCE: f64 = 1e-13;

    fn read(buffer: &Vec<f64>) -> Vec<f64> {
        buffer.clone()
    }
}

impl Device for Cpu {
    const TOLERANCE: f64 = 1e-6;

    fn read(buffer: &Buffer) -> Vec<f64> {
        buffer.iter().map(|&x| f64::from(x)).collect()
    }
}

fn batch_norm<D: Device>(device: &D) {
    let golden = Golden::open();
    let (c, epsilon, at) = (5, 1.0 / 1024.0, golden.layout("bn.0.x"));
    let bn = BatchNorm { epsilon, act: Activation::Relu };
    // Gamma, then beta, and the running mean, then variance.
    let (first, second, both) = (Span::new(0, c), Span::new(c, c), Span::new(0, 2 * c));
    let mut params = device.alloc(2 * c).unwrap();
    let exact = |name: &str| golden.numbers(name).iter().map(|&x| x as f32).collect::<Vec<_>>();
    device.upload(&exact("bn.gamma"), &mut params, 0).unwrap();
    device.upload(&exact("bn.beta"), &mut params, c).unwrap();
    let mut running = device.alloc(2 * c).unwrap();
    device.fill(1.0, &mut running, second).unwrap();
    let (mut saved, mut grads) = (device.alloc(2 * c).unwrap(), device.alloc(4 * c).unwrap());
    let (mut y, mut dx) = (device.alloc(at.end()).unwrap(), device.alloc(at.end()).unwrap());
    let affine = Run::new(&params, AffineSpans { gamma: first, beta: second });
    let sums = Span::new(2 * c, 2 * c);
    for step in 0..2 {
        let name = |what: &str| format!("bn.{step}.{what}");
        let (x, dy) = (device.load(&golden, &name("x")), device.load(&golden, &name("dy")));
        let (x, dy) = (View::new(&x, at), View::new(&dy, at));
        let norm = NormTrain { affine, bias: None, saved: &mut saved, sums: RunMut::new(&mut grads, sums) };
        device.bn_act_fwd_train(&bn, x, norm, ViewMut::new(&mut y, at)).unwrap();
        let norm = NormSaved { x, affine, saved: &saved };
        let gradients = RunMut::new(&mut grads, affine.at);
        device.bn_act_bwd(&bn, norm, dy, gradients, ViewMut::new(&mut dx, at), Write::Set).unwrap();
        // PyTorch's momentum is the weight of what is new.
        device.ema_step(0.875, 1.0 / at.shape.n as f32, &grads, sums, &mut running, both).unwrap();
        device.expect(&golden, &name("y"), &D::read(&y));
        device.expect(&golden, &name("dx"), &D::read(&dx));
        device.expect(&golden, &name("dgamma"), &D::read(&grads)[..c]);
        device.expect(&golden, &name("dbeta"), &D::read(&grads)[c..2 * c]);
    }
    let x = device.load(&golden, "bn.0.x");
    let (x, y_view) = (View::new(&x, at), ViewMut::new(&mut y, at));
    let runs = NormSpans { affine: affine.at, mean: first, var: second };
    let norm = NormInfer { params: &params, running: &running, at: runs };
    device.bn_act_fwd_infer(&bn, x, norm, y_view).unwrap();
    device.expect(&golden, "bn.infer", &D::read(&y));
}

fn gelu<D: Device>(device: &D) {
    let golden = Golden::open();
    let (c, at) = (5, golden.layout("gelu.x"));
    let (x, dy) = (device.load(&golden, "gelu.x"), device.load(&golden, "gelu.dy"));
    let (x, dy) = (View::new(&x, at), View::new(&dy, at));
    let (mut y, mut dx) = (device.alloc(at.end()).unwrap(), device.alloc(at.end()).unwrap());
    device.act_fwd(Activation::Gelu, x, ViewMut::new(&mut y, at)).unwrap();
    device.act_bwd(Activation::Gelu, x, dy, ViewMut::new(&mut dx, at), Write::Set).unwrap();
    device.expect(&golden, "gelu.y", &D::read(&y));
    device.expect(&golden, "gelu.dx", &D::read(&dx));

    let bn = BatchNorm { epsilon: 1.0 / 1024.0, act: Activation::Gelu };
    let (gamma, beta, sums) = (Span::new(0, c), Span::new(c, c), Span::new(2 * c, 2 * c));
    let mut params = device.alloc(2 * c).unwrap();
    device.fill(1.0, &mut params, gamma).unwrap();
    let exact: Vec<f32> = golden.numbers("gelu.bn.beta").iter().map(|&x| x as f32).collect();
    device.upload(&exact, &mut params, c).unwrap();
    let (mut saved, mut grads) = (device.alloc(2 * c).unwrap(), device.alloc(4 * c).unwrap());
    let affine = Run::new(&params, AffineSpans { gamma, beta });
    let norm = NormTrain { affine, bias: None, saved: &mut saved, sums: RunMut::new(&mut grads, sums) };
    device.bn_act_fwd_train(&bn, x, norm, ViewMut::new(&mut y, at)).unwrap();
    device.expect(&golden, "gelu.bn.y", &D::read(&y));
    let norm = NormSaved { x, affine, saved: &saved };
    let gradients = RunMut::new(&mut grads, affine.at);
    device.bn_act_bwd(&bn, norm, dy, gradients, ViewMut::new(&mut dx, at), Write::Set).unwrap();
    device.expect(&golden, "gelu.bn.dx", &D::read(&dx));
    device.expect(&golden, "gelu.bn.dbeta", &D::read(&grads)[c..2 * c]);
}

fn cross_entropy<D: Device>(device: &D) {
    let (golden, metrics) = (Golden::open(), Span::new(0, 2));
    let (at, logits) = (golden.layout("xent.logits"), device.load(&golden, "xent.logits"));
    let logits = View::new(&logits, at);
    let (mut labels, mut sums) = (device.alloc_ints(at.shape.n).unwrap(), device.alloc(2).unwrap());
    device.upload_ints(&golden.labels("xent.labels"), &mut labels).unwrap();
    let mut y = device.alloc(at.end()).unwrap();
    for (name, label_smoothing) in [("hard", 0.0), ("smooth", 0.125)] {
        let xent = SoftmaxXent { label_smoothing, scale: 0.125, mixed: false };
        let dlogits = Some(ViewMut::new(&mut y, at));
        device.softmax_xent(&xent, logits, &labels, dlogits, &mut sums, metrics).unwrap();
        device.expect(&golden, &format!("xent.{name}.dlogits"), &D::read(&y));
        device.expect(&golden, &format!("xent.{name}.loss"), &D::read(&sums)[..1]);
    }
    device.softmax(logits, ViewMut::new(&mut y, at)).unwrap();
    device.expect(&golden, "xent.probabilities", &D::read(&y));
}

fn pooling<D: Device>(device: &D) {
    let golden = Golden::open();
    for (case, kernel, stride, pad) in [("3s2", 3, 2, 0), ("3s2p1", 3, 2, 1), ("2s2", 2, 2, 0)] {
        let pad = Pad { top: pad, bottom: pad, left: pad, right: pad };
        let pool = Pool2d { kernel: [kernel; 2], stride: [stride; 2], pad };
        let name = |what: &str| format!("pool.{case}.{what}");
        let (x_at, y_at) = (golden.layout(&name("x")), golden.layout(&name("dy")));
        let (x, dy) = (device.load(&golden, &name("x")), device.load(&golden, &name("dy")));
        let (x, dy) = (View::new(&x, x_at), View::new(&dy, y_at));
        let (mut y, mut dx) = (device.alloc(y_at.end()).unwrap(), device.alloc(x_at.end()).unwrap());
        device.maxpool_fwd(&pool, x, ViewMut::new(&mut y, y_at)).unwrap();
        let (y_view, dx_view) = (View::new(&y, y_at), ViewMut::new(&mut dx, x_at));
        device.maxpool_bwd(&pool, x, y_view, dy, dx_view, Write::Set).unwrap();
        device.expect(&golden, &name("max.y"), &D::read(&y));
        device.expect(&golden, &name("max.dx"), &D::read(&dx));
        device.avgpool_fwd(&pool, x, ViewMut::new(&mut y, y_at)).unwrap();
        device.avgpool_bwd(&pool, dy, ViewMut::new(&mut dx, x_at), Write::Set).unwrap();
        device.expect(&golden, &name("average.y"), &D::read(&y));
        device.expect(&golden, &name("average.dx"), &D::read(&dx));
    }
}

/// The golden run's learning rate.
fn rate(step: usize) -> f32 {
    if step < 4 { 0.125 } else { 0.03125 }
}

/// Ten steps; `step` gets the arenas of parameters, gradients and state.
fn ten_steps<D: Device>(
    device: &D,
    name: &str,
    step: impl Fn(usize, &mut D::Buffer, &D::Buffer, &mut D::Buffer, Span),
) {
    let golden = Golden::open();
    let grads: Vec<f32> = golden.numbers("step.grads").iter().map(|&x| x as f32).collect();
    let mut params = device.load(&golden, "step.params");
    let len = golden.numbers("step.params").len();
    let (mut now, mut state) = (device.alloc(len).unwrap(), device.alloc(len).unwrap());
    for (k, grads) in grads.chunks_exact(len).enumerate() {
        device.upload(grads, &mut now, 0).unwrap();
        step(k, &mut params, &now, &mut state, Span::new(0, len));
    }
    device.expect(&golden, &format!("step.{name}"), &D::read(&params));
}

fn optimizers<D: Device>(device: &D) {
    let (none, coupled, decoupled) =
        (WeightDecay::None, WeightDecay::Coupled(0.03125), WeightDecay::Decoupled(0.03125));
    for (name, momentum, nesterov, velocity, weight_decay) in [
        ("torch.sgd", 0.0, false, Velocity::PyTorch, none),
        ("torch.momentum", 0.875, false, Velocity::PyTorch, coupled),
        ("torch.nesterov", 0.875, true, Velocity::PyTorch, none),
        ("keras.momentum", 0.875, false, Velocity::Keras, decoupled),
        ("keras.nesterov", 0.875, true, Velocity::Keras, none),
    ] {
        ten_steps(device, name, |k, params, grads, state, at| {
            let step = SgdStep { lr: rate(k), momentum, nesterov, velocity, weight_decay };
            device.sgd_step(&step, params, grads, state, at).unwrap();
        });
    }
    for (name, epsilon_inside_root, weight_decay) in
        [("torch.rmsprop", false, coupled), ("keras.rmsprop", true, decoupled)]
    {
        ten_steps(device, name, |k, params, grads, state, at| {
            let epsilon = 1.0 / 1_048_576.0;
            let step = RmspropStep { lr: rate(k), rho: 0.875, epsilon, epsilon_inside_root, weight_decay };
            device.rmsprop_step(&step, params, grads, state, at).unwrap();
        });
    }
}

/// One test a topic and device.
macro_rules! on_every_device {
    ($($topic:ident),*) => {
        mod reference {
            $(#[test] fn $topic() { super::$topic(&super::Reference) })*
        }
        mod cpu {
            $(#[test] fn $topic() { super::$topic(&super::Cpu::new(2)) })*
        }
    };
}

on_every_device!(batch_norm, cross_entropy, pooling, optimizers, gelu);
