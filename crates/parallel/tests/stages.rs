//! Pipelines of stages: their tensors, and how they end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use towers_parallel::{Error, Pass, Replica, Stage, one_forward_one_backward, run_stages};
use towers_program::Span;
use towers_program::ops::Neighbor;

/// Longer than any test takes without a hang.
const LONG: Duration = Duration::from_secs(60);

/// Fails instead of hanging.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(LONG).expect("it hangs")
}

/// Writes a tensor of one number.
fn of(number: f32) -> impl FnOnce(&mut Vec<f32>) -> Result<(), Error> {
    move |tensor| {
        tensor.clear();
        tensor.push(number);
        Ok(())
    }
}

/// Reads one.
fn into(number: &mut f32) -> impl FnOnce(&[f32]) -> Result<(), Error> {
    |tensor| {
        *number = tensor[0];
        Ok(())
    }
}

/// Every stage adds its number plus 1 on the way forward, and doubles on the way back.
fn relay(replica: &Replica, stage: &Stage, micro_batches: usize) -> Result<Vec<f32>, Error> {
    let mut kept = vec![0.0; micro_batches];
    for pass in one_forward_one_backward(stage.stages(), stage.number(), micro_batches) {
        match pass {
            Pass::Forward(m) => {
                kept[m] = (100 * replica.rank() + 10 * m) as f32;
                if !stage.is_first() {
                    stage.receive(Neighbor::Previous, into(&mut kept[m]))?;
                }
                kept[m] += (stage.number() + 1) as f32;
                if !stage.is_last() {
                    stage.send(Neighbor::Next, of(kept[m]))?;
                }
            }
            Pass::Backward(m) => {
                if !stage.is_last() {
                    stage.receive(Neighbor::Next, into(&mut kept[m]))?;
                    kept[m] *= 2.0;
                }
                if !stage.is_first() {
                    stage.send(Neighbor::Previous, of(kept[m]))?;
                }
            }
        }
    }
    Ok(kept)
}

#[test]
fn tensors_go_from_stage_to_stage_and_back() {
    for (replicas, stages, micro_batches) in [(1, 2, 1), (1, 3, 5), (2, 2, 4), (3, 4, 2)] {
        let devices = vec![towers_tensor_cpu::device(1); replicas * stages];
        let all = in_time(move || {
            run_stages(&devices, stages, LONG, |replica, stage| relay(&replica, &stage, micro_batches))
                .unwrap()
        });
        for (k, kept) in all.into_iter().enumerate() {
            let (replica, stage) = (k / stages, k % stages);
            let sum = (stages * (stages + 1) / 2) as f32;
            for (m, x) in kept.into_iter().enumerate() {
                let doubled = f32::from(1u16 << (stages - 1 - stage));
                assert_eq!(x, ((100 * replica + 10 * m) as f32 + sum) * doubled);
            }
        }
    }
}

#[test]
fn stages_add_up_across_replicas_and_within_one() {
    let sums = in_time(|| {
        run_stages(&vec![towers_tensor_cpu::device(1); 6], 3, LONG, |mut replica, mut stage| {
            let device = replica.device.clone();
            let own = (10 * replica.rank() + stage.number() + 1) as f32;
            let mut data = device.alloc(2)?;
            device.upload(&[own, own], &mut data, 0)?;
            replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, 1))?;
            stage.replica.all_reduce_sum(&device, &mut data, Span::new(1, 1))?;
            Ok::<_, Error>(data.to_vec(&device, 0, 2)?)
        })
        .unwrap()
    });
    assert_eq!(sums, [[12.0, 6.0], [14.0, 6.0], [16.0, 6.0], [12.0, 36.0], [14.0, 36.0], [16.0, 36.0]]);
}

/// All stages stop, whatever they wait for, and in whichever replica.
#[test]
fn a_stage_that_fails_stops_all_of_all_replicas() {
    for failing in 0..4 {
        for panics in [false, true] {
            let error = in_time(move || {
                let run =
                    run_stages(&vec![towers_tensor_cpu::device(1); 4], 2, LONG, |mut replica, mut stage| {
                        if 2 * replica.rank() + stage.number() == failing {
                            assert!(!panics, "the stage broke");
                            return Err(Error::NoStage { place: "in this test", stages: 7 });
                        }
                        relay(&replica, &stage, 3)?;
                        let mut data = replica.device.alloc(1)?;
                        stage.replica.all_reduce_sum(&replica.device, &mut data, Span::new(0, 1))?;
                        replica.collective.all_reduce_sum(&replica.device, &mut data, Span::new(0, 1))
                    });
                run.unwrap_err().to_string()
            });
            let says = if panics { "the stage broke" } else { "there is no stage in this test one of 7" };
            assert!(error.contains(says) && !error.contains("stopped because"), "{error}");
        }
    }
}

#[test]
fn a_stage_that_has_finished_sends_nothing_more() {
    let error = in_time(|| {
        let run =
            run_stages(&vec![towers_tensor_cpu::device(1); 2], 2, LONG, |_, stage| match stage.is_first() {
                true => Ok(()),
                false => stage.receive(Neighbor::Previous, |_| Ok::<_, Error>(())),
            });
        run.unwrap_err().to_string()
    });
    assert_eq!(error, "stopped because stage 0 of replica 0 has finished");
}

#[test]
fn what_cannot_be_is_an_error() {
    let run = |devices: usize, stages| {
        run_stages(&vec![towers_tensor_cpu::device(1); devices], stages, LONG, |_, stage| {
            stage.send(Neighbor::Next, |_| Ok::<_, Error>(()))
        })
        .unwrap_err()
        .to_string()
    };
    assert_eq!(run(3, 2), "3 devices can't be divided into pipelines of 2 stages");
    assert_eq!(run(1, 0), "1 devices can't be divided into pipelines of 0 stages");
    assert_eq!(run(1, 1), "there is no stage behind the last one of 1");
}

/// A body that waits until so many others have been told.
struct Told(AtomicUsize);

impl Told {
    fn wait_for(&self, others: usize) {
        while self.0.load(Ordering::Relaxed) < others {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The replica comes to no all-reduce, and would for ever keep the others waiting.
#[test]
fn a_replica_that_hangs_is_named() {
    let told = Told(AtomicUsize::new(0));
    let error = in_time(move || {
        run_stages(&vec![towers_tensor_cpu::device(1); 3], 1, Duration::from_secs(1), |mut replica, _| {
            if replica.rank() == 1 {
                told.wait_for(2);
            }
            let waited = replica.collective.barrier();
            told.0.fetch_add(1, Ordering::Relaxed);
            waited
        })
        .unwrap_err()
        .to_string()
    });
    assert_eq!(error, "stopped because replica 1 kept the others waiting for 1 seconds");
}

/// Stage 0 of replica 1 waits too, for the stage that hangs, and other replicas wait for it.
#[test]
fn of_stages_that_wait_for_each_other_the_cause_is_named() {
    let told = Told(AtomicUsize::new(0));
    let error = in_time(move || {
        run_stages(&vec![towers_tensor_cpu::device(1); 4], 2, Duration::from_secs(2), |mut replica, stage| {
            let ended = match (replica.rank(), stage.number()) {
                (1, 1) => {
                    told.wait_for(3);
                    Ok(())
                }
                (1, 0) => stage.receive(Neighbor::Next, |_| Ok::<_, Error>(())),
                _ => replica.collective.barrier(),
            };
            told.0.fetch_add(1, Ordering::Relaxed);
            ended
        })
        .unwrap_err()
        .to_string()
    });
    assert_eq!(error, "stopped because stage 1 of replica 1 kept the others waiting for 2 seconds");
}

/// Nothing ends a thread from outside. This test starts itself: the process of the run must end.
#[test]
fn a_replica_that_hangs_for_ever_ends_the_process() {
    const HANGS: &str = "TOWERS_TEST_HANGS";
    if std::env::var_os(HANGS).is_none() {
        let mut own = std::process::Command::new(std::env::current_exe().unwrap());
        own.args(["stages::a_replica_that_hangs_for_ever_ends_the_process", "--exact", "--nocapture"]);
        let ended = in_time(move || own.env(HANGS, "1").output().unwrap());
        let said = String::from_utf8_lossy(&ended.stderr);
        let expected = "error: replica 1 kept the others waiting for 1 seconds; replica 1 did not end within \
                        1 seconds after that, so this process ends";
        assert!(ended.status.code() == Some(1) && said.contains(expected), "{said}");
        return;
    }
    let _ =
        run_stages(&vec![towers_tensor_cpu::device(1); 2], 1, Duration::from_secs(1), |mut replica, _| {
            if replica.rank() == 1 {
                std::thread::sleep(LONG);
            }
            replica.collective.barrier()
        });
    unreachable!("the other replica hangs");
}
