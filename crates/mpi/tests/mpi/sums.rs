use crate::everything::everything;
use crate::job::{Ended, Job, mpirun_is_there};
use crate::roles::LENGTHS;
use towers_parallel::run_replicas;

/// One, two and three processes get the same bits as that number of threads, on every rank. All-reduces
/// overlap with computation, as between machines, or not, as on one.
#[test]
fn processes_sum_as_threads_do() {
    if !mpirun_is_there() {
        return;
    }
    for ranks in 1..=3 {
        let expected = on_threads(ranks);
        for role in ["sums", "sums-beside"] {
            let ended = Job::start(role, ranks, &[]).wait();
            assert!(ended.success, "{}", ended.text);
            for (rank, expected) in expected.iter().enumerate() {
                assert_eq!(sums_of(&ended, rank), *expected, "{role}, rank {rank} of {ranks}");
            }
        }
    }
}

/// Processes of three, two and one replicas.
#[test]
fn processes_of_several_replicas_sum_as_threads_do() {
    if !mpirun_is_there() {
        return;
    }
    for (ranks, replicas) in [(1, 3), (2, 5), (3, 6)] {
        let expected = on_threads(replicas);
        let ended = Job::start("several", ranks, &[]).wait();
        assert!(ended.success, "{}", ended.text);
        for (rank, expected) in expected.iter().enumerate() {
            assert_eq!(sums_of(&ended, rank), *expected, "replica {rank} of {replicas}");
        }
    }
}

/// Of eight parts, each rank sends partial sums, not its parts: one if that is possible, else two. And its share
/// of the sums.
#[test]
fn ranks_send_partial_sums() {
    if !mpirun_is_there() {
        return;
    }
    for (ranks, sent) in [(1, &[0][..]), (2, &[1200; 2]), (3, &[1600, 2400, 2400]), (4, &[1800; 4])] {
        let ended = Job::start("counts", ranks, &[]).wait();
        assert!(ended.success, "{}", ended.text);
        for (rank, expected) in sent.iter().enumerate() {
            let counted = std::fs::read_to_string(ended.folder.join(format!("sent-{rank}"))).unwrap();
            assert_eq!(counted, expected.to_string(), "rank {rank} of {ranks}, 1200 numbers");
        }
    }
}

fn on_threads(replicas: usize) -> Vec<Vec<u32>> {
    run_replicas(&vec![towers_tensor_cpu::device(1); replicas], |replica| everything(replica, &LENGTHS))
        .unwrap()
}

/// What a replica has written.
fn sums_of(ended: &Ended, rank: usize) -> Vec<u32> {
    let bytes = std::fs::read(ended.folder.join(format!("sums-{rank}"))).unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}
