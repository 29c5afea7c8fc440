use crate::job::{Ended, Job, is_open_mpi, mpirun_is_there, signal, tolerant};

fn failed(ended: &Ended, sentence: &str) {
    assert!(!ended.success, "the job should have failed:\n{}", ended.text);
    let said = ended.text.lines().any(|line| line.starts_with("error: ") && line.contains(sentence));
    assert!(said, "no error says `{sentence}`:\n{}", ended.text);
}

#[test]
fn a_rank_that_is_killed_ends_the_job() {
    if !mpirun_is_there() {
        return;
    }
    for victim in 0..3 {
        let mut job = Job::start("steps", 3, &[]);
        let ranks = job.wait_for("stepping", 3);
        signal("KILL", ranks[victim]);
        let ended = job.wait();
        assert!(!ended.success, "{}", ended.text);
        // With MPICH a rank that reads the memory of the victim may fail first.
        let named = ended.text.contains("signal 9") || !is_open_mpi();
        assert!(named, "mpirun names the signal:\n{}", ended.text);
    }
}

#[test]
fn the_others_go_on_without_a_killed_rank() {
    for victim in 0..3 {
        let Some(mut job) = tolerant("survives", 3) else { return };
        let ranks = job.wait_for("stepping", 3);
        signal("KILL", ranks[victim]);
        let ended = job.wait();
        assert!(ended.success, "{}", ended.text);
        assert_eq!(ended.text.matches(&format!("[{victim}] lost, 2 left")).count(), 2, "{}", ended.text);
    }
}

#[test]
fn one_rank_may_be_left() {
    let Some(mut job) = tolerant("survives", 4) else { return };
    let ranks = job.wait_for("stepping", 4);
    // One after the other, or two at once.
    signal("KILL", ranks[0]);
    job.wait_for_text("[0] lost, 3 left");
    signal("KILL", ranks[1]);
    signal("KILL", ranks[3]);
    let ended = job.wait();
    assert!(
        ended.success && ended.text.contains("rank 2: ") && ended.text.contains("1 left"),
        "{}",
        ended.text
    );
}

/// Its end alone would be a loss, which the others survive.
#[test]
fn a_rank_that_fails_ends_a_tolerant_job_too() {
    let Some(job) = tolerant("fails", 3) else { return };
    failed(&job.wait(), "this rank fails on purpose");
}

/// It would never end by itself.
#[test]
fn a_rank_that_is_stopped_ends_a_tolerant_job_too() {
    let Some(mut job) = tolerant("steps", 3) else { return };
    let ranks = job.wait_for("stepping", 3);
    signal("STOP", ranks[1]);
    failed(&job.wait(), "waited 2 seconds in an all-reduce for rank 1, which did not come");
}

#[test]
fn a_rank_that_is_stopped_is_named() {
    if !mpirun_is_there() {
        return;
    }
    for victim in 0..3 {
        let mut job = Job::start("steps", 3, &[]);
        let ranks = job.wait_for("stepping", 3);
        signal("STOP", ranks[victim]);
        let ended = job.wait();
        failed(&ended, &format!("waited 2 seconds in an all-reduce for rank {victim}, which did not come"));
        let accused = ended.text.matches("which did not come").count();
        let rightly = ended.text.matches(&format!("for rank {victim}, which did not come")).count();
        assert_eq!(accused, rightly, "no other rank is accused:\n{}", ended.text);
    }
}

#[test]
fn a_rank_may_be_late_but_not_too_late() {
    if mpirun_is_there() {
        let ended = Job::start("late", 3, &[]).wait();
        failed(&ended, "waited 2 seconds in a barrier for rank 2, which did not come");
        assert!((0..3).all(|rank| ended.folder.join(format!("met-0.6-{rank}")).exists()));
    }
}

/// A rank that fails in some way, or differs from the others. The roles say how.
#[test]
fn a_failure_ends_the_job_with_its_reason() {
    let breaks_off = "stopped because rank 1 failed: MPI can't be used: this rank breaks off on purpose";
    for (role, ranks, sentence) in [
        ("fails", 3, "this rank fails on purpose"),
        ("panics", 3, "replica 1 panicked: this rank panics on purpose"),
        ("breaks-off", 3, breaks_off),
        ("one-of-several-fails", 2, "this replica fails on purpose"),
        ("finishes", 2, "came to an all-reduce"),
        ("sizes", 3, "passed 1"),
        ("gatherings", 3, "numbers to a collective to which"),
        // Each rank reports its side, and the launcher may show only the first.
        ("operations", 2, "came to a barrier"),
        ("agreement", 3, "rank 1 has the learning rate 0.2, but rank 0 has 0.1"),
        ("world", 2, "the launcher speaks of 5 processes, MPI of 2"),
    ] {
        if mpirun_is_there() {
            failed(&Job::start(role, ranks, &[]).wait(), sentence);
        }
    }
}

#[test]
fn a_rank_that_leaves_ends_the_job() {
    if mpirun_is_there() {
        let ended = Job::start("leaves", 3, &[]).wait();
        // MPICH may end with the status of the rank that left: success.
        assert!(!ended.success || !is_open_mpi(), "{}", ended.text);
    }
}
