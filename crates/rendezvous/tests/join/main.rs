//! Processes, here threads on the loopback interface, find each other, or all learn which one is wrong.

// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

mod collectives;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use towers_rendezvous::{Error, Place, ProcessGroup, Result, Secret, Settings, Source, connect as join};

const BLOB: &[u8] = &[42; 128];
/// Longer than any test takes without a hang.
const LONG: Duration = Duration::from_secs(60);

type Guest = (Place, Settings);

/// A place and settings for `rank`, with a new port for every test.
fn at(rank: usize, world: usize, port: u16) -> Guest {
    let master = Some(("127.0.0.1".to_owned(), 1));
    let place = Place { master, ..Place::new(Source::Variables, rank, world) };
    let secret = Some(Secret::new("the secret of the tests").unwrap());
    (place, Settings { secret, port: Some(port), start: LONG, ..Settings::default() })
}

/// Fails instead of hanging.
fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < LONG, "it never comes");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A port that is free now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn come((place, settings): Guest) -> Result<ProcessGroup> {
    join(&place, &settings)
}

/// Runs all of these at once. Returns the outcomes.
fn all(guests: Vec<Guest>) -> Vec<Result<(), String>> {
    let come = |guest| thread::spawn(move || come(guest).map(drop).map_err(|error| error.to_string()));
    let threads: Vec<_> = guests.into_iter().map(come).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Rank 1 comes to rank 0, which waits for it in this thread.
fn both_come(first: thread::JoinHandle<Result<ProcessGroup>>, other: Guest) {
    come(other).unwrap();
    first.join().unwrap().unwrap();
}

#[test]
fn all_meet() {
    for world in [1, 2, 5, 24] {
        let port = free_port();
        let outcomes = all((0..world).map(|rank| at(rank, world, port)).collect());
        assert_eq!(outcomes, vec![Ok(()); world]);
    }
}

/// Rank 2 was started as rank 1, too. The earlier of the two learns it at once, the others after the time-out.
#[test]
fn a_rank_that_comes_twice_is_named() {
    let port = free_port();
    let mut first = at(0, 3, port);
    first.1.start = Duration::from_secs(3);
    let sentences = all(vec![first, at(1, 3, port), at(1, 3, port)]).into_iter().map(Result::unwrap_err);
    let [first, mut one, mut other] = sentences.collect::<Vec<_>>().try_into().unwrap();
    if one == first {
        core::mem::swap(&mut one, &mut other);
    }
    let replaced = "a later process came as rank 1, from 127.0.0.1, and takes part in place of this one";
    assert_eq!((one.as_str(), &other), (replaced, &first));
    let twice = "within 3 seconds; two processes came as rank 1, from 127.0.0.1 and from 127.0.0.1";
    assert!(first.starts_with("rank 2 of 3 did not come") && first.ends_with(twice), "{first}");
}

fn connect(port: u16) -> TcpStream {
    wait_for(|| TcpStream::connect(("127.0.0.1", port)).ok())
}

/// The sentences that processes tell before their time-out.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn tell(text: &str) {
    TOLD.lock().unwrap().push(text.to_owned());
}

fn wait_until_told(text: &str) {
    wait_for(|| TOLD.lock().unwrap().iter().any(|told| told.contains(text)).then_some(()));
}

#[test]
fn a_port_in_use_is_told_at_once() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let [mut first, mut second] = [0, 1].map(|rank| at(rank, 2, port));
    (first.1.tell, second.1.tell) = (tell, tell);
    let first = thread::spawn(move || come(first));
    wait_until_told(&format!("rank 0 can't listen at 127.0.0.1:{port} yet ("));
    let second = thread::spawn(move || come(second));
    let (mut stream, _) = other.accept().unwrap();
    stream.write_all(b"HTTP/1.1 400 Bad Request\r\nServer: another program\r\n\r\n").unwrap();
    wait_until_told(&format!(
        "at 127.0.0.1:{port} yet (something else, or another version, answers), and tries"
    ));
    drop((stream, other));
    second.join().unwrap().unwrap();
    first.join().unwrap().unwrap();
}

#[test]
fn a_name_without_an_address_is_told_at_once() {
    let (mut place, mut settings) = at(1, 2, 1);
    place.master = Some(("no-such-machine.invalid".to_owned(), 1));
    (settings.tell, settings.start) = (tell, Duration::from_secs(1));
    let error = come((place, settings)).err().unwrap().to_string();
    assert!(error.contains("no-such-machine.invalid has no address: "), "{error}");
    wait_until_told(
        "rank 1 does not reach rank 0 at no-such-machine.invalid:1 yet (no-such-machine.invalid has",
    );
}

/// A process of an earlier start of the job, or of another job, is a stranger.
#[test]
fn another_start_of_the_job_is_not_let_in() {
    let port = free_port();
    let again = move |rank, job: &str, restart| {
        let (place, settings) = at(rank, 2, port);
        (Place { job: Some(job.to_owned()), restart, ..place }, settings)
    };
    let first = thread::spawn(move || come(again(0, "7", 1)));
    for (job, restart) in [("7", 0), ("8", 1)] {
        let error = come(again(1, job, restart)).err().unwrap().to_string();
        assert!(error.contains("is of another job or start"), "{error}");
    }
    both_come(first, again(1, "7", 1));
}

/// torchrun counts restarts on each machine by itself, so the processes of one start may have different
/// numbers.
#[test]
fn processes_of_torchrun_meet_whatever_they_are_told_of_restarts() {
    let port = free_port();
    let come = |rank: usize| {
        let (place, settings) = at(rank, 3, port);
        let (job, restart) = (Some("a job".to_owned()), rank as u32);
        (Place { job, restart, source: Source::Torchrun, ..place }, settings)
    };
    assert_eq!(all((0..3).map(come).collect()), [Ok(()), Ok(()), Ok(())]);
}

/// Rank 1 has a wrong secret, which ends it alone: any process may connect with one. The other missing ranks are
/// named too.
#[test]
fn missing_ranks_and_wrong_secrets_are_named() {
    let port = free_port();
    let (mut first, mut other) = (at(0, 15, port), at(1, 15, port));
    first.1.start = Duration::from_secs(1);
    other.1.secret = Some(Secret::new("the secret of somebody else").unwrap());
    let sentences: Vec<_> =
        all(vec![first, at(2, 15, port), other]).into_iter().map(Result::unwrap_err).collect();
    let missing = format!(
        "ranks 1, 3, 4, 5, 6, 7, 8, 9, 5 more of 15 did not come to rank 0 at 127.0.0.1:{port} within 1 seconds; \
         rank 1 (127.0.0.1) has another job secret, or is of another job or start"
    );
    assert_eq!(sentences[..2], [missing.clone(), missing]);
    let why = "has another job secret than rank 1, or is of another job or start: TOWERS_JOB_SECRET";
    assert!(sentences[2].contains(why), "{}", sentences[2]);
}

#[test]
fn without_rank_0_the_wait_ends() {
    let mut alone = at(3, 4, free_port());
    alone.1.start = Duration::from_millis(300);
    let error = come(alone).err().unwrap();
    assert!(matches!(error, Error::Meeting(_)), "{error}");
    assert!(error.to_string().starts_with("rank 3 did not reach rank 0 at 127.0.0.1:"), "{error}");
}

/// More connections than are served at a time: silent, slow, of another protocol, or with endless messages. They
/// come again whenever they are closed.
#[test]
fn strangers_keep_nobody_waiting() {
    let port = free_port();
    let first = thread::spawn(move || come(at(0, 2, port)));
    let endless = [&b"towers-3"[..], &[1; 40], &u32::to_le_bytes(0xffff_fff0), &[0; 64]].concat();
    let said = [b"", &b"towe"[..], b"GET / HTTP/1.1\r\n\r\n", &endless];
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..100 {
            let (said, ended) = (&said, &ended);
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
                    // Rank 0 may close it at any time.
                    let _ = stream.write_all(said[number % 4]).and_then(|()| stream.read(&mut [0; 64]));
                }
            });
        }
        thread::sleep(Duration::from_millis(300));
        let came = come(at(1, 2, port));
        ended.store(true, Ordering::Relaxed);
        came.unwrap();
    });
    first.join().unwrap().unwrap();
}

/// A changed bit is noticed.
#[test]
fn changed_messages_are_refused() {
    let (port, between) = (free_port(), TcpListener::bind("127.0.0.1:0").unwrap());
    let door = between.local_addr().unwrap().port();
    // It ends, and closes its connection.
    let first = thread::spawn(move || come(at(0, 2, port)).map(drop));
    let other = thread::spawn(move || come(at(1, 2, door)));
    let (mut near, _) = between.accept().unwrap();
    let mut far = connect(port);
    let (mut up_from, mut up_to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
    let up = thread::spawn(move || std::io::copy(&mut up_from, &mut up_to));
    let (mut seen, mut buffer) = (0, [0; 1]);
    while far.read(&mut buffer).is_ok_and(|count| count > 0) {
        // The 40 bytes of the greeting and the length come first.
        buffer[0] ^= u8::from(seen == 60);
        seen += 1;
        if near.write_all(&buffer).is_err() {
            break;
        }
    }
    let _ = near.shutdown(Shutdown::Both);
    up.join().unwrap().ok();
    first.join().unwrap().unwrap();
    let error = other.join().unwrap().err().unwrap().to_string();
    assert!(error.contains("does not know the job secret"), "{error}");
}

#[test]
fn over_a_network_a_secret_is_needed() {
    let mut open = at(1, 2, 1);
    open.1.secret = None;
    open.0.master = Some(("192.0.2.1".to_owned(), 1));
    let error = come(open).err().unwrap().to_string();
    assert!(error.starts_with("TOWERS_JOB_SECRET is not set, but must be the same 16 or more"), "{error}");
    let mut nowhere = at(1, 2, 1);
    nowhere.0.master = None;
    assert!(come(nowhere).err().unwrap().to_string().starts_with("MASTER_ADDR is not set"));
    let mut last = at(1, 2, 1);
    (last.0.master, last.1.port) = (Some(("localhost".to_owned(), 65535)), None);
    assert!(come(last).err().unwrap().to_string().contains("TOWERS_RENDEZVOUS_PORT"));
}

#[test]
fn settings_come_from_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let read = |pairs: &[(&str, &str)]| {
        Settings::discover(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string())
        })
    };
    let none = read(&[]).unwrap();
    assert!(none.secret.is_none() && none.port.is_none() && none.start == Duration::from_secs(600));
    let good = file("good", b"0123456789abcdef\n");
    let some = read(&[
        ("TOWERS_JOB_SECRET_FILE", &good),
        ("TOWERS_RENDEZVOUS_PORT", "4000"),
        ("TOWERS_START_TIMEOUT", "30"),
    ]);
    let some = some.unwrap();
    assert_eq!((some.port, some.start), (Some(4000), Duration::from_secs(30)));
    assert_eq!(format!("{:?}", some.secret), "Some(Secret(..))");
    let (short, long) = (file("short", b"0123456789abcde\n\n\n"), file("long", &[b'x'; 5000]));
    for (pairs, told) in [
        (
            vec![("TOWERS_JOB_SECRET", "tiny")],
            "TOWERS_JOB_SECRET is a secret of 4 bytes, but must be one of at least 16",
        ),
        (vec![("TOWERS_JOB_SECRET_FILE", short.as_str())], "TOWERS_JOB_SECRET_FILE is a secret of 15 bytes"),
        (vec![("TOWERS_JOB_SECRET_FILE", long.as_str())], "TOWERS_JOB_SECRET_FILE is `"),
        (
            vec![("TOWERS_JOB_SECRET_FILE", "/nowhere")],
            "TOWERS_JOB_SECRET_FILE is `/nowhere`, but must be a file",
        ),
        (
            vec![("TOWERS_JOB_SECRET", "0123456789abcdef"), ("TOWERS_JOB_SECRET_FILE", good.as_str())],
            "TOWERS_JOB_SECRET_FILE is `",
        ),
        (vec![("TOWERS_START_TIMEOUT", "0")], "TOWERS_START_TIMEOUT is `0`"),
        (vec![("TOWERS_RENDEZVOUS_PORT", "x")], "TOWERS_RENDEZVOUS_PORT is `x`"),
    ] {
        let error = read(&pairs).unwrap_err().to_string();
        assert!(error.starts_with(told) && !error.contains("abcdef"), "{error}");
    }
    assert_ne!(Secret::draw().unwrap(), Secret::draw().unwrap());
    assert_eq!(Secret::draw().unwrap().len(), 64);
}
