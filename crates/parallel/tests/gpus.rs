//! The in-process collective on GPUs, emulated ones here: the bits of the collective in host memory, and its
//! errors.

#![allow(clippy::unwrap_used)] // A test panics where something fails, its own functions too.

use parallel::{Error, Replica, run_replicas};
use program::{Device, Precision, Span, Storage};

/// This number of GPUs, or none without a C++ compiler.
fn gpus(count: usize) -> Option<Vec<Device>> {
    let devices: Result<Vec<_>, _> = (0..count).map(|_| tensor_cuda::emulated(Precision::Fp32)).collect();
    devices.inspect_err(|error| println!("SKIPPED: collectives on GPUs: {error}")).ok()
}

/// Numbers of such different sizes that every order of adding them gives other bits.
fn value(part: usize, k: usize) -> f32 {
    let size = [1.0e-7, 1.0, 3.0e7, -2.9e7, 0.1][part % 5];
    size * (1.0 + k as f32 * 0.37) / (part + 1) as f32
}

/// Elements before and after the run that is added up.
const EDGE: usize = 3;

fn bring(device: &Device, part: usize, len: usize) -> Result<Storage, Error> {
    let mut data = device.alloc(len + 2 * EDGE)?;
    let values: Vec<f32> = (0..len).map(|k| value(part, k)).collect();
    device.upload(&values, &mut data, EDGE)?;
    Ok(data)
}

/// Sums, sums of `rank` parts each in order, a broadcast and a gather. Most of them work on the results of
/// the last one.
fn everything(devices: &[Device], lens: &[usize]) -> Vec<Vec<f32>> {
    run_replicas(devices, |mut replica: Replica| {
        let (device, rank) = (replica.device.clone(), replica.rank());
        let mut all = Vec::new();
        for &len in lens {
            let at = Span::new(EDGE, len);
            let mut data = bring(&device, rank, len)?;
            for _ in 0..2 {
                replica.collective.all_reduce_sum(&device, &mut data, at)?;
                all.extend(data.to_vec(&device, 0, len + 2 * EDGE)?);
            }
            let parts = (0..rank).map(|part| bring(&device, rank * rank + part, len));
            let parts = parts.collect::<Result<Vec<_>, _>>()?;
            replica.collective.all_reduce_in_order(&device, &parts, at, &mut data)?;
            all.extend(data.to_vec(&device, 0, len + 2 * EDGE)?);
            device.fill(rank as f32, &mut data, Span::new(0, len + 2 * EDGE))?;
            replica.collective.broadcast(&device, &mut data, at, 1)?;
            all.extend(data.to_vec(&device, 0, len + 2 * EDGE)?);
            let mut data = bring(&device, rank, len)?;
            let equal_parts = Span::new(EDGE, len - len % devices.len());
            replica.collective.all_gather(&device, &mut data, equal_parts)?;
            all.extend(data.to_vec(&device, 0, len + 2 * EDGE)?);
        }
        Ok::<_, Error>(all)
    })
    .unwrap()
}

#[test]
fn gpus_add_up_to_the_bits_of_host_memory() {
    let lens = [0, 1, 2, 5, 23, 64, 1001];
    for world in 2..=4 {
        let Some(devices) = gpus(world) else { return };
        let host = everything(&vec![tensor_cpu::device(1); world], &lens);
        let bits = |all: &[f32]| all.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        for (rank, numbers) in everything(&devices, &lens).iter().enumerate() {
            assert_eq!(bits(numbers), bits(&host[rank]), "{world} replicas, replica {rank}");
        }
    }
}

/// Some replicas share a device, as clones of it.
#[test]
fn replicas_may_share_a_device() {
    let Some(mut devices) = gpus(2) else { return };
    devices.push(devices[0].clone());
    let lens = [0, 7, 100];
    assert_eq!(everything(&devices, &lens), everything(&vec![tensor_cpu::device(1); 3], &lens));
}

/// A GPU and a CPU exchange data through host memory.
#[test]
fn unlike_devices_meet_in_host_memory() {
    let Some(mut devices) = gpus(1) else { return };
    devices.push(tensor_cpu::device(1));
    let lens = [0, 7, 100];
    assert_eq!(everything(&devices, &lens), everything(&vec![tensor_cpu::device(1); 2], &lens));
}

/// Used weights have compute copies beside their arena. A broadcast changes the copies too.
#[test]
fn a_broadcast_reaches_the_mirrors_of_weights() {
    let Some(devices) = gpus(2) else { return };
    let results = run_replicas(&devices, |mut replica: Replica| {
        use program::{Activation, Arena, Layout, Linear, Shape, StepArgs, Trial, Write, ops::LinearForward};
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

#[test]
fn different_sizes_are_an_error_on_all() {
    let Some(devices) = gpus(3) else { return };
    for operation in 0..3 {
        let result = run_replicas(&devices, |mut replica: Replica| {
            let device = replica.device.clone();
            let len = 6 + replica.rank() / 2 * 3;
            let mut data = device.alloc(len)?;
            let at = Span::new(0, len);
            match operation {
                0 => replica.collective.all_reduce_sum(&device, &mut data, at),
                1 => replica.collective.broadcast(&device, &mut data, at, 0),
                _ => replica.collective.all_gather(&device, &mut data, at),
            }
        });
        assert!(matches!(result, Err(Error::Mismatch { .. })), "{result:?}");
    }
}

/// A replica that fails, before an operation or in it, stops the others and is named. No replica reads freed
/// memory.
#[test]
fn a_failing_replica_stops_the_others() {
    for bad in 0..3 {
        for outside in [false, true] {
            let Some(devices) = gpus(3) else { return };
            let result = run_replicas(&devices, |mut replica: Replica| {
                let device = replica.device.clone();
                let mut data = device.alloc(40)?;
                replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, 40))?;
                if replica.rank() == bad {
                    assert!(outside, "replica {bad} is the bad one");
                    replica.collective.all_reduce_sum(&device, &mut data, Span::new(1, 40))?;
                }
                let result = replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, 40));
                assert!(result.is_err() && replica.collective.barrier().is_err());
                result
            });
            match result.unwrap_err() {
                Error::Tensor(error) if outside => assert!(error.to_string().contains("41"), "{error}"),
                Error::Panicked { rank, .. } if !outside => assert_eq!(rank, bad),
                other => panic!("{other}"),
            }
        }
    }
}

/// The host waits for the other replicas, which can't be captured in a graph.
#[test]
fn a_sum_is_not_recorded() {
    use program::{GraphCache, ReplayArgs};
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
