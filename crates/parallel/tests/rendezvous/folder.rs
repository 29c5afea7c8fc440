//! Processes that share a folder connect there, and leave no file behind.

use super::{BLOB, all, at, come, sentences, wait_for};
use parallel::Error;
use parallel::cluster::Place;
use parallel::rendezvous::{Hello, Settings, Watchdog, connect};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

type Guest = (Place, Settings, Hello);

/// A place and settings for `rank` of a job that connects in `folder`, without a secret and without an
/// address.
fn inside(folder: &Path, rank: usize, world: usize, restart: u32) -> Guest {
    let (place, settings, hello) = at(rank, world, 1);
    let place = Place { master: None, job: Some("a job".into()), restart, ..place };
    (place, Settings { folder: Some(folder.into()), secret: None, ..settings }, hello)
}

/// The contents of a folder, folders first.
fn below(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    paths
        .flat_map(|path| if path.is_dir() { [vec![path.clone()], below(&path)].concat() } else { vec![path] })
        .collect()
}

#[test]
fn all_get_what_rank_0_brings_and_the_folder_is_left_empty() {
    let folder = tempfile::tempdir().unwrap();
    for restart in 0..2 {
        let outcomes = all((0..4).map(|rank| inside(folder.path(), rank, 4, restart)).collect());
        assert!(outcomes.iter().all(|outcome| outcome.as_deref() == Ok(BLOB)), "{outcomes:?}");
        assert_eq!(below(folder.path()), Vec::<PathBuf>::new());
    }
}

#[cfg(unix)]
#[test]
fn what_is_said_there_is_for_one_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let early = inside(folder.path(), 1, 2, 0);
    let early = thread::spawn(move || come(early));
    let paths = wait_for(|| Some(below(folder.path())).filter(|paths| paths.len() > 1));
    let modes: Vec<u32> =
        paths.iter().map(|path| fs::metadata(path).unwrap().permissions().mode() & 0o777).collect();
    assert_eq!((modes[0], modes[1]), (0o700, 0o600));
    assert_eq!(come(inside(folder.path(), 0, 2, 0)).unwrap(), BLOB);
    assert_eq!(early.join().unwrap().unwrap(), BLOB);
}

#[cfg(unix)]
#[test]
fn a_folder_that_others_may_enter_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let early = thread::spawn({
        let mut early = inside(folder.path(), 1, 2, 0);
        early.1.start = Duration::from_secs(1);
        move || come(early)
    });
    let own = wait_for(|| below(folder.path()).into_iter().next());
    early.join().unwrap().unwrap_err();
    assert!(!own.exists(), "a process that gave up removes its files");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    for rank in 0..2 {
        let error = come(inside(folder.path(), rank, 2, 0)).unwrap_err().to_string();
        assert!(error.contains("others may enter it (mode 755)"), "{error}");
    }
    fs::remove_dir(&own).unwrap();
    std::os::unix::fs::symlink(folder.path(), &own).unwrap();
    let error = come(inside(folder.path(), 0, 2, 0)).unwrap_err().to_string();
    assert!(error.ends_with("it is no folder"), "{error}");
}

/// Files of killed processes. Those of an earlier start are removed, and those of the same start do no harm.
#[test]
fn what_earlier_jobs_left_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    // A whole connection, copied before it is closed.
    let leave = |restart| {
        let mut lost = inside(folder.path(), 1, 3, restart);
        lost.1.start = Duration::from_secs(2);
        let mut first = inside(folder.path(), 0, 3, restart);
        first.1.start = Duration::from_secs(2);
        let both = [first, lost].map(|guest| thread::spawn(move || come(guest)));
        let kept = wait_for(|| {
            let own =
                |path: &PathBuf| path.parent().unwrap().to_string_lossy().ends_with(&format!("-{restart}"));
            let files = below(folder.path()).into_iter().filter(|path| path.is_file() && own(path));
            let files: Vec<_> = files.filter_map(|path| Some((fs::read(&path).ok()?, path))).collect();
            let long = |end: &str| {
                files.iter().any(|(bytes, path)| bytes.len() >= 40 && path.extension().unwrap() == end)
            };
            (long("in") && long("out")).then_some(files)
        });
        both.into_iter().for_each(|thread| _ = thread.join().unwrap().unwrap_err());
        for (bytes, path) in kept.iter().filter(|(_, path)| path.file_name().unwrap() != "first") {
            let _ = fs::create_dir(path.parent().unwrap());
            #[cfg(unix)]
            fs::set_permissions(path.parent().unwrap(), std::os::unix::fs::PermissionsExt::from_mode(0o700))
                .unwrap();
            fs::write(path, bytes).unwrap();
        }
    };
    leave(4);
    leave(3);
    assert_eq!(below(folder.path()).iter().filter(|path| path.is_dir()).count(), 2);
    let outcomes = all((0..2).map(|rank| inside(folder.path(), rank, 2, 4)).collect());
    assert!(outcomes.iter().all(|outcome| outcome.as_deref() == Ok(BLOB)), "{outcomes:?}");
    assert!(
        below(folder.path()).iter().filter(|path| path.is_dir()).count() < 2,
        "the earlier start's is there"
    );
}

#[test]
fn who_does_not_fit_or_does_not_come_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = inside(folder.path(), 1, 2, 0);
    other.2.world = 3;
    let outcomes = all(vec![inside(folder.path(), 0, 2, 0), other]);
    for sentence in sentences(&outcomes) {
        assert!(
            sentence.ends_with("was started as one of 3 processes, but rank 0 as one of 2"),
            "{sentence}"
        );
    }
    let mut alone = inside(folder.path(), 0, 2, 0);
    alone.1.start = Duration::from_millis(200);
    let sentence = come(alone).unwrap_err().to_string();
    assert!(sentence.starts_with("rank 1 of 2 did not come to rank 0 in "), "{sentence}");
    assert_eq!(below(folder.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_missing_folder_is_an_error_at_once() {
    let gone = tempfile::tempdir().unwrap().path().join("gone");
    for rank in 0..2 {
        assert!(matches!(come(inside(&gone, rank, 2, 0)), Err(Error::Rendezvous(_))));
    }
    let read = |name: &str| (name == "TOWERS_RENDEZVOUS_DIR").then(|| gone.display().to_string());
    let error = Settings::discover(read).unwrap_err().to_string();
    assert!(error.ends_with("but must be a folder that is there"), "{error}");
}

/// A killed process leaves no trace in the files but its silence.
#[test]
fn a_silent_rank_is_named_and_who_is_done_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let connected = |rank| {
        let (place, settings, hello) = inside(folder.path(), rank, 3, 0);
        thread::spawn(move || connect(&place, &settings, &hello, (rank == 0).then_some(BLOB)).unwrap())
    };
    let threads: Vec<_> = (0..3).map(connected).collect();
    let mut groups: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let silent = groups.pop().unwrap();
    let timeout = Duration::from_millis(600);
    let watches: Vec<_> = groups.into_iter().map(|group| Watchdog::start(group, timeout).unwrap()).collect();
    for watch in &watches {
        let told = wait_for(|| watch.failed());
        assert!(told.starts_with("rank 2 (") && told.contains("has not been heard of for 0.6 s"), "{told}");
    }
    watches.into_iter().for_each(Watchdog::finish);
    drop(silent);
    wait_for(|| below(folder.path()).is_empty().then_some(()));
}
