//! Finds and kills the processes of a launch, on Linux.

use crate::{Place, Ran};
use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub fn start(place: &Place, args: &str) -> Child {
    spawn(place.command(args))
}

pub fn spawn(command: Command) -> Child {
    hearing(&command).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The command, which hears all signals: the tests may run in the background of a script, and then ignore
/// SIGINT as it does.
pub fn hearing(command: &Command) -> Command {
    let mut hearing = Command::new("env");
    hearing.arg("--default-signal=INT,HUP,QUIT").arg(command.get_program()).args(command.get_args());
    hearing.current_dir(command.get_current_dir().unwrap());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => hearing.env(name, value),
            None => hearing.env_remove(name),
        };
    }
    hearing
}

/// The environment of a process, if it exists.
pub fn environment(id: &str) -> Option<BTreeMap<String, String>> {
    let bytes = fs::read(format!("/proc/{id}/environ")).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Some(
        text.split('\0').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect(),
    )
}

fn parent(id: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.to_owned())
}

/// The processes of a launch by rank, once all are running the program.
pub fn ranks(launcher: &Child, count: usize) -> BTreeMap<usize, String> {
    let launcher = launcher.id().to_string();
    wait_for(|| {
        let ids = fs::read_dir("/proc").ok()?.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
        let rank = |id: String| {
            let own = parent(&id).as_ref() == Some(&launcher);
            Some((environment(&id).filter(|_| own)?.get("RANK")?.parse().ok()?, id))
        };
        let found: BTreeMap<usize, String> = ids.filter_map(rank).collect();
        (found.len() == count).then_some(found)
    })
}

pub fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "it never comes");
        sleep(Duration::from_millis(20));
    }
}

/// Waits for the output of so many epochs: then the checkpoint of the last but one is complete.
pub fn wait_for_epochs(place: &Place, run: &str, epochs: usize) {
    let told = || fs::read_to_string(place.path().join(run).join("history.csv")).unwrap_or_default();
    wait_for(|| (told().lines().count() > epochs).then_some(()));
}

pub fn signal(name: &str, id: &str) {
    assert!(Command::new("kill").args([name, id]).status().unwrap().success());
}

pub fn end(launcher: Child) -> Ran {
    Ran("(started before)".to_owned(), launcher.wait_with_output().unwrap())
}

pub fn all_gone(ranks: &BTreeMap<usize, String>) {
    assert!(ranks.values().all(|id| environment(id).is_none()), "a process is left behind");
}
