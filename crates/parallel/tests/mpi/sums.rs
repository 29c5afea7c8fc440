use crate::job::{Job, mpirun_is_there};
use crate::roles::all_sums;
use parallel::run_replicas;

/// One, two and three processes get the same bits as that number of threads, on every rank. All-reduces
/// overlap with computation, as between machines, or not, as on one.
#[test]
fn processes_sum_as_threads_do() {
    if !mpirun_is_there() {
        return;
    }
    for ranks in 1..=3 {
        let expected = run_replicas(&vec![tensor_cpu::device(1); ranks], all_sums).unwrap();
        for role in ["sums", "sums-beside"] {
            let ended = Job::start(role, ranks, &[]).wait();
            assert!(ended.success, "{}", ended.text);
            for (rank, expected) in expected.iter().enumerate() {
                let bytes = std::fs::read(ended.folder.join(format!("sums-{rank}"))).unwrap();
                let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
                assert_eq!(words.collect::<Vec<_>>(), *expected, "{role}, rank {rank} of {ranks}");
            }
        }
    }
}

#[test]
fn a_broadcast_reaches_all() {
    if mpirun_is_there() {
        let ended = Job::start("broadcast", 3, &[]).wait();
        assert!(ended.success, "{}", ended.text);
    }
}
