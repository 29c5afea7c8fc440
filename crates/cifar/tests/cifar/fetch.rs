//! Downloads: whole, in pieces, from the second best source, by two at once.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use towers_cifar::{Error, Kind, Progress, Source};

use crate::samples::{
    CIFAR10_PYTHON, archive, binary_archive, cifar10, names_in, pixel, python_batch, source, write_binary,
};
use crate::server::{Reply, Server};

const FOLDER: &str = "cifar-10-batches-bin";

#[test]
fn an_archive_is_fetched_once_and_found_ever_after() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("new/data");
    let server = Server::new(|_, _| Reply::ok(binary_archive()));
    let (mut last, mut unverified) = (0, false);
    let listener = |step: Progress<'_>| match step {
        Progress::Downloading { bytes, total, .. } => {
            assert!(bytes > last && total == Some(binary_archive().len() as u64));
            last = bytes;
        }
        Progress::NoChecksum { .. } => unverified = true,
        _ => {}
    };
    let data = cifar10(&data_dir).urls([server.url()]).progress(listener).load().unwrap();
    assert_eq!(last, binary_archive().len() as u64);
    assert!(unverified, "nobody knows the checksum of an address of one's own");
    assert_eq!(data.train.images[[300, 0, 0, 0]], pixel(300, 0));
    assert_eq!(names_in(&data_dir), [FOLDER]);
    assert!(data_dir.join(FOLDER).join("batches.meta.txt").is_file());

    cifar10(&data_dir).urls([server.url()]).fetch().unwrap();
    cifar10(&data_dir).offline(true).fetch().unwrap();
    assert_eq!(server.starts().len(), 1);
}

#[test]
fn the_python_archive_serves_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let batch = python_batch(Kind::Cifar10, 10_000);
    let tar = archive(&CIFAR10_PYTHON.map(|name| (name, &batch[..])));
    let served = tar.clone();
    let server = Server::new(move |_, _| Reply::ok(&served[..]));
    let data = cifar10(dir.path()).sources([source(server.url(), &tar)]).load().unwrap();
    assert_eq!((data.train.len(), data.train.labels[10_013]), (50_000, 3));
    assert_eq!(names_in(dir.path()), ["cifar-10-batches-py"]);
}

#[test]
fn a_cut_connection_is_resumed_where_it_broke() {
    let dir = tempfile::tempdir().unwrap();
    let third = binary_archive().len() / 3;
    let server = Server::new(move |request, start| {
        let reply = Reply::range(binary_archive(), start);
        if request < 2 { reply.cut_after(third) } else { reply }
    });
    cifar10(dir.path()).sources([source(server.url(), binary_archive())]).fetch().unwrap();
    assert_eq!(server.starts(), [None, Some(third), Some(2 * third)]);
    assert_eq!(names_in(dir.path()), [FOLDER]);
}

#[test]
fn an_unfinished_download_waits_for_the_next_run_and_any_source_completes_it() {
    let dir = tempfile::tempdir().unwrap();
    let half = binary_archive().len() / 2;
    let broken = Server::new(move |request, start| match request {
        0 => Reply::range(binary_archive(), start).cut_after(half),
        1 => Reply::new("503 Service Unavailable", ""),
        // A gateway's page of unknown length, with and without contents.
        2 => Reply { headers: vec![], ..Reply::ok("<html>Please log in") },
        _ => Reply { headers: vec![], ..Reply::ok("") },
    });
    for reason in ["503", "Please log in", "begins with \"\""] {
        let error =
            cifar10(dir.path()).sources([source(broken.url(), binary_archive())]).fetch().unwrap_err();
        assert!(
            matches!(&error, Error::NoSource { failures, .. } if failures[0].contains(reason)),
            "{error}"
        );
        assert!(matches!(&names_in(dir.path())[..], [part] if part.ends_with(".part")));
    }

    let mirror = Server::new(|_, start| Reply::range(binary_archive(), start));
    cifar10(dir.path()).sources([source(mirror.url(), binary_archive())]).fetch().unwrap();
    assert_eq!(mirror.starts(), [Some(half)]);
    assert_eq!(names_in(dir.path()), [FOLDER]);
}

#[test]
fn a_server_that_ignores_ranges_starts_over() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::new(|request, _| {
        let reply = Reply::ok(binary_archive());
        if request == 0 { reply.cut_after(binary_archive().len() - 9) } else { reply }
    });
    cifar10(dir.path()).sources([source(server.url(), binary_archive())]).fetch().unwrap();
    assert_eq!(server.starts().len(), 2);
}

#[test]
fn an_unfinished_download_that_was_spoilt_is_dropped() {
    for spoilt in
        [&b"\x1f\x8bspoilt"[..], &vec![1; binary_archive().len()], &vec![1; binary_archive().len() + 1]]
    {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::new(|_, start| Reply::range(binary_archive(), start));
        let source = source(server.url(), binary_archive());
        // Learn the name of the unfinished file from one.
        let broken = Server::new(|_, _| Reply::ok(binary_archive()).cut_after(100));
        let same = crate::samples::source(broken.url(), binary_archive());
        cifar10(dir.path()).sources([same]).fetch().unwrap_err();
        fs::write(dir.path().join(&names_in(dir.path())[0]), spoilt).unwrap();
        cifar10(dir.path()).sources([source]).fetch().unwrap();
        assert_eq!(server.starts().last(), Some(&None), "the last request was for the whole");
        assert_eq!(names_in(dir.path()), [FOLDER]);
    }
}

#[test]
fn a_source_that_crawls_is_left_for_a_faster_one() {
    let dir = tempfile::tempdir().unwrap();
    let slow =
        Server::new(|_, start| Reply::range(binary_archive(), start).pace(64, Duration::from_millis(5)));
    let fast = Server::new(|_, start| Reply::range(binary_archive(), start));
    let other =
        Server::new(|_, start| Reply::range(binary_archive(), start).pace(64, Duration::from_millis(5)));
    let mut left = Vec::new();
    let listener = |step: Progress<'_>| {
        if let Progress::Slow { url, .. } = step {
            left.push(url.to_owned());
        }
    };
    let mut sources = vec![Source::new(other.url())];
    sources.extend([&slow, &fast].map(|server| source(server.url(), binary_archive())));
    cifar10(dir.path())
        .sources(sources)
        .slow(1 << 30, Duration::from_millis(100))
        .progress(listener)
        .fetch()
        .unwrap();
    assert_eq!(left, [other.url(), slow.url()]);
    assert!(matches!(fast.starts()[..], [Some(start)] if start > 0), "what the slow one sent is not lost");
    assert_eq!(names_in(dir.path()), [FOLDER], "nor is anything of the other one kept");
}

#[test]
fn if_all_crawl_the_fastest_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let crawl = |bytes| {
        Server::new(move |_, start| {
            Reply::range(binary_archive(), start).pace(bytes, Duration::from_millis(5))
        })
    };
    // The last source is never left; so let it fail.
    let (quick, slow, gone) =
        (crawl(1 << 13), crawl(16), Server::new(|_, _| Reply::new("404 Not Found", "")));
    let sources = [&slow, &quick, &gone].map(|server| source(server.url(), binary_archive()));
    cifar10(dir.path()).sources(sources).slow(1 << 40, Duration::from_millis(50)).fetch().unwrap();
    assert_eq!((slow.starts().len(), quick.starts().len()), (1, 2));
}

#[test]
fn what_is_no_archive_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let page = "<!DOCTYPE html><title>Not found</title>";
    let gone = Server::new(move |_, _| Reply::new("404 Not Found", page));
    let html = Server::new(move |_, _| Reply::ok(page));
    let other = Server::new(move |_, _| Reply::ok(page));
    let sources =
        vec![Source::new(gone.url()), Source::new(html.url()), source(other.url(), binary_archive())];
    let error = cifar10(dir.path()).sources(sources.clone()).load().unwrap_err();
    let Error::NoSource { failures, .. } = error else { panic!("{error}") };
    assert!(failures[0].contains("404") && failures[1].contains("<!DOCTYPE"), "{failures:?}");
    assert!(failures[2].contains("has 39 bytes, expected"), "{failures:?}");
    assert!(names_in(dir.path()).is_empty());

    let good = Server::new(|_, _| Reply::ok(binary_archive()));
    cifar10(dir.path()).sources(sources.into_iter().chain([Source::new(good.url())])).load().unwrap();
}

#[test]
fn a_wrong_checksum_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::new(|_, _| Reply::ok(binary_archive()));
    let source = Source::new(server.url()).md5("c32a1d4ab5d03f1284b67883e8d87530");
    let error = cifar10(dir.path()).sources([source]).load().unwrap_err();
    assert!(error.to_string().contains("expected c32a1d4ab5d03f1284b67883e8d87530"), "{error}");
    assert!(names_in(dir.path()).is_empty());
}

#[test]
fn servers_that_are_not_there_or_say_nothing_are_given_up() {
    let dir = tempfile::tempdir().unwrap();
    // The operating system accepts the connection, and no answer ever comes.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let urls = [
        format!("http://{}/", silent.local_addr().unwrap()),
        format!("https://{}/", silent.local_addr().unwrap()),
        format!("http://{closed}/"),
        "http://host.invalid/".into(),
        "not an address".into(),
        "ftp://127.0.0.1/".into(),
    ];
    for url in urls {
        let error = cifar10(dir.path()).urls([&url]).timeout(Duration::from_millis(300)).load().unwrap_err();
        assert!(matches!(&error, Error::NoSource { failures, .. } if failures[0].contains(&url)), "{error}");
        assert!(names_in(dir.path()).is_empty());
    }
}

#[test]
fn a_server_that_falls_silent_is_given_up_and_what_it_sent_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let server =
        Server::new(|_, start| Reply::range(binary_archive(), start).pace(9000, Duration::from_secs(2)));
    let source = source(server.url(), binary_archive());
    let mut connections = 0;
    let listener =
        |step: Progress<'_>| connections += usize::from(matches!(step, Progress::Connecting { .. }));
    let patience = Duration::from_millis(200);
    let error =
        cifar10(dir.path()).sources([source]).timeout(patience).progress(listener).load().unwrap_err();
    assert!(matches!(&error, Error::NoSource { .. }), "{error}");
    assert!(connections >= 2, "it was asked to go on");
    assert!(matches!(&names_in(dir.path())[..], [part] if part.ends_with(".part")));
}

#[test]
fn of_two_at_once_one_fetches_and_the_other_waits() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let server = Arc::new(Server::new(|_, _| {
        Reply::ok(binary_archive()).pace(binary_archive().len() / 20, Duration::from_millis(20))
    }));
    let fetchers = [0, 1].map(|_| {
        let (dir, server) = (dir.clone(), server.clone());
        thread::spawn(move || cifar10(dir.path()).urls([server.url()]).fetch().unwrap())
    });
    for fetcher in fetchers {
        assert_eq!(fetcher.join().unwrap(), dir.path().join(FOLDER));
    }
    assert_eq!(server.starts().len(), 1);
    assert_eq!(names_in(dir.path()), [FOLDER]);
}

#[test]
fn an_unusable_folder_is_replaced_but_not_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let folder = write_binary(dir.path());
    fs::write(folder.join("test_batch.bin"), "half of it").unwrap();
    // What a process that was killed while it unpacked has left is of no use to anybody.
    fs::create_dir_all(dir.path().join(".cifar10-x1y2z3.tmp/unpacked")).unwrap();
    let server = Server::new(|_, _| Reply::ok(binary_archive()));
    cifar10(&folder).urls([server.url()]).load().unwrap();
    assert_eq!(names_in(dir.path()), [FOLDER, "cifar-10-batches-bin.unusable-1"]);
    assert_eq!(
        fs::read(dir.path().join("cifar-10-batches-bin.unusable-1/test_batch.bin")).unwrap(),
        b"half of it"
    );
}

/// As in a folder that can't be written: `/sys` refuses new files to everybody.
#[cfg(target_os = "linux")]
#[test]
fn an_archive_is_looked_at_without_a_lock_where_none_can_be_made() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/sys/none", dir.path().join(".cifar10.lock")).unwrap();
    fs::write(dir.path().join("cifar-10-python.tar.gz"), "another archive").unwrap();
    let error = cifar10(dir.path()).offline(true).load().unwrap_err().to_string();
    assert!(error.contains("but the official archive's is"), "{error}");
}

#[test]
fn a_checksum_that_is_none_is_told_before_a_download() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::new(|_, _| Reply::ok(binary_archive()));
    for md5 in ["c58f", "c58f30108f718f92721af3b95e74349", "../../x"] {
        let error = cifar10(dir.path()).sources([Source::new(server.url()).md5(md5)]).load().unwrap_err();
        assert!(error.to_string().contains("but must have 32 hexadecimal digits"), "{error}");
    }
    assert!(server.starts().is_empty() && names_in(dir.path()).is_empty());
}

#[test]
fn the_last_source_may_crawl_but_not_trickle() {
    let dir = tempfile::tempdir().unwrap();
    let trickles =
        Server::new(|_, start| Reply::range(binary_archive(), start).pace(1, Duration::from_millis(2)));
    let error = cifar10(dir.path())
        .sources([source(trickles.url(), binary_archive())])
        .slow(1 << 20, Duration::from_millis(100))
        .load()
        .unwrap_err();
    assert!(error.to_string().contains("bytes a second only; what came is kept"), "{error}");
}

#[test]
fn a_folder_that_is_looked_into_twice_is_named_once() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let error =
        towers_cifar::Cifar::new(Kind::Cifar10).data_dir(&data).also_look_in([&data]).offline(true).load();
    let error = error.unwrap_err().to_string();
    assert_eq!(error.matches(data.to_str().unwrap()).count(), 1, "{error}");
}
