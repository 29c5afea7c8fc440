use crate::collective::Collective;
use crate::local::abort::Abortable;
use crate::local::barrier::Barrier;
use crate::local::collective::Local;
use crate::pipeline::link::Link;
use crate::{Error, Result};
use loom::thread::{Builder, JoinHandle};
use std::sync::Arc;
use towers_program::Span;

/// Runs the test in every order with at most so many preemptions: switches away from a thread that could continue.
fn in_every_order(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 10_000;
    model.check(test);
}

/// A thread with a stack for the calls of a device, in words.
fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().stack_size(1 << 15).spawn(run).unwrap()
}

/// Runs a thread for each of these. Returns what they return.
fn all<M: Send + 'static, T: Send + 'static>(members: Vec<M>, run: fn(M) -> T) -> Vec<T> {
    let threads: Vec<_> = members.into_iter().map(|member| spawn(move || run(member))).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn numbered<T>(count: usize, shared: T) -> Vec<(usize, Arc<T>)> {
    let shared = Arc::new(shared);
    (0..count).map(|own| (own, Arc::clone(&shared))).collect()
}

/// One says no in the first round: all hear it, and no echo of it in the second.
#[test]
fn all_hear_the_answer_of_their_round() {
    in_every_order(3, || {
        let answers = all(numbered(3, Barrier::new(3)), |(own, barrier)| {
            [barrier.all(own != 1).unwrap(), barrier.all(true).unwrap(), barrier.all(own != 2).unwrap()]
        });
        assert_eq!(answers, [[false, true, false]; 3]);
    });
}

/// Whoever waits, or comes later, hears of an abort.
#[test]
fn nobody_waits_after_an_abort() {
    in_every_order(3, || {
        let told = all(numbered(3, Barrier::new(3)), |(own, barrier)| {
            if own == 0 {
                assert!(barrier.abort(0, "the power is going"));
            }
            barrier.wait().unwrap_err().to_string()
        });
        assert!(told.iter().all(|told| told == "stopped because the power is going"), "{told:?}");
    });
}

/// Of two that abort, one is first, and its reason stays.
#[test]
fn the_first_reason_stays() {
    in_every_order(3, || {
        let ended = all(numbered(3, Barrier::new(3)), |(own, barrier)| {
            let first = own > 0 && barrier.abort(own, &own.to_string());
            (first, barrier.wait().unwrap_err().to_string())
        });
        let first = ended.iter().position(|(first, _)| *first).unwrap();
        assert_eq!(ended.iter().filter(|(first, _)| *first).count(), 1);
        assert!(ended.iter().all(|(_, told)| *told == format!("stopped because {first}")), "{ended:?}");
    });
}

/// What a thread took part in before it left succeeds for all.
#[test]
fn who_leaves_is_waited_for_no_more() {
    in_every_order(3, || {
        let ended = all(numbered(3, Barrier::new(3)), |(own, barrier)| {
            let first = barrier.wait();
            if own == 0 {
                barrier.leave("replica 0 has finished");
                return (first.is_ok(), true);
            }
            (first.is_ok(), barrier.wait().is_err())
        });
        assert_eq!(ended, [(true, true); 3]);
    });
}

/// A link's next tensor.
fn receive(link: &Link) -> Result<Vec<f32>> {
    let mut seen = Vec::new();
    link.receive(|tensor| {
        seen.extend_from_slice(tensor);
        Ok::<_, Error>(())
    })?;
    Ok(seen)
}

fn send(link: &Link, number: f32) -> Result<()> {
    link.send(|tensor| {
        // The memory of an older one is reused.
        tensor.clear();
        tensor.push(number);
        Ok(())
    })
}

/// Tensors come in their order, also those sent before the sender left.
#[test]
fn what_is_sent_arrives_in_order() {
    for leaves in [false, true] {
        in_every_order(4, move || {
            let link = Link::new();
            let sender = spawn({
                let link = Arc::clone(&link);
                move || {
                    (1..=3).for_each(|number| send(&link, number as f32).unwrap());
                    leaves.then(|| link.leave("stage 0 has finished"));
                }
            });
            for number in 1..=3 {
                assert_eq!(receive(&link).unwrap(), [number as f32]);
            }
            if leaves {
                assert_eq!(receive(&link).unwrap_err().to_string(), "stopped because stage 0 has finished");
            }
            sender.join().unwrap();
        });
    }
}

/// Both sides of two links end when a third thread aborts them.
#[test]
fn a_link_can_be_aborted() {
    in_every_order(3, || {
        let links: [Arc<Link>; 2] = [Link::new(), Link::new()];
        let ends = [[0, 1], [1, 0]].map(|ends| ends.map(|end| Arc::clone(&links[end])));
        let stages: Vec<_> = ends
            .into_iter()
            .map(|[to, from]| {
                spawn(move || {
                    // A tensor may come before. There is no second.
                    let _ = send(&to, 1.0);
                    receive(&from).and_then(|_| receive(&from)).unwrap_err().to_string()
                })
            })
            .collect();
        links.iter().for_each(|link| _ = link.abort(2, "stage 2 failed"));
        for stage in stages {
            assert_eq!(stage.join().unwrap(), "stopped because stage 2 failed");
        }
    });
}

fn group(world: usize) -> Vec<Local> {
    Local::group(&Arc::new(Barrier::new(world)), None)
}

/// An all-reduce of this many numbers. The replica's own ones are its number plus 1.
fn sum(local: &mut Local, len: usize) -> Result<Vec<f32>> {
    let device = towers_tensor_cpu::device(1);
    let (mut data, at) = (device.alloc(len)?, Span::new(0, len));
    device.fill(local.rank() as f32 + 1.0, &mut data, at)?;
    local.all_reduce_sum(&device, &mut data, at)?;
    Ok(data.to_vec(&device, 0, len)?)
}

/// A second sum may begin while others still read the first.
#[test]
fn sums_do_not_mix() {
    in_every_order(4, || {
        let sums = all(group(2), |mut local| [sum(&mut local, 3).unwrap(), sum(&mut local, 2).unwrap()]);
        assert_eq!(sums, vec![[vec![3.0; 3], vec![3.0; 2]]; 2]);
    });
}

#[test]
fn three_add_up() {
    in_every_order(2, || {
        let sums = all(group(3), |mut local| sum(&mut local, 4).unwrap());
        assert_eq!(sums, vec![vec![6.0; 4]; 3]);
    });
}

/// A third thread aborts at any moment. The replicas get the whole sum or the reason, never something else.
#[test]
fn an_abort_leaves_no_half_sum() {
    in_every_order(3, || {
        let barrier = Arc::new(Barrier::new(2));
        let members = Local::group(&barrier, None);
        let threads: Vec<_> =
            members.into_iter().map(|mut local| spawn(move || sum(&mut local, 2))).collect();
        barrier.abort(2, "replica 2 is full");
        for ended in threads.into_iter().map(|thread| thread.join().unwrap()) {
            match ended {
                Ok(sums) => assert_eq!(sums, [3.0; 2]),
                Err(error) => assert_eq!(error.to_string(), "stopped because replica 2 is full"),
            }
        }
    });
}

/// One replica's memory is too short, so it never comes to the barrier.
#[test]
fn a_failure_of_one_is_told_to_the_other() {
    in_every_order(5, || {
        let failed = all(group(2), |mut local| {
            let device = towers_tensor_cpu::device(1);
            let (mut data, at) = (device.alloc(2).unwrap(), Span::new(local.rank(), 2));
            local.all_reduce_sum(&device, &mut data, at).unwrap_err().to_string()
        });
        assert!(failed[0].starts_with("stopped because replica 1 failed: "), "{failed:?}");
    });
}

/// Different lengths are an error on both, in every order, and neither waits.
#[test]
fn different_lengths_fail_on_all() {
    in_every_order(5, || {
        let failed = all(group(2), |mut local| {
            let len = 2 + local.rank();
            sum(&mut local, len).unwrap_err().to_string()
        });
        assert!(failed.iter().any(|told| told.contains("passed 3 numbers to a collective")), "{failed:?}");
    });
}
