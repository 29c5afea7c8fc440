//! Captured steps: work without data dependencies runs in any order, with the same bits.

use super::on_gpus;
use towers_layers::{
    AveragePooling2D, BatchNormalization, Concatenate, Conv2D, Dense, Draws, Dropout, Flatten, Graph,
    MaxPooling2D, Mode, Network, Value,
};
use towers_optim::{Adam, Clip, Optimizer, Sgd};
use towers_program::{Activation, Device, GraphCache, OptimizerState, Precision, ReplayArgs};

const BATCH: usize = 6;

fn conv_module(g: &mut Graph, x: Value, filters: usize, kernel: usize) -> Value {
    let x = g.add(Conv2D::new(filters, kernel).same(), x).unwrap();
    g.add(BatchNormalization::new().activation(Activation::Relu), x).unwrap()
}

/// Parallel branches twice, once with a bias and no normalization, and a part without branches.
fn network(device: &Device) -> Network {
    let mut graph = Graph::new("branches", [9, 9, 3]);
    let g = &mut graph;
    let mut x = conv_module(g, g.input(), 16, 3);
    for _ in 0..2 {
        let [ones, threes] = [(8, 1), (16, 3)].map(|(filters, kernel)| conv_module(g, x, filters, kernel));
        x = g.add(Concatenate, [ones, threes]).unwrap();
    }
    let strided = Conv2D::new(8, 3).strides(2).activation(Activation::Relu);
    let convolved = g.add(strided, x).unwrap();
    let pooled = g.add(MaxPooling2D::new(3).strides(2), x).unwrap();
    x = g.add(Concatenate, [convolved, pooled]).unwrap();
    x = g.add(AveragePooling2D::new(4), x).unwrap();
    x = g.add(Dropout::new(0.5), x).unwrap();
    x = g.add(Flatten, x).unwrap();
    x = g.add(Dense::new(10), x).unwrap();
    let mut network = graph.build(x, device, BATCH, Mode::Training).unwrap();
    network.init(7).unwrap();
    network
}

/// Parameters, running averages and optimizer state after several steps, and the size of the graph.
fn train(device: &Device, optimizer: Optimizer, steps: u64, recorded: bool) -> (Vec<f32>, [usize; 2]) {
    let mut network = network(device);
    let trainable = network.arena().trainable;
    let mut optimizer = OptimizerState::new(device, optimizer, trainable.len).unwrap();
    let mut meter = device.alloc(4).unwrap();
    let mut recorder = GraphCache::default();
    let (images, labels): (Vec<f32>, Vec<u32>) = (
        (0..BATCH * network.sample_len()).map(|k| (k * 37 % 101) as f32 / 50.0 - 1.0).collect(),
        (0..BATCH as u32).collect(),
    );
    network.set_input(&images, &labels).unwrap();
    for step in 0..steps {
        let turn = ReplayArgs { step, lr: 0.01, first: 0 };
        let mut work = || -> Result<(), towers_train::Error> {
            let draws = Draws { seed: 3, step, first_sample: 0 };
            network.train_pass(draws, 0.0, BATCH)?;
            device.meter(&network.arena().grads, network.arena().metrics, &mut meter)?;
            network.finish_step(BATCH)?;
            let arena = network.arena_mut();
            Ok(optimizer.step(device, 0.01, &mut arena.params, &mut arena.grads, arena.trainable)?)
        };
        if recorded { recorder.run(device, (), &turn, work) } else { work() }.unwrap();
    }
    assert_eq!(recorder.refusal(), None);
    let arena = network.arena();
    let buffers = [&arena.params, &arena.running, &arena.grads, &meter];
    let mut all = buffers.map(|buffer| buffer.to_vec(device, 0, buffer.len()).unwrap()).concat();
    all.extend(optimizer.export(device).unwrap());
    (all, recorder.size())
}

#[test]
fn steps_have_the_same_bits_whatever_runs_beside_what() {
    let sgd = Optimizer::from(Sgd::keras().momentum(0.9));
    let clipped = sgd.clip(Clip::GlobalNorm(0.1));
    for (precision, optimizer) in
        [(Precision::Fp32, sgd), (Precision::Bf16, clipped), (Precision::Fp16, Adam::keras().into())]
    {
        on_gpus(precision, |open| {
            let (expected, _) = train(&open(), optimizer, 9, false);
            let (recorded, [works, chain]) = train(&open(), optimizer, 9, true);
            let differ = expected.iter().zip(&recorded).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
            assert_eq!(differ, 0, "of {} numbers, in {precision}", expected.len());
            // Branches run in parallel, and so do the two gradients of each convolution.
            assert!(chain * 4 < works * 3, "{works} pieces of work, {chain} in a chain");
            assert!(chain * 2 > works, "{works} pieces of work, {chain} in a chain");
        });
    }
}
