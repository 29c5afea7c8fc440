//! The host's side of the real driver without a GPU: opening, copies, captures, errors, and that nothing is left over.
//!
//! Each test starts this program anew on `emulation/driver`, compiled to stand in for the driver and NVRTC. Where there is no
//! C++ compiler it prints a line that begins with `SKIPPED`.

#![allow(clippy::unwrap_used)] // A test panics where something fails, its own functions too.

use play::{Played, play_on, play_on_old};
use std::sync::Barrier;
use towers_program::{Backend, CapturedGraph as _, Error, ReplayArgs, Span, Storage};
use towers_tensor_cuda::{Cuda, Kernels, Nodes, Options, Peers, available, gpus, libraries};

/// The variable that says which scenario a second start plays.
const SCENARIO: &str = "TOWERS_TEST_SCENARIO";

#[cfg(feature = "emulation")]
#[path = "driver/bits.rs"]
mod bits;
#[path = "driver/mistakes.rs"]
mod mistakes;
#[path = "driver/play.rs"]
mod play;
#[path = "driver/ranks.rs"]
mod ranks;

/// Starts this program anew for a scenario. Returns its output, or nothing if there is no compiler.
fn play(scenario: &str, settings: &[(&str, &str)]) -> Option<String> {
    Some(start(scenario, settings)?.correct().printed)
}

/// The same for one that may call wrongly.
fn start(scenario: &str, settings: &[(&str, &str)]) -> Option<Played> {
    play_on(false, SECOND_START, &[&[(SCENARIO, scenario)], settings].concat())
}

const SECOND_START: &[&str] = &["--exact", "scenario", "--nocapture"];

/// What a second start does. By itself it is no test.
#[test]
fn scenario() {
    // A thread that fails ends all of it: others may wait for it.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        if std::env::var_os(SCENARIO).is_some() {
            std::process::exit(101);
        }
    }));
    match std::env::var(SCENARIO).as_deref() {
        Ok("work") => work(),
        Ok("memory") => memory(),
        Ok("broken") => broken(),
        Ok("replicas") => replicas(),
        Ok("mistakes") => mistakes::all(),
        Ok("ranks") => ranks::all(),
        Ok("silent") => ranks::silent(),
        #[cfg(feature = "emulation")]
        Ok("bits") => bits::compare(),
        Ok("open") => match open() {
            Ok(cuda) => println!("opened {}, compiled {}", cuda.name(), cuda.compiled_files() > 0),
            Err(error) => println!("refused: {error}"),
        },
        Ok("unusable") => println!("{}", available().unwrap_err()),
        Ok("look") => {
            println!("{:?}", available());
            gpus().unwrap().iter().for_each(|gpu| println!("{gpu:?}, free: {:?}", gpu.free_memory()));
            libraries().iter().for_each(|library| println!("{}: {:?}", library.name, library.state));
        }
        _ => {}
    }
}

fn open() -> Result<Cuda, Error> {
    let gpu = std::env::var("TOWERS_TEST_GPU").map_or(0, |number| number.parse().unwrap());
    Cuda::new(Options { gpu, kernels: Kernels::Own, ..Options::default() })
}

fn work() {
    let cuda = open().unwrap();
    // More than the staging ring holds, from memory that is gone at once.
    let numbers = |k: usize| (0..3_000_000).map(move |i| (i * 7 + k) as f32);
    let mut buffer = cuda.alloc(6_000_000).unwrap();
    for k in 0..2 {
        let host: Vec<f32> = numbers(k).collect();
        cuda.upload(&host, &mut buffer, k * 3_000_000).unwrap();
    }
    let mut back = vec![1.0; 3_000_000];
    for k in 0..2 {
        cuda.download(&buffer, k * 3_000_000, &mut back).unwrap();
        assert!(numbers(k).eq(back.iter().copied()));
    }
    // Any thread may work, and new memory is zero.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let fresh = cuda.alloc(100).unwrap();
            cuda.download(&fresh, 0, &mut back[..100]).unwrap();
            assert!(back[..100].iter().all(|&x| x == 0.0));
            assert!(cuda.alloc(0).unwrap().is_empty());
        });
    });
    // A capture: calls that it can't hold are refused, freed memory is kept meanwhile, and replays are
    // allowed.
    let dropped = cuda.alloc(10).unwrap();
    cuda.begin_capture().unwrap();
    cuda.fill(1.0, &mut buffer, Span::new(0, 10)).unwrap();
    for refused in [cuda.alloc(1).map(drop), cuda.synchronize(), cuda.upload(&[1.0], &mut buffer, 0)] {
        assert!(refused.unwrap_err().to_string().contains("can't be captured in a graph"));
    }
    drop(dropped);
    let graph = cuda.end_capture().unwrap();
    graph.replay(&ReplayArgs::default()).unwrap();
    cuda.download(&buffer, 0, &mut back[..10]).unwrap();
    assert_eq!(back[..10], [1.0; 10]);
    cuda.begin_capture().unwrap();
    cuda.abandon_capture();
    cuda.synchronize().unwrap();
    // The second stream, outside of a capture, within it, and where a capture ends before it was joined. What was
    // recorded of it is no part of what follows.
    cuda.fork().unwrap();
    for joined in [true, false] {
        cuda.begin_capture().unwrap();
        cuda.fork().unwrap();
        cuda.fill(2.0, &mut buffer, Span::new(0, 10)).unwrap();
        cuda.fork().unwrap();
        if joined {
            cuda.join().unwrap();
        }
        cuda.end_capture().unwrap().replay(&ReplayArgs::default()).unwrap();
        cuda.join().unwrap();
        cuda.fork().unwrap();
        cuda.synchronize().unwrap();
    }
    cuda.begin_capture().unwrap();
    cuda.fork().unwrap();
    cuda.abandon_capture();
    cuda.fork().unwrap();
    graph.replay(&ReplayArgs::default()).unwrap();
    // The device moves to another thread, with the last of its clones.
    std::thread::spawn(move || drop((cuda, buffer, graph))).join().unwrap();
    // What was compiled once is not compiled again.
    assert_eq!(open().unwrap().compiled_files(), 0);
}

fn memory() {
    let cuda = open().unwrap();
    let error = cuda.alloc(1 << 30).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { bytes: 0x1_0000_0000, .. }), "{error}");
    assert!(error.to_string().ends_with("could not be allocated on Fake (cuda:0)"), "{error}");
    cuda.alloc(1 << 10).unwrap();
}

fn broken() {
    let cuda = open().unwrap();
    let mut buffer = cuda.alloc(10).unwrap();
    // An error comes up in a later call, when the GPU has come there.
    let mut fill = || cuda.fill(1.0, &mut buffer, Span::new(0, 10));
    let error = (0..1_000_000).find_map(|_| fill().err()).unwrap().to_string();
    assert!(error.starts_with("Fake (cuda:0): kernel `fill_f32` on "), "{error}");
    assert!(error.contains("CUDA_ERROR_ILLEGAL_ADDRESS: what the driver says; this process"), "{error}");
    assert!(cuda.synchronize().is_err() && cuda.begin_capture().is_err());
    assert!(cuda.download(&buffer, 0, &mut [0.0]).is_err());
    drop((buffer, cuda));
}

fn nodes<'a>(earlier: &'a [Storage], counts: &'a [usize], joins: &'a [usize]) -> Nodes<'a> {
    Nodes { earlier, counts, joins }
}

/// Two replicas on two GPUs or one, each on its thread.
fn replicas() {
    let gpus = gpus().unwrap().len();
    let open =
        |gpu| Cuda::new(Options { gpu: gpu % gpus, kernels: Kernels::Own, ..Options::default() }).unwrap();
    let devices: Vec<Cuda> = (0..2).map(open).collect();
    let peers = Peers::of(&devices).unwrap();
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        for (rank, cuda) in devices.iter().enumerate() {
            let (peers, barrier) = (&peers, &barrier);
            scope.spawn(move || {
                let meet = || {
                    barrier.wait();
                    Ok::<(), Error>(())
                };
                let mut data = cuda.alloc(100).unwrap();
                cuda.upload(&[1.0 + rank as f32; 100], &mut data, 0).unwrap();
                let at = Span::new(1, 98);
                for root in [1, 0] {
                    peers.broadcast(rank, &mut data, at, root, meet).unwrap();
                    let mut back = [0.0; 100];
                    cuda.download(&data, 0, &mut back).unwrap();
                    assert_eq!(
                        (back[0], back[1], back[98], back[99]),
                        (1.0 + rank as f32, 2.0, 2.0, 1.0 + rank as f32)
                    );
                }
                // Each continues at once with memory that the other may still read.
                for args in 0..20 {
                    cuda.upload(&[args as f32 + rank as f32; 98], &mut data, 1).unwrap();
                    peers.all_reduce(rank, nodes(&[], &[1, 1], &[0, 1]), &mut data, at, meet).unwrap();
                    if args % 5 == 0 {
                        let mut back = [0.0; 98];
                        cuda.download(&data, 1, &mut back).unwrap();
                        assert_eq!(back, [2.0 * args as f32 + 1.0; 98]);
                    }
                }
                // The second one has no part. The first one has two nodes: 1 + 3.
                let mut earlier = cuda.alloc(100).unwrap();
                cuda.upload(&[1.0; 98], &mut earlier, 1).unwrap();
                cuda.upload(&[3.0; 98], &mut data, 1).unwrap();
                let earlier = if rank == 0 { vec![earlier] } else { Vec::new() };
                peers.all_reduce(rank, nodes(&earlier, &[2, 0], &[0, 1]), &mut data, at, meet).unwrap();
                let mut back = [1.0; 100];
                cuda.download(&data, 0, &mut back).unwrap();
                assert_eq!(back[1..99], [4.0; 98]);
            });
        }
    });
}

#[test]
fn replicas_reach_each_other_on_two_gpus_and_on_one() {
    for (gpus, peers, pace) in [("2", "1", "lazy"), ("2", "0", "7"), ("1", "1", "eager"), ("1", "1", "lazy")]
    {
        let settings = [("FAKE_GPUS", gpus), ("FAKE_PEERS", peers), ("FAKE_PACE", pace)];
        let Some(printed) = play("replicas", &settings) else { return };
        assert_eq!(printed.matches("clean after").count().to_string(), gpus, "{printed}");
    }
}

#[test]
fn ranks_reach_each_other_by_nccl() {
    for (ranks, pace) in [("2", "lazy"), ("3", "7"), ("1", "eager")] {
        let settings =
            [(SCENARIO, "ranks"), ("TOWERS_TEST_RANKS", ranks), ("FAKE_GPUS", ranks), ("FAKE_PACE", pace)];
        let Some(played) = play_on(true, SECOND_START, &settings) else { return };
        let printed = played.correct().printed;
        assert!(!printed.contains("refused") && printed.contains("NCCL: 0 left over"), "{printed}");
        assert_eq!(printed.matches("clean after").count().to_string(), ranks, "{printed}");
    }
}

#[test]
fn nccl_refuses_two_ranks_on_one_gpu() {
    let Some(played) = play_on(true, SECOND_START, &[(SCENARIO, "ranks"), ("FAKE_GPUS", "1")]) else {
        return;
    };
    let printed = played.correct().printed;
    let said = "ncclCommInitRankConfig failed: what NCCL says: Duplicate GPU detected";
    assert_eq!(printed.matches(said).count(), 2, "{printed}");
}

#[test]
fn a_silent_rank_ends_the_wait_of_the_others() {
    let settings =
        [(SCENARIO, "silent"), ("TOWERS_TEST_RANKS", "3"), ("FAKE_GPUS", "3"), ("FAKE_PACE", "eager")];
    let Some(played) = play_on(true, SECOND_START, &settings) else { return };
    let printed = played.correct().printed;
    assert_eq!(printed.matches("waited 2 s in a collective for the others").count(), 2, "{printed}");
    assert!(!printed.contains("FAKE"), "{printed}");
}

#[test]
fn a_device_works_from_any_thread_and_leaves_nothing_over() {
    for pace in ["lazy", "eager", "7"] {
        let Some(printed) = play("work", &[("FAKE_PACE", pace)]) else { return };
        assert_eq!(printed.matches("clean after").count(), 2, "{printed}");
    }
}

/// Priorities make a graph faster. A driver that refuses them runs it all the same, and nothing is left over.
#[test]
fn a_graph_needs_no_priorities() {
    let Some(printed) = play("work", &[("FAKE_PRIORITIES", "0")]) else { return };
    assert_eq!(printed.matches("clean after").count(), 2, "{printed}");
}

#[test]
fn too_little_memory_is_an_error_and_not_the_end() {
    let Some(printed) = play("memory", &[("FAKE_MEMORY", "67108864")]) else { return };
    assert!(printed.contains("clean after"), "{printed}");
}

#[test]
fn a_context_that_broke_is_left_without_a_panic() {
    let Some(printed) = play("broken", &[("FAKE_BREAK", "5"), ("FAKE_PACE", "eager")]) else { return };
    assert!(printed.contains("clean after"), "{printed}");
}

#[test]
fn a_newer_gpu_gets_what_its_driver_translates() {
    let Some(printed) = play("open", &[("FAKE_CAPABILITY", "130")]) else { return };
    assert!(
        printed.contains("opened Fake (cuda:0), compiled true") && printed.contains("clean"),
        "{printed}"
    );
}

#[test]
fn what_can_not_be_opened_is_said_in_a_sentence() {
    let cases = [
        ("FAKE_VERSION", "12020", "cuda:0: Fake is there, but can't be used: the NVIDIA driver 12.2 in /"),
        ("FAKE_GPUS", "0", "cuda:0: cuInit failed with CUDA_ERROR_NO_DEVICE: what the driver says;"),
        // A status that was unknown when this was written.
        (
            "FAKE_INIT",
            "997",
            "cuda:0: an NVIDIA GPU is there, but can't be used: cuInit failed with error 997: what the driver",
        ),
        ("TOWERS_TEST_GPU", "3", "cuda:3: there is no GPU 3; the only one is 0 (Fake)"),
        (
            "FAKE_CAPABILITY",
            "70",
            "Fake (cuda:0): Fake has compute capability 7.0, but at least 8.0 is needed",
        ),
        ("FAKE_NVRTC", "12030", "Fake (cuda:0): NVRTC 12.3 in /"),
        ("FAKE_MEMORY", "1000", "out of memory: "),
    ];
    for (variable, value, said) in cases {
        let Some(printed) = play("open", &[(variable, value)]) else { return };
        assert!(printed.contains(&format!("refused: {said}")), "{variable}: {printed}");
        assert!(variable != "FAKE_MEMORY" || printed.contains("clean after"), "{printed}");
    }
}

/// The message depends on whether there is a GPU: it is there if the driver saw one, or failed
/// in a way that takes one.
#[test]
fn a_gpu_that_can_not_be_used_is_there() {
    let there = "is there, but can't be used: ";
    for (told, said) in [
        (&[("FAKE_VERSION", "12030")][..], "the NVIDIA driver 12.3 in /"),
        // What it refuses comes second: a new driver may not.
        (&[("FAKE_VERSION", "12030"), ("FAKE_INIT", "803")], "the NVIDIA driver 12.3 in /"),
        (
            &[("FAKE_INIT", "802")],
            "cuInit failed with error 802: what the driver says; the service nvidia-fabricm",
        ),
        (
            &[("FAKE_INIT", "803")],
            "cuInit failed with error 803: what the driver says; the driver was updated",
        ),
        (&[("FAKE_INIT", "804")], "cuInit failed with error 804: what the driver says; that libcuda is of"),
        (
            &[("FAKE_INIT", "999")],
            "cuInit failed with error 999: what the driver says; the module nvidia-uvm",
        ),
        (&[("FAKE_NVRTC", "12000")], "NVRTC 12.0 in /"),
        (&[("FAKE_CAPABILITY", "61"), ("FAKE_GPUS", "2")], "Fake has compute capability 6.1, but"),
        // A driver for CUDA 12 takes no NVRTC 13.
        (&[("FAKE_VERSION", "12080")], "NVRTC can't be loaded (libnvrtc.so.12: "),
    ] {
        let Some(printed) = play("unusable", told) else { return };
        assert!(printed.contains(&format!("{there}{said}")), "{told:?}: {printed}");
    }
    for told in [&[("FAKE_GPUS", "0")][..], &[("FAKE_GPUS", "0"), ("FAKE_VERSION", "12030")]] {
        let Some(printed) = play("unusable", told) else { return };
        assert!(printed.contains("cuInit failed with CUDA_ERROR_NO_DEVICE: "), "{printed}");
        assert!(!printed.contains(there), "{printed}");
    }
}

/// The oldest driver and NVRTC: their names, and functions that came later.
#[test]
fn a_driver_of_cuda_12_4_does_everything() {
    let Some(played) = play_on_old(SECOND_START, &[(SCENARIO, "work")]) else { return };
    let printed = played.correct().printed;
    assert_eq!(printed.matches("clean after").count(), 2, "{printed}");
    // PTX of a newer NVRTC is beyond it.
    let settings = [(SCENARIO, "open"), ("FAKE_CAPABILITY", "120"), ("FAKE_NVRTC", "12080")];
    let printed = play_on_old(SECOND_START, &settings).unwrap().correct().printed;
    let said = "refused: Fake (cuda:0): NVRTC 12.8 has no code for Fake but PTX, which a driver of CUDA 12.4 is too old to";
    assert!(printed.contains(said), "{printed}");
}

#[test]
fn gpus_and_libraries_are_described() {
    let Some(printed) = play("look", &[("FAKE_GPUS", "2"), ("FAKE_MEMORY", "4096")]) else { return };
    assert!(printed.contains("Ok(())"), "{printed}");
    let second = r#"Gpu { number: 1, name: "Fake", capability: (9, 0), memory: 4096 }, free: Some(4096)"#;
    assert!(printed.contains(second), "{printed}");
    assert!(printed.contains("libnvrtc.so.13") && printed.contains("libcuda.so.1"), "{printed}");
}

#[cfg(feature = "emulation")]
#[test]
fn steps_have_the_bits_of_the_emulation() {
    for pace in ["lazy", "7"] {
        if play("bits", &[("FAKE_PACE", pace)]).is_none() {
            return;
        }
    }
}

/// What never complains finds nothing.
#[test]
fn the_stand_in_refuses_what_a_driver_does() {
    let Some(Played { printed, errors }) = start("mistakes", &[]) else { return };
    assert!(printed.contains("all were found"), "{printed}{errors}");
}
