//! A training step on a device, compared with the same step on another one.

use crate::Result;
use towers_layers::{Comparison, Draws, Initializer, Mode, Network, Tolerance};
use towers_models::Model;
use towers_optim::Optimizer;
use towers_options::{Message, message};
use towers_program::{Device, GraphCache, OptimizerState, ReplayArgs, Span};
use towers_tensor_cpu::Cpu;

/// A training step: a network with the optimizer and the batch of its first step.
///
/// ```
/// use towers_diagnose::SampleStep;
///
/// let optimizer = towers_optim::Sgd::keras().momentum(0.9);
/// let step = SampleStep::random(towers_models::small_cnn(10)?, optimizer, 2);
/// let results = step.compare(&towers_tensor_cpu::device(1), &towers_tensor_cpu::reference())?;
/// assert!(results.iter().all(|result| result.agrees()));
/// assert!(results.iter().any(|result| result.op == "conv2d_weight_gradient"));
/// # Ok::<(), towers_diagnose::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SampleStep {
    /// The network.
    pub model: Model,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// The learning rate.
    pub lr: f64,
    /// The share of each target that is spread over all classes.
    pub label_smoothing: f32,
    /// The images, as the network reads them.
    pub images: Vec<f32>,
    /// A label for each image, of [so many words](Network::label_words).
    pub labels: Vec<u32>,
}

/// A result that is no more than this part apart is right for an optimizer: parameters have much larger
/// magnitudes than their changes, and so more rounding.
const OF_UPDATES: f32 = 1e-2;

/// Samples of a step on the CPU, which the slow reference repeats. A CPU's algorithms don't depend on their
/// number.
const ON_CPU: usize = 2;

/// The most activations of a step that a CPU repeats: of a batch of 128 in a large network for CIFAR.
const ACTIVATIONS: usize = 1 << 28;

/// The name of a graph's replay among the ops of a step.
pub const REPLAY: &str = "the replay of a CUDA graph";
/// That of the optimizer.
const UPDATE: &str = "the optimizer";

impl SampleStep {
    /// The first step on random images.
    pub fn random(model: Model, optimizer: impl Into<Optimizer>, samples: usize) -> SampleStep {
        let len = model.image().iter().product();
        let images = Initializer::Normal(0.0, 1.0).values(0, "images", &[samples, len]);
        let classes = model.graph().shape(model.logits()).c as u32;
        let labels = (0..samples as u32).map(|k| (k * 7 + 3) % classes).collect();
        let optimizer = optimizer.into();
        SampleStep { model, optimizer, lr: 0.01, label_smoothing: 0.0, images, labels }
    }

    /// How many of `samples` a step of a check has: a step that the [`comparison_device`] repeats in seconds, with
    /// large images too.
    ///
    /// # Errors
    /// If the output of a layer is unused.
    pub fn checked_samples(model: &Model, device: &Device, samples: usize) -> Result<usize> {
        let mut samples = if device.kind() == "cpu" { samples.min(ON_CPU) } else { samples };
        while samples > 1 && model.activation_len(samples, Mode::Training, false)? > ACTIVATIONS {
            samples = samples.div_ceil(2);
        }
        Ok(samples)
    }

    /// The number of images.
    fn samples(&self) -> usize {
        self.images.len() / self.model.image().iter().product::<usize>()
    }

    /// Makes the step on a device, with a separate network. `other` repeats each op, from the same operands. A
    /// device that captures graphs also replays one of the whole pass. Then follows the
    /// optimizer.
    ///
    /// Parameters with simple first values, such as a scale of 1, get random ones, which hide nothing.
    ///
    /// # Errors
    /// Those of the devices.
    pub fn compare(&self, device: &Device, other: &Device) -> Result<Vec<Comparison>> {
        let mut network = self.model.build(device, self.samples(), Mode::Training)?;
        init(&mut network)?;
        let SampleStep { images, labels, label_smoothing, .. } = self;
        let draws = Draws { seed: 1, step: 0, first_sample: 0 };
        let mut all = network.compare_train_pass(other, images, labels, draws, *label_smoothing)?;
        if device.captures_graphs() {
            all.extend(self.replay(&mut network, draws)?);
        }
        all.extend(self.update(&mut network, other)?);
        Ok(all)
    }

    /// Compares the gradients of the last pass with those of a replayed graph.
    fn replay(&self, network: &mut Network, draws: Draws) -> Result<Vec<Comparison>> {
        let (device, samples) = (network.device().clone(), self.samples());
        let gradients = |network: &Network| {
            let grads = &network.arena().grads;
            grads.to_vec(network.device(), 0, grads.len())
        };
        let expected = gradients(network)?;
        let (mut graphs, args) =
            (GraphCache::default(), ReplayArgs { lr: self.lr as f32, ..Default::default() });
        for _ in ["run", "capture and replay", "replay"] {
            graphs.run(&device, (), &args, || network.train_pass(draws, self.label_smoothing, samples))?;
        }
        let (got, how) = (gradients(network)?, Tolerance::of(device.precision()));
        let trainable =
            network.arena().slots().iter().filter(|slot| slot.role == towers_layers::Role::Trainable);
        let compare = |slot: &towers_layers::Slot| {
            let [got, expected] = [&got, &expected].map(|all| &all[slot.span.range()]);
            Comparison::new(&slot.name, REPLAY, [got, expected], &how)
        };
        Ok(trainable.map(compare).collect())
    }

    /// Compares the optimizer's changes of the parameters.
    fn update(&self, network: &mut Network, other: &Device) -> Result<Option<Comparison>> {
        let (device, at) = (network.device().clone(), network.arena().trainable);
        let all = Span::new(0, at.len);
        let scale = device.loss_scale()?;
        let arena = network.arena_mut();
        let before = arena.params.to_vec(&device, at.offset, at.len)?;
        let mut grads = arena.grads.to_vec(&device, at.offset, at.len)?;
        grads.iter_mut().for_each(|grad| *grad /= scale.map_or(1.0, |[scale, _]| scale));
        if grads.iter().any(|grad| !grad.is_finite()) {
            // In half precision a first step may be too large, and then changes nothing.
            return Ok(None);
        }
        // Its matrices are some of the parameters.
        let places: Vec<(String, Span)> =
            arena.trainable_runs().map(|(name, at)| (name.to_owned(), at)).collect();
        let matrices = self.model.hidden_matrices();
        let new = |device: &Device| -> towers_program::Result<OptimizerState> {
            let state = OptimizerState::new(device, self.optimizer, at.len)?;
            if self.optimizer.rest.is_none() {
                return Ok(state);
            }
            let matrices = matrices.iter().map(|(name, shape)| (name.as_str(), *shape));
            state.matrices(matrices).grouped(&[], places.iter().map(|(name, at)| (name.as_str(), *at)))
        };
        let mut state = new(&device)?;
        state.step(&device, self.lr, &mut arena.params, &mut arena.grads, at)?;
        scale.map_or(Ok(()), |scale| device.set_loss_scale(scale))?;
        let (mut params, mut others) = (other.alloc(at.len)?, other.alloc(at.len)?);
        other.upload(&before, &mut params, 0)?;
        other.upload(&grads, &mut others, 0)?;
        let mut state = new(other)?;
        state.step(other, self.lr, &mut params, &mut others, all)?;
        let change = |after: Vec<f32>| after.iter().zip(&before).map(|(a, b)| a - b).collect::<Vec<_>>();
        let got = change(arena.params.to_vec(&device, at.offset, at.len)?);
        let expected = change(params.to_vec(other, 0, at.len)?);
        let largest = before.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
        let exact = Tolerance::of(towers_program::Precision::Fp32);
        let how = Tolerance { relative: OF_UPDATES, absolute: 4.0 * f32::EPSILON * largest, ..exact };
        Ok(Some(Comparison::new("all parameters", UPDATE, [&got, &expected], &how)))
    }
}

/// First values, none of which is as simple as 0 or 1.
fn init(network: &mut Network) -> Result<()> {
    let device = network.device().clone();
    network.init(1)?;
    for slot in network.arena().slots().to_vec() {
        let mut values = network.arena().storage(&slot).to_vec(&device, slot.span.offset, slot.span.len)?;
        if slot.role.is_running() || slot.shape.len() > 1 && values.iter().any(|&x| x != 0.0) {
            continue;
        }
        let noise = Initializer::Normal(0.0, 0.1).values(1, &slot.name, &slot.shape);
        values.iter_mut().zip(noise).for_each(|(x, noise)| *x += noise);
        network.arena_mut().load(&device, &slot, &values)?;
    }
    Ok(())
}

/// The device that repeats the ops of another one: for a GPU the CPU with its simplest algorithms, for the CPU
/// the f64 reference.
pub fn comparison_device(device: &Device) -> Device {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match device.kind() {
        "cpu" => towers_tensor_cpu::reference(),
        _ => Cpu::new(cores).without_winograd().into(),
    }
}

/// What may help where an op of a device gives a wrong result, by keys of the table of options. `op` may also be a
/// topic of the suite `conformance`.
pub(crate) fn way_around(device: &Device, op: &str) -> Message {
    let is_product = ["conv", "linear", "dense"].iter().any(|start| op.starts_with(start));
    match op {
        _ if device.kind() == "cpu" => {
            message!("try ", ["devices.no_winograd"], ", or the variable TOWERS_SIMD=portable")
        }
        REPLAY => message!("try ", ["devices.no_graph"], ", or ", ["devices.one_stream"]),
        _ if is_product => {
            message!("try ", ["devices.kernels"], " own, or ", ["devices.kernels"], " library")
        }
        _ => message!(
            "try another version of the driver and of the libraries, or ",
            ["devices.device"],
            " cpu"
        ),
    }
}
