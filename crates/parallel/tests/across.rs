//! Replicas that exchange data in the middle of a pass. One that fails there ends all, and none waits for
//! ever.

use crate::groups;
use towers_layers::{
    BatchNormalization, Conv2D, Dense, Draws, Exchange, Flatten, Graph, Mode, Network, Value,
};
use towers_parallel::{Error, Exchanges, Replica, run_replicas};
use towers_program::{Device, Span, Storage};

/// A fault of the last replica in the middle of a pass, at its second exchange.
#[derive(Clone, Copy)]
enum Fault {
    PanicsForward,
    PanicsBackward,
    FailsForward,
}

/// Two normalizations: the second one's exchange is the second of the forward pass, and the first one's of
/// the backward pass.
fn graph() -> (Graph, Value) {
    let mut graph = Graph::new("trapped", [4, 4, 3]);
    let x = graph.add(Conv2D::new(4, 3), graph.input()).unwrap();
    let x = graph.add(BatchNormalization::new(), x).unwrap();
    let x = graph.add(towers_program::Activation::Relu, x).unwrap();
    let x = graph.add(BatchNormalization::new(), x).unwrap();
    let x = graph.add(Flatten, x).unwrap();
    let logits = graph.add(Dense::new(3), x).unwrap();
    (graph, logits)
}

/// The exchanges of a replica, with a fault.
struct Way<'a> {
    others: &'a mut dyn Exchange,
    fault: Option<Fault>,
    /// The exchanges of the fault's kind so far.
    met: usize,
}

impl Way<'_> {
    fn meet(&mut self, backward: bool) -> towers_program::Result<()> {
        let Some(fault) = self.fault.filter(|fault| matches!(fault, Fault::PanicsBackward) == backward)
        else {
            return Ok(());
        };
        self.met += 1;
        match fault {
            _ if self.met < 2 => Ok(()),
            Fault::FailsForward => Err(towers_program::Error::DeviceMismatch { op: "a trap" }),
            Fault::PanicsForward | Fault::PanicsBackward => panic!("a trap"),
        }
    }
}

impl Exchange for Way<'_> {
    fn all_reduce(&mut self, device: &Device, data: &mut Storage, at: Span) -> towers_program::Result<()> {
        self.meet(true)?;
        self.others.all_reduce(device, data, at)
    }

    fn all_gather(&mut self, device: &Device, data: &mut Storage, at: Span) -> towers_program::Result<()> {
        self.meet(false)?;
        self.others.all_gather(device, data, at)
    }
}

#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Parallel(#[from] Error),
    #[error(transparent)]
    Layers(#[from] towers_layers::Error),
}

/// Three steps on samples of which the middle replica has none. The last replica has the fault.
fn run(devices: &[Device], fault: Option<Fault>) -> Result<Vec<Vec<f32>>, Ended> {
    run_replicas(devices, |mut replica: Replica| {
        let (rank, device) = (replica.rank(), replica.device.clone());
        let fault = fault.filter(|_| rank == 2);
        let (graph, logits) = graph();
        let mut network: Network = graph.build(logits, &device, 2, Mode::Training)?;
        network.init(1)?;
        network.synchronize(rank, replica.collective.world())?;
        let n = if rank == 1 { 0 } else { 2 };
        let images: Vec<f32> = (0..n * 48).map(|k| ((k + rank) as f32 * 0.7).sin()).collect();
        for step in 0..3 {
            network.set_input(&images, &[0, 2][..n])?;
            let draws = Draws { seed: 1, step, first_sample: rank as u32 };
            let mut exchanges = Exchanges::of_replicas(replica.collective.as_mut());
            let mut way = Way { others: &mut exchanges, fault, met: 0 };
            let passed = network.train_pass_with(draws, 0.0, 4, Some(&mut way));
            let passed = exchanges.end::<Ended>(passed);
            // The others return that failure, not the message that layers made of it.
            let is_told = matches!(passed, Ok(_) | Err(Ended::Parallel(Error::Aborted { .. })));
            assert!(is_told || fault.is_some(), "{passed:?}");
            passed?;
            let grads = &mut network.arena_mut().grads;
            let all = Span::new(0, grads.len());
            replica.collective.all_reduce_sum(&device, grads, all)?;
        }
        let grads = &network.arena().grads;
        Ok(grads.to_vec(&device, 0, grads.len()).map_err(towers_layers::Error::from)?)
    })
}

#[test]
fn one_that_fails_in_the_middle_of_a_pass_ends_all() {
    for devices in groups(3) {
        for fault in [Fault::PanicsForward, Fault::PanicsBackward, Fault::FailsForward] {
            match (fault, run(&devices, Some(fault)).unwrap_err()) {
                (Fault::FailsForward, ended) => assert_eq!(
                    ended.to_string(),
                    "layer batch_normalization_1: a trap: an operand lives on another device than the op runs on"
                ),
                (_, Ended::Parallel(Error::Panicked { rank: 2, .. })) => {}
                (_, ended) => panic!("{ended}"),
            }
        }
    }
}

/// Without a fault all have the same sums, also replicas without samples.
#[test]
fn all_replicas_see_the_same_sums() {
    for devices in groups(3) {
        let grads = run(&devices, None).unwrap();
        assert!(grads[0].iter().any(|&g| g != 0.0) && grads[0].iter().all(|g| g.is_finite()));
        assert!(grads[0] == grads[1] && grads[1] == grads[2]);
    }
}
