//! The in-process collective on GPUs, emulated ones here: the bits of the collective in host memory, and its
//! errors.

use crate::cpus;
use crate::emulated::gpus;
use crate::everything::LENS;
use towers_parallel::{Error, Replica, run_replicas};
use towers_program::Device;

fn everything(devices: &[Device], lens: &[usize]) -> Vec<Vec<u32>> {
    run_replicas(devices, |replica| crate::everything::everything(replica, lens)).unwrap()
}

#[test]
fn gpus_add_up_to_the_bits_of_host_memory() {
    for world in 2..=4 {
        let Some(devices) = gpus(world) else { return };
        assert_eq!(everything(&devices, &LENS), everything(&cpus(world), &LENS), "{world} replicas");
    }
}

/// Clones share scratch memory and the learning rate, so no two threads may work with them. The same GPU may be opened
/// twice.
#[cfg(feature = "cuda")]
#[test]
fn clones_of_a_gpu_are_no_replicas() {
    let Some(mut devices) = gpus(2) else { return };
    devices.push(devices[0].clone());
    let body = |replica: Replica| Ok::<_, Error>(replica.rank());
    let patience = std::time::Duration::from_secs(60);
    let as_stages = towers_parallel::run_stages(&devices, 3, patience, |replica, _| body(replica));
    for refused in [run_replicas(&devices, body), as_stages] {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("open the GPU once for each replica"), "{error}");
    }
    devices.push(towers_tensor_cpu::device(1));
    assert!(run_replicas(&devices, body).is_err(), "beside a CPU");
    assert_eq!(run_replicas(&devices[..2], body).unwrap(), [0, 1]);
}

/// A GPU and a CPU exchange data through host memory.
#[test]
fn unlike_devices_meet_in_host_memory() {
    let Some(mut devices) = gpus(1) else { return };
    devices.push(towers_tensor_cpu::device(1));
    let lens = [0, 7, 100];
    assert_eq!(everything(&devices, &lens), everything(&cpus(2), &lens));
}

/// Used weights have compute copies beside their arena. A broadcast changes the copies too.
#[test]
fn a_broadcast_reaches_the_mirrors_of_weights() {
    let Some(devices) = gpus(2) else { return };
    let results = run_replicas(&devices, |mut replica: Replica| {
        use towers_program::{
            Activation, Arena, Layout, Linear, Shape, StepArgs, Trial, Write, ops::LinearForward,
        };
        let (device, rank) = (replica.device.clone(), replica.rank());
        let (linear, mut trial) = (Linear { inputs: 2, outputs: 1 }, Trial::new(1));
        let x = trial.activations(Layout::contiguous(Shape::vectors(1, 2)), &[10.0, 1.0]);
        let y = trial.activations(Layout::contiguous(Shape::vectors(1, 1)), &[0.0]);
        let w = trial.run(Arena::Parameters, &[1.0 + rank as f32, 1.0]);
        trial.step(LinearForward { linear, act: Activation::None }, &[x, w], &[y], Write::Set);
        let (mut run, mut outputs) = (trial.on(&*device)?, Vec::new());
        for turn in 0..2 {
            run.run(&StepArgs::inference(1))?;
            outputs.extend(run.read(y, 1)?);
            if turn == 0 {
                let at = run.executable.span(w);
                replica.collective.broadcast(&device, &mut run.parameters, at, 1)?;
            }
        }
        Ok::<_, Error>(outputs)
    });
    assert_eq!(results.unwrap(), [[11.0, 21.0], [21.0, 21.0]]);
}

/// The host waits for the other replicas, which can't be captured in a graph.
#[cfg(feature = "cuda")]
#[test]
fn a_sum_is_not_recorded() {
    use towers_program::{GraphCache, ReplayArgs, Span};
    let Some(devices) = gpus(2) else { return };
    let result = run_replicas(&devices, |mut replica: Replica| {
        let device = replica.device.clone();
        let mut data = device.alloc(4)?;
        let mut recorder = GraphCache::default();
        let collective = &mut replica.collective;
        let mut work = || collective.all_reduce_sum(&device, &mut data, Span::new(0, 4));
        recorder.run(&device, "sum", &ReplayArgs::default(), &mut work)?;
        recorder.run(&device, "sum", &ReplayArgs::default(), &mut work)
    });
    let error = result.unwrap_err().to_string();
    assert!(error.contains("captured in a graph"), "{error}");
}
