//! The order of the calls, with a mock of NCCL that records them, and fails or hangs where a test says.

use super::calls::{Calls, Comm, Op, Status, UniqueId};
use super::session::{Failed, Join, Session, Way};
use crate::driver::{Ptr, Watch};
use crate::lock::lock;
use cudarc::nccl::sys::ncclResult_t;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use towers_program::Result;

/// A test's event: at calls of that name, from the `after`th on.
#[derive(Clone, Copy)]
struct Fault {
    call: &'static str,
    after: usize,
    /// `None` for one that never completes.
    answer: Option<u32>,
}

/// The calls, without the polls.
#[derive(Default)]
struct Script {
    calls: Vec<String>,
    fault: Option<Fault>,
    /// The call in the background, and how often it was polled.
    current: &'static str,
    questions: usize,
    marks: usize,
    given_back: bool,
    /// Until then there are captured graphs that hold the communicator.
    recordings: Option<mpsc::Receiver<()>>,
}

#[derive(Clone, Default)]
struct Mock(Arc<Mutex<Script>>);

impl Mock {
    fn call(&self, name: &'static str, detail: String) -> Status {
        let mut script = lock(&self.0);
        assert!(!script.given_back, "{name} after the communicator was given back");
        let before = script.calls.iter().filter(|call| call.starts_with(name)).count();
        script.calls.push(format!("{name}{detail}"));
        (script.current, script.questions) = (name, 0);
        match script.fault.filter(|fault| fault.call == name && before >= fault.after) {
            Some(Fault { answer: Some(why), .. }) => Status::Failed(why),
            _ => Status::InProgress,
        }
    }

    fn fault(call: &'static str, after: usize, answer: Option<u32>) -> Mock {
        let mock = Mock::default();
        lock(&mock.0).fault = Some(Fault { call, after, answer });
        mock
    }

    /// The calls, and that they left nothing.
    fn calls(&self) -> Vec<String> {
        let script = lock(&self.0);
        assert!(script.given_back, "the communicator was kept");
        script.calls.clone()
    }
}

impl Calls for Mock {
    fn enter(&self) -> Result<()> {
        Ok(())
    }

    fn init(&self, _id: &UniqueId, world: usize, rank: usize) -> (Status, Comm) {
        let status = self.call("init", format!(" {rank} of {world}"));
        lock(&self.0).given_back = matches!(status, Status::Failed(_));
        (status, Comm(7))
    }

    fn progress(&self, comm: Comm) -> Status {
        assert_eq!(comm, Comm(7));
        let mut script = lock(&self.0);
        assert!(!script.given_back, "asked about what was given back");
        script.questions += 1;
        match script.fault {
            Some(Fault { call, answer: None, .. }) if call == script.current => Status::InProgress,
            Some(Fault { call: "later", answer: Some(why), after }) if script.marks >= after => {
                Status::Failed(why)
            }
            // Nothing is done at once.
            _ if script.questions < 3 => Status::InProgress,
            _ => Status::Done,
        }
    }

    fn group_start(&self) -> Status {
        match self.call("group_start", String::new()) {
            Status::InProgress => Status::Done,
            failed => failed,
        }
    }

    fn group_end(&self) -> Status {
        self.call("group_end", String::new())
    }

    unsafe fn ask(&self, _comm: Comm, op: Op, aside: bool) -> Status {
        let aside = if aside { " aside" } else { "" };
        match op {
            Op::AllReduce { len, .. } => self.call("all_reduce", format!(" {len}{aside}")),
            Op::Broadcast { root, .. } => self.call("broadcast", format!(" of {root}")),
            Op::AllGather { len, .. } => self.call("all_gather", format!(" {len} each")),
            Op::Send { to, .. } => self.call("send", format!(" to {to}")),
            Op::Receive { from, .. } => self.call("receive", format!(" from {from}")),
        }
    }

    fn finalize(&self, _comm: Comm) -> Status {
        self.call("finalize", String::new())
    }

    fn destroy(&self, _comm: Comm) -> Status {
        let status = self.call("destroy", String::new());
        lock(&self.0).given_back = true;
        status
    }

    fn abort(&self, _comm: Comm) -> Status {
        let status = self.call("abort", String::new());
        let recordings = lock(&self.0).recordings.take();
        // An error if the other end is gone.
        let _ = recordings.map(|recordings| recordings.recv());
        lock(&self.0).given_back = true;
        status
    }

    fn explain(&self, comm: Option<Comm>, why: u32) -> String {
        assert!(
            comm.is_none() || !lock(&self.0).given_back,
            "explained after the communicator was given back"
        );
        format!("error {why}")
    }

    fn put_mark(&self, _number: usize) -> Result<()> {
        let mut script = lock(&self.0);
        script.marks += 1;
        script.calls.push("mark".into());
        Ok(())
    }

    /// Marks pass, unless operations hang on the device.
    fn has_passed(&self, _number: usize) -> Result<bool> {
        Ok(!matches!(lock(&self.0).fault, Some(Fault { call: "device", .. })))
    }
}

fn begin(mock: &Mock, failed: Option<Failed>, patience: Duration) -> Result<Session> {
    let id = UniqueId::from_bytes([1; UniqueId::BYTES]);
    let join = Join { id, rank: 1, world: 3, patience, failed };
    Session::begin(Arc::new(mock.clone()), "a test".into(), join)
}

/// Patience for all that should not hang, and for short hangs.
const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(30);

fn joined(mock: &Mock, patience: Duration) -> Result<Session> {
    let session = begin(mock, None, patience)?;
    session.joined().map(|()| session)
}

fn run(session: &Session, ops: &[Op]) -> Result<()> {
    // SAFETY: the stand-in touches no memory.
    unsafe { session.run("a sum", ops, Way::Marked) }
}

const RUN: Ptr = Ptr(4096);
const SUM: &[Op] = &[Op::AllReduce { run: RUN, len: 5 }];
const GATHER: &[Op] = &[Op::AllGather { own: RUN, run: RUN, len: 4 }];
const SWAP: &[Op] = &[Op::Send { run: RUN, len: 1, to: 0 }, Op::Receive { run: RUN, len: 1, from: 2 }];

#[test]
fn a_whole_life_is_in_order() {
    let mock = Mock::default();
    let session = joined(&mock, LONG).unwrap();
    run(&session, SUM).unwrap();
    run(&session, SWAP).unwrap();
    run(&session, GATHER).unwrap();
    run(&session, &[]).unwrap();
    session.wait().unwrap();
    session.begin_close();
    session.close();
    let again = run(&session, SUM).unwrap_err();
    assert!(again.to_string().contains("its communicator was given back"), "{again}");
    drop(session);
    let swap = ["group_start", "send to 0", "receive from 2", "group_end", "mark"];
    let gather = ["all_gather 4 each", "mark"];
    let expected =
        [&["init 1 of 3", "all_reduce 5", "mark"][..], &swap, &gather, &["finalize", "destroy"]].concat();
    assert_eq!(mock.calls(), expected);
}

/// Asynchronous sums run on the second stream, one after the other and without marks. The call that ends them
/// records a mark. A capture allocates nothing and waits for nothing, which the emulated device would refuse.
#[cfg(feature = "emulation")]
#[test]
fn buckets_are_a_fork_and_a_join() {
    use crate::{Cuda, Options};
    for one_stream in [false, true] {
        match Cuda::emulated_with(Options { one_stream, ..Options::default() }) {
            Ok(cuda) => assert_eq!(calls_of_buckets(&cuda), expected_calls(one_stream)),
            Err(why) => return println!("SKIPPED: sums in a recording: {why}"),
        }
    }
}

/// The calls of two steps with asynchronous sums, of which the second is captured.
#[cfg(feature = "emulation")]
fn calls_of_buckets(cuda: &crate::Cuda) -> Vec<String> {
    use super::communicator::Communicator;
    use towers_program::{Backend, CapturedGraph as _, ReplayArgs, Span};
    let mock = Mock::default();
    let join = Join { id: UniqueId::from_bytes([1; 128]), rank: 1, world: 3, patience: LONG, failed: None };
    let mut communicator = Communicator::begin_by(Box::new(mock.clone()), cuda, join)
        .and_then(|joining| joining.finish())
        .unwrap();
    let mut grads = cuda.alloc(100).unwrap();
    let mut pass = |communicator: &mut Communicator| {
        for run in [Span::new(60, 30), Span::new(20, 40), Span::new(10, 0), Span::new(0, 20)] {
            cuda.fill(1.0, &mut grads, run).unwrap();
            communicator.start_all_reduce(&mut grads, run).unwrap();
        }
    };
    let mut rest = cuda.alloc(10).unwrap();
    pass(&mut communicator);
    communicator.finish_all_reduce(&mut rest, Span::new(0, 10)).unwrap();
    cuda.begin_capture().unwrap();
    pass(&mut communicator);
    let graph = cuda.end_capture().unwrap();
    graph.replay(&ReplayArgs::default()).unwrap();
    communicator.finish_all_reduce(&mut rest, Span::new(0, 10)).unwrap();
    drop(communicator);
    mock.calls()
}

/// On one stream all sums are alike, and outside of a capture each records a mark.
#[cfg(feature = "emulation")]
fn expected_calls(one_stream: bool) -> Vec<String> {
    let sums = ["all_reduce 30", "all_reduce 40", "all_reduce 20"];
    let aside = sums.map(|sum| format!("{sum} aside"));
    let end = ["all_reduce 10", "mark"].map(str::to_owned);
    let eager = sums.iter().flat_map(|&sum| [sum.to_owned(), "mark".to_owned()]);
    let [eager, captured] = match one_stream {
        true => [eager.collect(), sums.map(str::to_owned).to_vec()],
        false => [aside.to_vec(), aside.to_vec()],
    };
    let life = |text: &str| vec![text.to_owned()];
    let steps = [eager, end.to_vec(), captured, end.to_vec()].concat();
    [life("init 1 of 3"), steps, life("finalize"), life("destroy")].concat()
}

/// Captured graphs hold the operation alone: marks are the host's, and a replay has none.
#[test]
fn a_recording_holds_no_marks() {
    let mock = Mock::default();
    let session = joined(&mock, LONG).unwrap();
    // SAFETY: the stand-in touches no memory.
    unsafe { session.run("a sum", SUM, Way::Captured) }.unwrap();
    drop(session);
    assert_eq!(mock.calls(), ["init 1 of 3", "all_reduce 5", "abort"]);
}

#[test]
fn an_error_of_any_call_ends_in_one_abort_and_is_kept() {
    let why = ncclResult_t::ncclSystemError as u32;
    let swapped = ["init 1 of 3", "group_start", "send to 0"];
    let cases: [(&'static str, &[Op], &str, Vec<&str>); 6] = [
        ("all_gather", GATHER, "a sum failed", vec!["init 1 of 3", "all_gather 4 each", "abort"]),
        ("all_reduce", SUM, "a sum failed: error 2", vec!["init 1 of 3", "all_reduce 5", "abort"]),
        ("group_start", SWAP, "ncclGroupStart failed: error 2", [&swapped[..2], &["abort"]].concat()),
        // A group that was begun is ended, or later calls would become part of it.
        ("send", SWAP, "a sum failed", [&swapped[..], &["group_end", "abort"]].concat()),
        ("receive", SWAP, "a sum failed", [&swapped[..], &["receive from 2", "group_end", "abort"]].concat()),
        (
            "group_end",
            SWAP,
            "ncclGroupEnd failed",
            [&swapped[..], &["receive from 2", "group_end", "abort"]].concat(),
        ),
    ];
    for (call, ops, said, expected) in cases {
        let mock = Mock::fault(call, 0, Some(why));
        let session = joined(&mock, LONG).unwrap();
        let first = run(&session, ops).unwrap_err().to_string();
        assert!(first.contains(said), "{call}: {first}");
        for again in [run(&session, SUM), session.wait(), session.look(), session.joined()] {
            assert_eq!(again.unwrap_err().to_string(), first);
        }
        session.abort("something else");
        session.begin_close();
        session.close();
        drop(session);
        assert_eq!(mock.calls(), expected, "{call}");
    }
}

#[test]
fn an_error_while_joining_leaves_nothing() {
    let mock = Mock::fault("init", 0, Some(ncclResult_t::ncclInvalidUsage as u32));
    let error = joined(&mock, LONG).err().unwrap().to_string();
    assert_eq!(error, "a test: ncclCommInitRankConfig failed: error 5");
    assert_eq!(mock.calls(), ["init 1 of 3"]);
    let nobody = Join { id: UniqueId::from_bytes([0; 128]), rank: 3, world: 3, patience: LONG, failed: None };
    assert!(Session::begin(Arc::new(Mock::default()), "a test".into(), nobody).is_err());
}

/// A rank that never comes, hangs, or whose messages get lost, at each place where this one would wait.
#[test]
fn silence_ends_where_patience_does() {
    for call in ["init", "all_reduce", "group_end", "device"] {
        let mock = Mock::fault(call, 0, None);
        let result = joined(&mock, SHORT).and_then(|session| {
            run(&session, SUM)?;
            run(&session, SWAP)?;
            session.wait()
        });
        let error = result.unwrap_err().to_string();
        assert!(error.contains("rank 1 of 3 waited 0.03 s in "), "{call}: {error}");
        let calls = mock.calls();
        assert_eq!(calls.iter().filter(|call| *call == "abort").count(), 1, "{calls:?}");
        assert_eq!(calls.last().unwrap(), "abort");
    }
}

/// The host is only so far ahead of the stream.
#[test]
fn the_host_waits_for_room() {
    let mock = Mock::fault("device", 0, None);
    let session = joined(&mock, SHORT).unwrap();
    let done = (0..100).take_while(|_| run(&session, SUM).is_ok()).count();
    assert_eq!(done, super::calls::MARKS);
}

/// A failure that the caller knows of ends a wait at once, and is the error.
#[test]
fn who_failed_is_named() {
    for call in ["init", "all_reduce", "device"] {
        let mock = Mock::fault(call, 0, None);
        let told = Box::new(|| Some("rank 2 on host b was killed".to_owned()));
        let session = begin(&mock, Some(told), LONG).unwrap();
        let result = session.joined().and_then(|()| run(&session, SUM)).and_then(|()| session.wait());
        assert_eq!(result.unwrap_err().to_string(), "a test: rank 2 on host b was killed", "{call}");
        assert_eq!(mock.calls().last().unwrap(), "abort");
    }
}

/// An error that comes up while the host waits for the device.
/// The thread of the session may be inside of the driver.
#[test]
fn a_failure_is_seen_while_the_host_does_not_look() {
    let (mock, lost) = (Mock::default(), Arc::new(AtomicBool::new(false)));
    let is_lost = Arc::clone(&lost);
    let failed = move || is_lost.load(Ordering::Relaxed).then(|| "rank 2 is gone".to_owned());
    let session = Arc::new(begin(&mock, Some(Box::new(failed)), LONG).unwrap());
    session.joined().unwrap();
    session.watch();
    run(&session, SUM).unwrap();
    lost.store(true, Ordering::Relaxed);
    while !session.has_ended() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(run(&session, SUM).unwrap_err().to_string().contains("rank 2 is gone"));
    assert_eq!(mock.calls().last().map(String::as_str), Some("abort"));
}

#[test]
fn the_watch_finds_errors_of_the_background() {
    let mock = Mock::fault("later", 2, Some(ncclResult_t::ncclRemoteError as u32));
    let session = joined(&mock, LONG).unwrap();
    run(&session, SUM).unwrap();
    session.look().unwrap();
    run(&session, SUM).unwrap();
    let error = session.look().unwrap_err().to_string();
    assert!(error.contains("a collective failed: error 6"), "{error}");
    assert_eq!(mock.calls().last().unwrap(), "abort");
}

/// Another thread may end a session in the middle of a wait.
#[test]
fn an_abort_from_another_thread_ends_a_wait() {
    let mock = Mock::fault("device", 0, None);
    let session = joined(&mock, LONG).unwrap();
    run(&session, SUM).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| session.wait());
        session.abort("replica 0 failed");
        assert_eq!(waiting.join().unwrap().unwrap_err().to_string(), "a test: replica 0 failed");
    });
    assert_eq!(mock.calls().last().unwrap(), "abort");
}

/// NCCL ends an abort when all captured graphs of its operations are gone, and the aborting thread may own
/// them.
#[test]
fn an_abort_does_not_wait_for_recordings() {
    let mock = Mock::default();
    let (recording, gone) = mpsc::channel::<()>();
    lock(&mock.0).recordings = Some(gone);
    let session = joined(&mock, LONG).unwrap();
    session.abort("replica 0 failed");
    let error = run(&session, SUM).unwrap_err();
    assert_eq!(error.to_string(), "a test: replica 0 failed");
    drop(session);
    assert!(!lock(&mock.0).given_back, "the communicator is held by a recording");
    drop(recording);
    while !lock(&mock.0).given_back {
        std::thread::yield_now();
    }
    assert_eq!(mock.calls(), ["init 1 of 3", "abort"]);
}

/// At the end, ranks that are gone are not waited for long.
#[test]
fn a_parting_that_hangs_ends_in_an_abort() {
    let mock = Mock::fault("finalize", 0, None);
    let session = joined(&mock, SHORT).unwrap();
    session.begin_close();
    session.close();
    assert_eq!(mock.calls(), ["init 1 of 3", "finalize", "abort"]);
}
