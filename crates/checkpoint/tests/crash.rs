//! Writers that die, disks that are full, folders that may not be written: saved checkpoints stay.
//!
//! The tests run this program again as a child, which then is one of the writers below.

#![cfg(unix)]

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;
use towers_checkpoint::{Error, Search, Store, Tensors};

const ROLE: &str = "CHECKPOINT_TEST_ROLE";
const FOLDER: &str = "CHECKPOINT_TEST_FOLDER";
const SIZE: usize = 50_000;

fn filled(value: u64) -> Tensors {
    crate::filled([SIZE], value as f32)
}

/// The newest checkpoint's number, after a look whether all of it is of that number; 0 if there is none.
fn newest(store: &Store) -> u64 {
    let Search { found, skipped, .. } = store.newest_valid::<u64>().unwrap();
    assert!(skipped.is_empty(), "{skipped:?}");
    found.map_or(0, |found| {
        assert!(found.tensors == filled(found.state), "{} is not what was saved", found.name);
        found.state
    })
}

/// The arguments that make this program a child.
const CHILD: [&str; 4] = ["--exact", "crash::child", "--nocapture", "--test-threads=1"];

#[test]
fn child() {
    let Ok(role) = env::var(ROLE) else { return };
    let store = Store::open(env::var_os(FOLDER).unwrap()).unwrap();
    match role.as_str() {
        // Saves without end under three alternating names, so that most saves replace.
        "endless" => {
            for k in newest(&store) + 1.. {
                store.save(&format!("epoch-{}", k % 3), &filled(k), &k).unwrap();
                println!("\nsaved {k}");
            }
        }
        // Meets a limit on what can be written.
        "full" => {
            let error = (1..1000)
                .find_map(|k| store.save(&format!("epoch-{k}"), &filled(k), &k).err())
                .expect("there is no limit");
            println!("\nrefused {error}");
            assert!(matches!(error, Error::File(_)));
            assert!(newest(&store) >= 1, "the checkpoints before are intact");
            let names = fs::read_dir(store.path()).unwrap().map(|entry| entry.unwrap().file_name());
            assert!(
                !names.into_iter().any(|name| name.to_string_lossy().starts_with(".tmp")),
                "no leftovers"
            );
        }
        // Its file system or limit has no room for even one.
        "refused" => {
            let error = store.save("big", &filled(1), &1).expect_err("there is no limit");
            println!("\nrefused {error}");
            assert_eq!(store.list().unwrap().entries.len(), 1, "the checkpoint before is intact");
            assert_eq!(store.load::<u64>("small").unwrap().state, 0);
            assert_eq!(fs::read_dir(store.path()).unwrap().count(), 2, "no leftovers beside the lock");
        }
        other => panic!("no role {other}"),
    }
}

#[test]
fn killed_at_any_moment_the_newest_checkpoint_loads() {
    let folder = tempfile::tempdir().unwrap();
    let mut before = 0;
    for round in 0..20u64 {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(CHILD)
            .envs([(ROLE, "endless".as_ref()), (FOLDER, folder.path().as_os_str())])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut saves = lines.filter_map(|line| line.strip_prefix("saved ")?.parse::<u64>().ok());
        let first = saves.next().expect("the child saves");
        // Moments that spread over a save's phases: some milliseconds, in odd steps.
        thread::sleep(Duration::from_micros(round * 7_919 % 20_011));
        child.kill().unwrap();
        child.wait().unwrap();
        let last = saves.last().unwrap_or(first);

        // Whatever was said to be saved is there, before anything is cleaned up as after.
        let reopened = Store::open(folder.path()).unwrap();
        let found = newest(&reopened);
        assert!(first > before && found >= last, "round {round}: {found} after {last}");
        let count = fs::read_dir(folder.path()).unwrap().count();
        assert!(count <= 4, "three names and the lock, and no leftovers: {count}");
        before = found;
    }
}

/// Runs this program as a child by a shell script, which says `exec "$@"` where the child is to start.
fn child_in_shell(role: &str, folder: &Path, shell: &mut Command, script: &str) -> Output {
    shell
        .args(["-c", script, "sh"])
        .arg(env::current_exe().unwrap())
        .args(CHILD)
        .envs([(ROLE, role.as_ref()), (FOLDER, folder.as_os_str())])
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]].iter().map(|part| String::from_utf8_lossy(part)).collect()
}

/// A limit on the size of a file needs no rights, and stops a write half-way as a full disk does.
#[test]
fn a_write_cut_half_way_leaves_the_checkpoints_before() {
    let folder = tempfile::tempdir().unwrap();
    Store::open(folder.path()).unwrap().save("small", &crate::filled([1], 1.0), &0u64).unwrap();
    let script = r#"trap '' XFSZ; ulimit -f 100 || exit 77; exec "$@""#;
    let output = child_in_shell("refused", folder.path(), &mut Command::new("sh"), script);
    if output.status.code() == Some(77) {
        return eprintln!("SKIPPED: this system has no limit on the size of files");
    }
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("refused can't write"), "{}", text(&output));
}

/// A file system of one megabyte, where the system lets us have one.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_the_checkpoints_before() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(r#"mount -t tmpfs -o size=1m none "${FOLDER}" 2>/dev/null || exit 77; exec "$@""#);
    let mut unshare = Command::new("unshare");
    let shell = unshare.args(["--user", "--map-root-user", "--mount", "sh"]);
    if !Command::new("unshare")
        .args(["--user", "--map-root-user", "true"])
        .output()
        .is_ok_and(|o| o.status.success())
    {
        return eprintln!("SKIPPED: this system lets us have no namespaces");
    }
    let output = child_in_shell("full", folder.path(), shell, &script);
    if output.status.code() == Some(77) {
        return eprintln!("SKIPPED: this system lets us mount no file system");
    }
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("free some space"), "{}", text(&output));
}

/// Root may write anywhere, so for root a file stands in the way instead.
#[test]
fn a_folder_that_may_not_be_written_is_an_error_that_names_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("checkpoints");
    let store = Store::open(&root).unwrap();
    store.save("a", &filled(1), &1).unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o555)).unwrap();
    match store.save("b", &filled(2), &2) {
        Ok(_) => eprintln!("SKIPPED: this user may write to folders that are read-only"),
        Err(error) => {
            assert!(matches!(error, Error::File(_)));
            assert!(error.to_string().contains("checkpoints") && error.to_string().contains("may write to"));
            assert_eq!(newest(&Store::open(&root).unwrap()), 1);
        }
    }
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();

    let blocked = folder.path().join("file");
    fs::write(&blocked, "").unwrap();
    let error = Store::open(blocked.join("checkpoints")).and_then(|store| store.save("b", &filled(2), &2));
    assert!(error.unwrap_err().to_string().contains("file"));
}
