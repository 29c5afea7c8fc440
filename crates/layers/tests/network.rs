//! Networks: slices of a batch, empty batches, threads, misuse, memory.
#![allow(clippy::unwrap_used)]

use towers_layers::{
    AveragePooling2D, BatchNormalization, Concatenate, Conv2D, Dense, Draws, Dropout, Error, Exchange,
    Flatten, Graph, Initializer, Layer, Lower, MaxPooling2D, Metrics, Mode, Network, Padding, ParamSpec,
    Value,
};
use towers_optim::{Sgd, WeightDecay};
use towers_program::{
    Activation::{Gelu, Relu},
    Device, Ints, ParamRun, Shape, Span, Storage, Target, TensorId, ViewMut,
};
use towers_testkit::{Tolerance, compare, on_every_device, pattern};

const SIZE: [usize; 3] = [6, 6, 3];
const WHITENING: Initializer = Initializer::Whitening { epsilon: 1e-3 };
const SAMPLE: usize = 6 * 6 * 3;

/// Every kind of layer. Batch normalization is optional, since its statistics are those of a slice.
fn graph(normalized: bool) -> (Graph, Value) {
    let mut g = Graph::new("test", SIZE);
    let mut x = g.add(Conv2D::new(8, 3).same().activation(Relu), g.input()).unwrap();
    if normalized {
        x = g.add(BatchNormalization::new().activation(Relu), x).unwrap();
    }
    x = g.add(Dropout::new(0.25), x).unwrap();
    let a = g.add(Conv2D::new(5, 3).strides(2).padding(Padding::Same), x).unwrap();
    let b = g.add(MaxPooling2D::new(3).strides(2).padding(Padding::Same), x).unwrap();
    x = g.add(Concatenate, [a, b]).unwrap();
    x = g.add(Relu, x).unwrap();
    x = g.add(AveragePooling2D::new(2).strides(1), x).unwrap();
    x = g.add(Flatten, x).unwrap();
    x = g.add(Dropout::new(0.5), x).unwrap();
    x = g.add(Dense::new(7), x).unwrap();
    (g, x)
}

fn build(device: &Device, normalized: bool, batch: usize, mode: Mode) -> Network {
    let (graph, logits) = graph(normalized);
    let mut network = graph.build(logits, device, batch, mode).unwrap();
    network.init(3).unwrap();
    network
}

fn batch(n: usize) -> (Vec<f32>, Vec<u32>) {
    let images = pattern(1, n * SAMPLE, 1.0).iter().map(|&x| x as f32).collect();
    (images, (0..n as u32).map(|k| k % 7).collect())
}

/// The arena of gradients after a pass over these samples of a batch of ten.
fn gradients(network: &mut Network, from: usize, to: usize) -> Vec<f64> {
    let (images, labels) = batch(10);
    network.set_input(&images[from * SAMPLE..to * SAMPLE], &labels[from..to]).unwrap();
    network.train_pass(Draws { seed: 4, step: 9, first_sample: from as u32 }, 0.1, 10).unwrap();
    let grads = &network.arena().grads;
    let all = grads.to_vec(network.device(), 0, grads.len()).unwrap();
    all.into_iter().map(f64::from).collect()
}

/// Sizes in a program may be wrong by many orders of magnitude.
#[test]
fn absurd_kernels_and_paddings_are_errors() {
    for size in [1 << 20, 1 << 32, usize::MAX / 2 + 1, usize::MAX] {
        let mut g = Graph::new("test", SIZE);
        let x = g.input();
        let whitening = Conv2D::new(8, size).kernel_initializer(WHITENING);
        let around = Conv2D::new(8, 3).padding(Padding::Pixels(size));
        for layer in [Conv2D::new(8, size), Conv2D::new(8, size).same(), whitening, around] {
            assert!(g.add(layer, x).is_err(), "{size}");
        }
        assert!(g.add(MaxPooling2D::new(size).padding(Padding::Same), x).is_err(), "{size}");
    }
}

#[test]
fn slices_add_up_to_the_batch() {
    on_every_device(|device| {
        let mut whole = build(device, false, 10, Mode::Training);
        let expected = gradients(&mut whole, 0, 10);
        let mut replica = build(device, false, 6, Mode::Training);
        for cuts in [&[0, 5, 10][..], &[0, 3, 6, 10], &[0, 1, 7, 10], &[0, 0, 6, 6, 10]] {
            let mut sum = vec![0.0; expected.len()];
            for slice in cuts.windows(2) {
                let part = gradients(&mut replica, slice[0], slice[1]);
                sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
            }
            // The precision of f32 for sums of a few dozen terms.
            compare(&format!("{cuts:?}"), &sum, &expected, Tolerance::new(0.0, 1e-6)).unwrap();
        }
    });
}

#[test]
fn the_place_in_the_global_batch_decides_the_dropout() {
    let mut network = build(&towers_tensor_cpu::reference(), false, 10, Mode::Training);
    let (images, labels) = batch(4);
    let mut loss = |first_sample, step, seed| {
        network.set_input(&images, &labels).unwrap();
        network.train_pass(Draws { seed, step, first_sample }, 0.0, 4).unwrap();
        network.metrics().unwrap().loss_sum
    };
    let here = loss(0, 0, 0);
    assert_eq!(here, loss(0, 0, 0));
    for other in [loss(4, 0, 0), loss(0, 1, 0), loss(0, 0, 1)] {
        assert_ne!(here, other);
    }
}

/// A layer whose parameters have a slash in their names.
#[derive(Debug)]
struct Nested(Dense);

impl Layer for Nested {
    fn params(&self, inputs: &[Shape]) -> Vec<ParamSpec> {
        let nested = ["dense/kernel", "dense/bias"].into_iter().zip(self.0.params(inputs));
        nested.map(|(name, spec)| ParamSpec { name, ..spec }).collect()
    }

    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> towers_program::Result<TensorId> {
        to.lower(&self.0, 0, inputs)
    }
}

#[test]
fn every_trained_parameter_is_among_the_trainable_ones() {
    let mut graph = Graph::new("nested", SIZE);
    let x = graph.add(Flatten, graph.input()).unwrap();
    let logits = graph.add(Nested(Dense::new(7)), x).unwrap();
    let network = graph.build(logits, &towers_tensor_cpu::device(1), 2, Mode::Training).unwrap();
    let layers: Vec<usize> = network.arena().slots().iter().map(|slot| slot.layer).collect();
    assert_eq!(graph.trained(), ["nested/dense/kernel", "nested/dense/bias"]);
    assert_eq!(layers, [1, 1]);
}

/// Compares the gradients of each bucket, then overwrites them.
struct Starts {
    expected: Vec<f64>,
    seen: Vec<Span>,
}

impl Exchange for Starts {
    fn all_reduce_start(
        &mut self,
        device: &Device,
        grads: &mut Storage,
        at: Span,
    ) -> towers_program::Result<()> {
        let own = grads.to_vec(device, at.offset, at.len)?.into_iter().map(f64::from);
        assert!(own.eq(self.expected[at.range()].iter().copied()), "{at:?}");
        self.seen.push(at);
        device.fill(7.0, grads, at)
    }
}

/// When an all-reduce starts, its gradients are final, and the pass does not write them again.
#[test]
fn a_sum_starts_when_its_gradients_are_complete() {
    on_every_device(|device| {
        let mut network = build(device, true, 10, Mode::Training);
        let mut starts = Starts { expected: gradients(&mut network, 0, 10), seen: Vec::new() };
        let buckets = network.buckets();
        let (rest, buckets) = buckets.split_last().unwrap();
        let draws = Draws { seed: 4, step: 9, first_sample: 0 };
        network.train_pass_with(draws, 0.1, 10, Some(&mut starts)).unwrap();
        assert_eq!(starts.seen, buckets);
        let grads = &network.arena().grads;
        let after = grads.to_vec(device, 0, grads.len()).unwrap();
        assert!(after[..rest.offset].iter().all(|&x| x == 7.0));
        let behind = starts.expected[rest.range()].iter().copied();
        assert!(after[rest.range()].iter().map(|&x| f64::from(x)).eq(behind));

        // A replica without samples adds zeros.
        let mut starts = Starts { expected: vec![0.0; after.len()], seen: Vec::new() };
        network.set_input(&[], &[]).unwrap();
        network.train_pass_with(draws, 0.1, 10, Some(&mut starts)).unwrap();
        assert_eq!(starts.seen, buckets);
    });
}

#[test]
fn no_samples_leave_zeros() {
    on_every_device(|device| {
        let mut network = build(device, true, 10, Mode::Training);
        assert!(gradients(&mut network, 0, 10).iter().any(|&g| g != 0.0));
        assert!(gradients(&mut network, 4, 4).iter().all(|&g| g == 0.0));
        network.evaluate_pass().unwrap();
        assert_eq!(network.metrics().unwrap(), Metrics::default());
        assert!(network.predict().unwrap().is_empty());
    });
}

/// All bits of three steps' gradients and running averages.
fn bits(device: &Device) -> Vec<u32> {
    let mut network = build(device, true, 10, Mode::Training);
    let mut bits = Vec::new();
    for (from, to) in [(0, 10), (3, 10), (2, 3)] {
        bits.extend(gradients(&mut network, from, to).iter().map(|&g| (g as f32).to_bits()));
        network.finish_step(to - from).unwrap();
    }
    let running = &network.arena().running;
    bits.extend(running.to_vec(device, 0, running.len()).unwrap().iter().map(|x| x.to_bits()));
    bits.extend(network.predict().unwrap().iter().map(|x| x.to_bits()));
    bits
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let one = bits(&towers_tensor_cpu::device(1));
    for threads in [2, 3] {
        assert!(bits(&towers_tensor_cpu::device(threads)) == one, "{threads} threads");
    }
}

#[test]
fn the_mode_changes_no_bit_of_an_evaluation() {
    on_every_device(|device| {
        let (images, labels) = batch(6);
        let evaluated = [Mode::Training, Mode::TrainingWithInputGradient, Mode::Inference].map(|mode| {
            let mut network = build(device, true, 6, mode);
            network.set_input(&images, &labels).unwrap();
            network.evaluate_pass().unwrap();
            let probabilities = network.predict().unwrap();
            (network.metrics().unwrap(), probabilities)
        });
        assert_eq!(evaluated[0], evaluated[1]);
        assert_eq!(evaluated[0], evaluated[2]);
        let Metrics { loss_sum, .. } = evaluated[0].0;
        let sums = evaluated[0].1.chunks(7).map(|row| row.iter().sum::<f32>());
        assert!(loss_sum.is_finite() && sums.clone().count() == 6);
        assert!(sums.into_iter().all(|sum| (sum - 1.0).abs() < 1e-6));
    });
}

/// The input stays, so a second pass needs no second upload. The logits stay readable.
#[test]
fn passes_leave_the_input_and_the_logits() {
    for mode in [Mode::Training, Mode::Inference] {
        let mut network = build(&towers_tensor_cpu::reference(), true, 6, mode);
        let (images, labels) = batch(6);
        network.set_input(&images, &labels).unwrap();
        let mut logits = || {
            network.evaluate_pass().unwrap();
            let view = network.logits();
            view.data.as_f64().unwrap()[view.layout.offset..view.layout.end()].to_vec()
        };
        let first = logits();
        assert_eq!(first.len(), 6 * 7);
        assert_eq!(logits(), first, "{mode:?}");
    }
}

/// Running averages after one step: the mean and the unbiased variance of the samples, with Keras' momentum.
#[test]
fn running_averages() {
    on_every_device(|device| {
        let mut graph = Graph::new("bn", [1, 1, 1]);
        let x = graph.add(BatchNormalization::new(), graph.input()).unwrap();
        let logits = graph.add(Flatten, x).unwrap();
        let mut network = graph.build(logits, device, 4, Mode::Training).unwrap();
        network.init(0).unwrap();
        network.set_input(&[1.0, 2.0, 3.0, 6.0], &[0; 4]).unwrap();
        network.train_pass(Draws { seed: 0, step: 0, first_sample: 0 }, 0.0, 4).unwrap();
        network.finish_step(4).unwrap();
        let arena = network.arena();
        let [.., mean, variance] = arena.slots() else { panic!("four parameters") };
        let value =
            |slot: &towers_layers::Slot| arena.running.to_vec(device, slot.span.offset, 1).unwrap()[0];
        assert!((value(mean) - 0.01 * 3.0).abs() < 1e-6, "{}", value(mean));
        let unbiased = (4.0 + 1.0 + 0.0 + 9.0) / 3.0;
        assert!((value(variance) - (0.99 + 0.01 * unbiased)).abs() < 1e-6, "{}", value(variance));
    });
}

/// Frozen tensors lie behind the trainable ones, which get the same gradients as without them.
#[test]
fn what_is_frozen_stays() {
    on_every_device(|device| {
        let build = |trained: bool| {
            let mut g = Graph::new("test", SIZE);
            let conv = Conv2D::new(4, 3).use_bias(false).kernel_trainable(trained);
            let x = g.add(conv, g.input()).unwrap();
            let x = g.add(BatchNormalization::new().scale(trained).activation(Relu), x).unwrap();
            let x = g.add(Flatten, x).unwrap();
            let logits = g.add(Dense::new(7), x).unwrap();
            let summary = g.summary(logits);
            let counts = (summary.trainable, summary.non_trainable);
            let mut network = g.build(logits, device, 10, Mode::Training).unwrap();
            network.init(3).unwrap();
            gradients(&mut network, 0, 10);
            (network, counts)
        };
        let ((mut trained, all), (mut frozen, less)) = (build(true), build(false));
        let (kernel, gamma) = (3 * 3 * 3 * 4, 4);
        assert_eq!((all.0 - less.0, less.1 - all.1), (kernel + gamma, kernel + gamma));
        let read = |storage: &Storage, slot: &towers_layers::Slot| {
            storage.to_vec(device, slot.span.offset, slot.span.len).unwrap()
        };
        let before: Vec<_> =
            frozen.arena().slots().iter().map(|s| read(frozen.arena().storage(s), s)).collect();
        for network in [&mut trained, &mut frozen] {
            let arena = network.arena_mut();
            let mut velocity = device.alloc(arena.trainable.len).unwrap();
            let run = ParamRun::new(arena.trainable, WeightDecay::Decoupled(0.5));
            let sgd = Sgd::pytorch().momentum(0.9).nesterov().into();
            let (params, state) = (&mut arena.params, &mut [&mut velocity]);
            device.optimizer_step(&sgd, 0.1, params, &arena.grads, state, &[run]).unwrap();
        }
        let slots = trained.arena().slots().iter().zip(frozen.arena().slots());
        for ((with, without), before) in slots.zip(before) {
            let after = read(frozen.arena().storage(without), without);
            let stays = ["conv2d/kernel", "batch_normalization/gamma"].contains(&without.name.as_str());
            assert_eq!(
                without.span.offset >= frozen.arena().trainable.end(),
                stays && !without.role.is_running()
            );
            if stays || without.role.is_running() {
                assert_eq!(after, before, "{}", without.name);
            } else {
                assert_ne!(after, before, "{}", without.name);
                assert_eq!(after, read(trained.arena().storage(with), with), "{}", without.name);
            }
        }
    });
}

/// In training a frozen normalization computes the same as in inference, and its averages don't move. A network's
/// frozen bottom has no backward pass.
#[test]
fn frozen_layers_train_as_in_inference() {
    on_every_device(|device| {
        let mut g = Graph::new("test", SIZE);
        let x = g.add(Conv2D::new(4, 3), g.input()).unwrap();
        let x = g.add(BatchNormalization::new().activation(Relu), x).unwrap();
        let x = g.add(Conv2D::new(3, 3), x).unwrap();
        let x = g.add(BatchNormalization::new().activation(Gelu), x).unwrap();
        let x = g.add(Flatten, x).unwrap();
        let logits = g.add(Dense::new(7), x).unwrap();
        g.freeze(|name| name != "conv2d_1/kernel" && name != "dense/bias");
        assert_eq!(g.trained(), ["conv2d_1/kernel", "dense/bias"]);
        let backward = g.program(logits, Mode::Training, true).unwrap().to_string();
        let (below, above) = ("\nbatch_normalization, backward:", "\nbatch_normalization_1, backward:");
        assert!(!backward.contains(below) && backward.contains(above), "{backward}");

        let mut network = g.build(logits, device, 10, Mode::Training).unwrap();
        network.init(3).unwrap();
        let read = |storage: &Storage, at: Span| storage.to_vec(device, at.offset, at.len).unwrap();
        for slot in network.arena().slots().to_vec() {
            assert!(!slot.role.is_running(), "{}", slot.name);
            if slot.name.contains("moving") || slot.name.contains("normalization") {
                let values: Vec<f32> = (0..slot.span.len).map(|k| 0.5 + k as f32 / 4.0).collect();
                network.arena_mut().load(device, &slot, &values).unwrap();
            }
        }
        let all = |network: &Network| -> Vec<Vec<f32>> {
            let arena = network.arena();
            arena.slots().iter().map(|slot| read(&arena.params, slot.span)).collect()
        };
        let before = all(&network);
        let (images, labels) = batch(10);
        network.set_input(&images, &labels).unwrap();
        network.train_pass(Draws { seed: 4, step: 9, first_sample: 0 }, 0.0, 10).unwrap();
        let trained = network.metrics().unwrap();
        network.finish_step(10).unwrap();
        assert_eq!(all(&network), before);
        network.evaluate_pass().unwrap();
        let inferred = network.metrics().unwrap();
        assert!((trained.loss_sum - inferred.loss_sum).abs() < 1e-3, "{trained:?} {inferred:?}");
    });
}

/// A bias before a normalization is left out of training passes and used in evaluations. Both must agree.
#[test]
fn a_bias_that_is_taken_away_stays_in_the_running_mean() {
    on_every_device(|device| {
        let mut g = Graph::new("test", SIZE);
        let x = g.add(Conv2D::new(4, 3), g.input()).unwrap();
        let x = g.add(BatchNormalization::new().momentum(0.0).activation(Relu), x).unwrap();
        let x = g.add(Flatten, x).unwrap();
        let logits = g.add(Dense::new(7), x).unwrap();
        let mut network = g.build(logits, device, 10, Mode::Training).unwrap();
        network.init(3).unwrap();
        let slot = network.arena().slots().iter().find(|slot| slot.name == "conv2d/bias").unwrap().clone();
        network.arena_mut().load(device, &slot, &[3.0, -2.0, 0.5, 40.0]).unwrap();
        let (images, labels) = batch(10);
        network.set_input(&images, &labels).unwrap();
        network.train_pass(Draws { seed: 4, step: 9, first_sample: 0 }, 0.0, 10).unwrap();
        let trained = network.metrics().unwrap();
        let bias = network.arena().grads.to_vec(device, slot.span.offset, slot.span.len).unwrap();
        assert_eq!(bias, [0.0; 4]);
        network.finish_step(10).unwrap();
        network.evaluate_pass().unwrap();
        // The running variance is the unbiased one: 160 / 159 of the batch's.
        let apart = (network.metrics().unwrap().loss_sum - trained.loss_sum).abs();
        assert!(apart < 0.01 * trained.loss_sum, "{apart} of {}", trained.loss_sum);
    });
}

#[test]
fn wrong_batches_are_refused_and_leave_the_last_one() {
    let mut network = build(&towers_tensor_cpu::device(1), false, 4, Mode::Training);
    let (images, labels) = batch(6);
    network.set_input(&images[..2 * SAMPLE], &labels[..2]).unwrap();
    let before = network.predict().unwrap();
    for (numbers, n) in [(6 * SAMPLE, 6), (4 * SAMPLE, 3), (3 * SAMPLE, 4), (4 * SAMPLE - 1, 4), (0, 1)] {
        let error = network.set_input(&images[..numbers], &labels[..n]).unwrap_err();
        assert!(matches!(error, Error::Batch { .. }), "{error}");
        assert!(error.to_string().contains("up to 4 samples of 108 numbers"), "{error}");
    }
    assert_eq!(network.predict().unwrap(), before);
}

/// Running statistics of no samples would be NaN.
#[test]
fn a_step_of_no_samples_is_refused() {
    let mut network = build(&towers_tensor_cpu::device(1), false, 4, Mode::Training);
    let error = network.finish_step(0).unwrap_err();
    assert!(matches!(error, Error::GlobalBatch { global_batch: 0, .. }), "{error}");
}

/// A loss of NaN would not say why. The last batch stays.
#[test]
fn a_label_outside_of_the_classes_is_refused() {
    let mut network = build(&towers_tensor_cpu::device(1), false, 4, Mode::Training);
    let (images, _) = batch(2);
    network.set_input(&images, &[0, 6]).unwrap();
    let before = network.predict().unwrap();
    let zeros = vec![0.0; images.len()];
    for label in [7, u32::MAX] {
        let target = |label, other| Target { other, share: 0.5, ..Target::label(label) };
        for error in [
            network.set_input(&zeros, &[0, label]).unwrap_err(),
            network.set_input_with_targets(&zeros, &[target(0, 0), target(label, 0)]).unwrap_err(),
            network.set_input_with_targets(&zeros, &[target(0, 0), target(0, label)]).unwrap_err(),
        ] {
            let says = format!("a label is {label}, but the network has 7 classes, which are counted from 0");
            assert_eq!(error.to_string(), says);
        }
    }
    assert_eq!(network.predict().unwrap(), before);
}

/// The output of a stage is no class scores, so it does not check labels.
#[test]
fn a_stage_takes_any_label() {
    let (graph, logits) = graph(false);
    let mut stage = graph.build_stage(logits, &towers_tensor_cpu::device(1), 2, Mode::Training, 1).unwrap();
    let (images, _) = batch(2);
    stage.set_input(&images, &[0, 99]).unwrap();
}

/// A multi-label network takes words of bits, and no targets of one or two classes.
#[test]
fn labels_of_another_kind_are_refused() {
    let (mut graph, logits) = graph(false);
    graph.set_multi_label(logits);
    let mut network = graph.build(logits, &towers_tensor_cpu::device(1), 2, Mode::Training).unwrap();
    assert_eq!((network.label_words(), network.is_multi_label()), (1, true));
    let (images, _) = batch(2);
    network.set_input(&images, &[u32::MAX, 0]).unwrap();
    let told = network.set_input_with_targets(&images, &[Target::label(0); 2]).unwrap_err().to_string();
    assert_eq!(
        told,
        "the network was built for multi-hot labels, but was given targets of one or two classes"
    );
}

/// When the device loads the batch, labels are not checked. A wrong one shows in the loss, and nothing else
/// breaks.
#[test]
fn a_wrong_label_of_the_device_gives_a_nan_loss() {
    on_every_device(|device| {
        let mut network = build(device, false, 4, Mode::Training);
        let (images, _) = batch(2);
        for label in [7, u32::MAX] {
            let fill = |x: ViewMut<'_, Storage>, labels: &mut Ints| {
                device.upload(&images, x.data, x.layout.offset)?;
                device.upload_ints(&[0, label], labels)?;
                Ok::<_, Error>(())
            };
            network.load_input(2, false, fill).unwrap();
            network.train_pass(Draws { seed: 0, step: 0, first_sample: 0 }, 0.0, 2).unwrap();
            assert!(network.metrics().unwrap().loss_sum.is_nan());
        }
    });
}

#[test]
fn inference_takes_less_memory_and_does_not_train() {
    let device = towers_tensor_cpu::device(1);
    let [inference, training, input_gradient] =
        [Mode::Inference, Mode::Training, Mode::TrainingWithInputGradient]
            .map(|mode| build(&device, true, 8, mode));
    assert!(inference.activation_len() < training.activation_len());
    assert!(training.activation_len() <= input_gradient.activation_len());
    assert!(training.input_gradient().is_none() && input_gradient.input_gradient().is_some());
    let mut network = inference;
    let (images, labels) = batch(2);
    network.set_input(&images, &labels).unwrap();
    let error = network.train_pass(Draws { seed: 0, step: 0, first_sample: 0 }, 0.0, 2).unwrap_err();
    assert!(matches!(error, Error::InferenceOnly), "{error}");
}
