//! Replicas that exchange data in the middle of a pass. One that fails there ends all, and none waits for
//! ever.

use crate::groups;
use layers::{BatchNormalization, Conv2D, Dense, Draws, Exchange, Flatten, Graph, Mode, Network, Value};
use parallel::{Collective, Error, Replica, run_replicas};
use program::{Device, Span, Storage};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A fault of a replica in the middle of a pass, at its second exchange.
#[derive(Clone, Debug)]
struct Trap {
    how: How,
    in_backward: bool,
    armed: &'static AtomicBool,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Panics,
    Fails,
}

impl Trap {
    fn spring(&self, in_backward: bool) -> program::Result<()> {
        if self.in_backward != in_backward || !self.armed.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        match self.how {
            How::Panics => panic!("a trap"),
            How::Fails => Err(program::Error::DeviceMismatch { op: "a trap" }),
        }
    }
}

/// Two normalizations: the second one's exchange is the second of the forward pass, and the first one's of
/// the backward pass.
fn graph() -> (Graph, Value) {
    let mut graph = Graph::new("trapped", [4, 4, 3]);
    let x = graph.add(Conv2D::new(4, 3), graph.input()).unwrap();
    let x = graph.add(BatchNormalization::new(), x).unwrap();
    let x = graph.add(program::Activation::Relu, x).unwrap();
    let x = graph.add(BatchNormalization::new(), x).unwrap();
    let x = graph.add(Flatten, x).unwrap();
    let logits = graph.add(Dense::new(3), x).unwrap();
    (graph, logits)
}

struct Way<'a> {
    others: &'a mut dyn Collective,
    trap: &'a Trap,
    met: usize,
}

fn told(error: Error) -> program::Error {
    program::Error::Device { device: "the others".into(), message: error.to_string() }
}

impl Way<'_> {
    fn spring(&mut self, in_backward: bool) -> program::Result<()> {
        self.met += usize::from(in_backward == self.trap.in_backward);
        if self.met == 2 { self.trap.spring(in_backward) } else { Ok(()) }
    }
}

impl Exchange for Way<'_> {
    fn all_reduce(&mut self, device: &Device, data: &mut Storage, at: Span) -> program::Result<()> {
        self.spring(true)?;
        self.others.all_reduce_sum(device, data, at).map_err(told)
    }

    fn all_gather(&mut self, device: &Device, data: &mut Storage, at: Span) -> program::Result<()> {
        self.spring(false)?;
        self.others.all_gather(device, data, at).map_err(told)
    }
}

#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Parallel(#[from] Error),
    #[error(transparent)]
    Layers(#[from] layers::Error),
}

/// Three steps on samples of which the middle replica has none. The last replica has the fault.
fn run(devices: &[Device], trap: &Trap) -> Result<Vec<Vec<f32>>, Ended> {
    run_replicas(devices, |mut replica: Replica| {
        let (rank, device) = (replica.rank(), replica.device.clone());
        let own = Trap { armed: if rank == 2 { trap.armed } else { &NEVER }, ..trap.clone() };
        let (graph, logits) = graph();
        let mut network: Network = graph.build(logits, &device, 2, Mode::Training)?;
        network.init(1)?;
        network.synchronize(rank, replica.collective.world())?;
        let n = if rank == 1 { 0 } else { 2 };
        let images: Vec<f32> = (0..n * 48).map(|k| ((k + rank) as f32 * 0.7).sin()).collect();
        for step in 0..3 {
            network.set_input(&images, &[0, 2][..n])?;
            let draws = Draws { seed: 1, step, first_sample: rank as u32 };
            let mut way = Way { others: replica.collective.as_mut(), trap: &own, met: 0 };
            network.train_pass_with(draws, 0.0, 4, Some(&mut way))?;
            let grads = &mut network.arena_mut().grads;
            let all = Span::new(0, grads.len());
            replica.collective.all_reduce_sum(&device, grads, all)?;
        }
        let grads = &network.arena().grads;
        Ok(grads.to_vec(&device, 0, grads.len()).map_err(layers::Error::from)?)
    })
}

static NEVER: AtomicBool = AtomicBool::new(false);

#[test]
fn one_that_fails_in_the_middle_of_a_pass_ends_all() {
    static ARMED: AtomicBool = AtomicBool::new(false);
    for devices in groups(3) {
        for (how, in_backward) in [(How::Panics, false), (How::Fails, false), (How::Panics, true)] {
            ARMED.store(true, Ordering::SeqCst);
            let began = Instant::now();
            let ended = run(&devices, &Trap { how, in_backward, armed: &ARMED }).unwrap_err();
            assert!(began.elapsed() < Duration::from_secs(60), "the others waited");
            match how {
                How::Panics => {
                    let is_it = matches!(ended, Ended::Parallel(Error::Panicked { rank: 2, .. }));
                    assert!(is_it, "{ended}");
                }
                How::Fails => assert_eq!(
                    ended.to_string(),
                    "layer batch_normalization_1: a trap: an operand lives on another device than the op runs on"
                ),
            }
        }
    }
}

/// Without a fault all have the same sums, also replicas without samples.
#[test]
fn all_replicas_see_the_same_sums() {
    for devices in groups(3) {
        let trap = Trap { how: How::Fails, in_backward: false, armed: &NEVER };
        let grads = run(&devices, &trap).unwrap();
        assert!(grads[0].iter().any(|&g| g != 0.0) && grads[0].iter().all(|g| g.is_finite()));
        assert!(grads[0] == grads[1] && grads[1] == grads[2]);
    }
}
