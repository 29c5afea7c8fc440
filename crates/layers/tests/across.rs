//! Passes with statistics of several replicas: the same function as one replica with the whole batch.
#![allow(clippy::unwrap_used)]

use std::ops::Range;
use std::sync::{Barrier, Mutex};
use std::thread;
use towers_layers::{
    BatchNormalization, Conv2D, Dense, Draws, Dropout, Exchange, Flatten, Graph, MaxPooling2D, Mode, Network,
    Value,
};
use towers_program::{Activation::Relu, Device, Result, Span, Storage, View};
use towers_testkit::{Tolerance, compare, pattern};

const SIZE: [usize; 3] = [5, 4, 2];
const SAMPLE: usize = 5 * 4 * 2;
const LABELS: [u32; 7] = [0, 3, 1, 2, 2, 0, 1];
const DRAWS: Draws = Draws { seed: 4, step: 9, first_sample: 0 };

/// An exchange between threads, in f64, so that the reference loses no precision.
struct Place {
    barrier: Barrier,
    brought: Mutex<Vec<Vec<f64>>>,
}

/// A thread's side of it.
struct Way<'a> {
    place: &'a Place,
    rank: usize,
    world: usize,
}

impl Way<'_> {
    /// Passes this thread's numbers, and calls `take` with those of all.
    fn exchange(
        &self,
        device: &Device,
        data: &mut Storage,
        own: Span,
        take: impl FnOnce(&[Vec<f64>]) -> (Vec<f64>, Span),
    ) -> Result<()> {
        let numbers = match data.as_f64() {
            Some(data) => data[own.range()].to_vec(),
            None => data.to_vec(device, own.offset, own.len)?.into_iter().map(f64::from).collect(),
        };
        self.place.brought.lock().unwrap()[self.rank] = numbers;
        self.place.barrier.wait();
        let (numbers, at) = take(&self.place.brought.lock().unwrap());
        self.place.barrier.wait();
        match data.as_f64_mut() {
            Some(data) => data[at.range()].copy_from_slice(&numbers),
            None => {
                let numbers: Vec<f32> = numbers.into_iter().map(|x| x as f32).collect();
                device.upload(&numbers, data, at.offset)?;
            }
        }
        Ok(())
    }
}

impl Exchange for Way<'_> {
    fn all_reduce(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()> {
        self.exchange(device, data, at, |brought| {
            let sum = |k: usize| brought.iter().map(|numbers| numbers[k]).sum();
            ((0..at.len).map(sum).collect(), at)
        })
    }

    fn all_gather(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()> {
        let len = at.len / self.world;
        let own = Span::new(at.offset + self.rank * len, len);
        self.exchange(device, data, own, |brought| (brought.concat(), at))
    }
}

/// Two normalizations: one after a bias that it cancels, one with a wide mean before it. Dropout and pooling
/// between.
fn graph() -> (Graph, Value) {
    let mut g = Graph::new("test", SIZE);
    let x = g.add(Conv2D::new(4, 3).same(), g.input()).unwrap();
    let x = g.add(BatchNormalization::new().activation(Relu), x).unwrap();
    let x = g.add(Dropout::new(0.25), x).unwrap();
    let x = g.add(MaxPooling2D::new(2), x).unwrap();
    let x = g.add(Conv2D::new(3, 1).activation(Relu), x).unwrap();
    let x = g.add(BatchNormalization::new().momentum(0.9), x).unwrap();
    let x = g.add(Flatten, x).unwrap();
    let logits = g.add(Dense::new(4), x).unwrap();
    (g, logits)
}

fn build(device: &Device) -> Network {
    let (graph, logits) = graph();
    let mut network = graph.build(logits, device, LABELS.len(), Mode::TrainingWithInputGradient).unwrap();
    network.init(3).unwrap();
    network
}

fn images() -> Vec<f64> {
    pattern(1, LABELS.len() * SAMPLE, 1.0)
}

/// The results of a pass: gradients, sums and metrics, and the gradients of the images.
#[derive(Clone)]
struct Left {
    grads: Vec<f64>,
    dx: Vec<f64>,
}

fn all(network: &Network, storage: &Storage, at: Span) -> Vec<f64> {
    match storage.as_f64() {
        Some(data) => data[at.range()].to_vec(),
        None => {
            storage.to_vec(network.device(), at.offset, at.len).unwrap().into_iter().map(f64::from).collect()
        }
    }
}

fn set(network: &mut Network, images: &[f64], rows: &Range<usize>) {
    let own = &images[rows.start * SAMPLE..rows.end * SAMPLE];
    let rounded: Vec<f32> = own.iter().map(|&x| x as f32).collect();
    network.set_input(&rounded, &LABELS[rows.clone()]).unwrap();
    let input = network.input_mut();
    let place = input.layout.offset..input.layout.end();
    if let Some(all) = input.data.as_f64_mut() {
        all[place].copy_from_slice(own);
    }
}

fn left(network: &Network, rows: &Range<usize>) -> Left {
    let (arena, dx) = (network.arena(), network.input_gradient().unwrap());
    let dx = all(network, dx.data, Span::new(dx.layout.offset, rows.len() * SAMPLE));
    Left { grads: all(network, &arena.grads, Span::new(0, arena.grads.len())), dx }
}

fn alone(network: &mut Network, images: &[f64]) -> Left {
    let rows = 0..LABELS.len();
    set(network, images, &rows);
    network.train_pass(DRAWS, 0.1, LABELS.len()).unwrap();
    left(network, &rows)
}

/// One pass of replicas with slices that end at `cuts`: the sums over all results.
fn together(networks: &mut [Network], cuts: &[usize], images: &[f64]) -> Left {
    let world = networks.len();
    let place = &Place { barrier: Barrier::new(world), brought: Mutex::new(vec![Vec::new(); world]) };
    let parts: Vec<Left> = thread::scope(|scope| {
        let pass = |(rank, network): (usize, &'_ mut Network)| {
            let rows = if rank == 0 { 0 } else { cuts[rank - 1] }..cuts[rank];
            let draws = Draws { first_sample: rows.start as u32, ..DRAWS };
            let mut way = Way { place, rank, world };
            network.synchronize(rank, world).unwrap();
            set(network, images, &rows);
            network.train_pass_with(draws, 0.1, LABELS.len(), Some(&mut way)).unwrap();
            left(network, &rows)
        };
        let threads: Vec<_> =
            networks.iter_mut().enumerate().map(|member| scope.spawn(move || pass(member))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    parts
        .into_iter()
        .reduce(|mut sum, part| {
            sum.grads.iter_mut().zip(part.grads).for_each(|(sum, x)| *sum += x);
            sum.dx.extend(part.dx);
            sum
        })
        .unwrap()
}

const CUTS: [&[usize]; 6] = [&[7], &[4, 7], &[0, 7], &[1, 3, 7], &[2, 2, 7], &[0, 1, 7, 7]];

/// Gradients, sums behind the running averages, losses, and gradients of the images.
#[test]
fn replicas_compute_what_one_does() {
    for (device, tolerance) in [(towers_tensor_cpu::reference(), 1e-12), (towers_tensor_cpu::device(1), 2e-5)]
    {
        let expected = alone(&mut build(&device), &images());
        for cuts in CUTS {
            let mut networks: Vec<Network> = cuts.iter().map(|_| build(&device)).collect();
            let got = together(&mut networks, cuts, &images());
            compare(&format!("{cuts:?}"), &got.grads, &expected.grads, Tolerance::new(0.0, tolerance))
                .unwrap();
            compare(&format!("dx, {cuts:?}"), &got.dx, &expected.dx, Tolerance::new(0.0, tolerance)).unwrap();
        }
    }
}

/// The test above can fail: without an exchange, replicas compute another function.
#[test]
fn replicas_that_do_not_meet_compute_something_else() {
    let device = towers_tensor_cpu::reference();
    let expected = alone(&mut build(&device), &images());
    let mut sum = vec![0.0; expected.grads.len()];
    for rows in [0..4, 4..7] {
        let mut network = build(&device);
        set(&mut network, &images(), &rows);
        let draws = Draws { first_sample: rows.start as u32, ..DRAWS };
        network.train_pass(draws, 0.1, LABELS.len()).unwrap();
        sum.iter_mut().zip(left(&network, &rows).grads).for_each(|(sum, x)| *sum += x);
    }
    assert!(compare("slices", &sum, &expected.grads, Tolerance::new(0.0, 1e-3)).is_err());
}

/// Every parameter and every pixel, through statistics that all replicas share, against differences of the sum of their losses
/// in f64.
#[test]
fn gradients_are_those_of_the_loss_of_all() {
    const STEP: f64 = 1.0 / 65_536.0;
    let cuts = [2, 2, 7];
    let device = towers_tensor_cpu::reference();
    let mut networks: Vec<Network> = cuts.iter().map(|_| build(&device)).collect();
    let (mut images, metrics) = (images(), networks[0].arena().metrics.offset);
    let grads = together(&mut networks, &cuts, &images);
    let scale = |gradients: &[f64]| gradients.iter().fold(0.0, |m: f64, g| m.max(g.abs()));
    let mut checked = 0;
    // The mean loss with a parameter, or a pixel, changed by this much.
    let trainable = networks[0].arena().trainable.range();
    for k in trainable.step_by(3) {
        let mut loss = |off: f64| {
            let vary = |networks: &mut [Network], off: f64| {
                networks.iter_mut().for_each(|n| n.arena_mut().params.as_f64_mut().unwrap()[k] += off);
            };
            vary(&mut networks, off);
            let loss = together(&mut networks, &cuts, &images).grads[metrics] / LABELS.len() as f64;
            vary(&mut networks, -off);
            loss
        };
        let difference = (loss(STEP) - loss(-STEP)) / (2.0 * STEP);
        let error = (difference - grads.grads[k]).abs();
        assert!(error < 1e-6, "parameter {k}: {} but differences give {difference}", grads.grads[k]);
        checked += usize::from(grads.grads[k] != 0.0);
    }
    for k in (0..images.len()).step_by(7) {
        let mut loss = |off: f64| {
            images[k] += off;
            let loss = together(&mut networks, &cuts, &images).grads[metrics] / LABELS.len() as f64;
            images[k] -= off;
            loss
        };
        let difference = (loss(STEP) - loss(-STEP)) / (2.0 * STEP);
        let error = (difference - grads.dx[k]).abs();
        assert!(error < 1e-6, "pixel {k}: {} but differences give {difference}", grads.dx[k]);
    }
    assert!(checked > 20 && scale(&grads.dx) > 1e-3, "{checked} gradients that are not 0");
}

/// The running averages after a step are those of the whole batch, wherever the samples are.
#[test]
fn running_averages_are_those_of_the_whole_batch() {
    let device = towers_tensor_cpu::reference();
    let averages = |network: &mut Network, grads: &[f64]| {
        network.arena_mut().grads.as_f64_mut().unwrap().copy_from_slice(grads);
        network.finish_step(LABELS.len()).unwrap();
        network.arena().running.as_f64().unwrap().to_vec()
    };
    let mut one = build(&device);
    let grads = alone(&mut one, &images()).grads;
    let expected = averages(&mut one, &grads);
    let mut networks: Vec<Network> = (0..3).map(|_| build(&device)).collect();
    let sums = together(&mut networks, &[1, 1, 7], &images()).grads;
    for network in &mut networks {
        let got = averages(network, &sums);
        compare("running averages", &got, &expected, Tolerance::new(0.0, 1e-12)).unwrap();
    }
}

/// A network without such layers has nothing to exchange.
#[test]
fn only_some_layers_meet() {
    let mut graph = Graph::new("test", SIZE);
    let x = graph.add(Flatten, graph.input()).unwrap();
    let logits = graph.add(Dense::new(4), x).unwrap();
    let mut network = graph.build(logits, &towers_tensor_cpu::device(1), 2, Mode::Training).unwrap();
    assert!(!network.synchronize(0, 3).unwrap());
    assert!(build(&towers_tensor_cpu::device(1)).synchronize(0, 3).unwrap());
}

/// A synchronized replica may still train alone.
#[test]
fn a_pass_alone_is_the_same_when_replicas_are_prepared() {
    for device in [towers_tensor_cpu::reference(), towers_tensor_cpu::device(1)] {
        let (mut plain, mut prepared) = (build(&device), build(&device));
        assert!(prepared.synchronize(1, 2).unwrap());
        let images = images();
        for network in [&mut plain, &mut prepared] {
            let images: Vec<f32> = images.iter().map(|&x| x as f32).collect();
            network.set_input(&images, &LABELS).unwrap();
            network.train_pass(DRAWS, 0.1, LABELS.len()).unwrap();
        }
        let read = |network: &Network, data: &Storage, from: usize, len: usize| {
            data.to_vec(network.device(), from, len).unwrap()
        };
        let left = |network: &Network| {
            let dx = network.input_gradient().unwrap();
            let grads = &network.arena().grads;
            let [logits, dx] = [network.logits(), dx]
                .map(|View { data, layout }| read(network, data, layout.offset, layout.shape.len()));
            [read(network, grads, 0, grads.len()), logits, dx]
        };
        assert_eq!(left(&prepared), left(&plain));
    }
}
