//! `--tui`: a live view in a terminal, plain lines elsewhere.

use crate::Place;
use std::io::Write;
use std::process::{Command, Stdio};

const TRAIN: &str =
    "train --quick --dataset synthetic --limit-train 100 --limit-test 20 --epochs 2 --output run --tui";

/// The control sequences for the alternate screen, on and off.
const ALTERNATE_SCREEN: [&str; 2] = ["\x1b[?1049h", "\x1b[?1049l"];

/// Runs `towers`, with the words `prefix` and then [`TRAIN`], in a terminal, types `keys`, and returns the exit
/// status and the terminal's output. Returns `None` if there is no `script`.
fn on_terminal(place: &Place, prefix: &str, keys: &str) -> Option<(Option<i32>, String)> {
    let line = format!("stty rows 40 columns 100; {} {prefix}{TRAIN}", env!("CARGO_BIN_EXE_towers"));
    // `script` of util-linux gives a command a terminal, and writes the terminal's output to a file.
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    command.current_dir(place.path()).env("HOME", place.path()).env("TERM", "xterm-256color");
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            println!("SKIPPED: the view on a terminal: script: {error}");
            return None;
        }
    };
    child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Some((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

#[test]
fn a_terminal_shows_the_view_and_keeps_the_lines() {
    let Some((status, text)) = on_terminal(&Place::new(), "", "") else { return };
    assert_eq!(status, Some(0), "{text}");
    let [on, off] = ALTERNATE_SCREEN.map(|code| text.find(code));
    let (Some(on), Some(off)) = (on, off) else { panic!("no view in {text:?}") };
    let view = &text[on..off];
    assert!(view.contains("q or Ctrl-C stops and saves") && view.contains("accuracy"), "{view:?}");
    let after = &text[off..];
    assert!(after.contains("Epoch 2/2") && after.contains("done: run"), "{after:?}");
}

#[test]
fn a_run_that_is_stopped_at_once_gives_the_terminal_and_its_cursor_back() {
    let Some((status, text)) = on_terminal(&Place::new(), "", "qq") else { return };
    assert_eq!(status, Some(130), "{text:?}");
    let (off, shown) = (text.rfind(ALTERNATE_SCREEN[1]), text.rfind("\x1b[?25h"));
    assert!(off.is_some() && off < shown, "{text:?}");
}

/// Launched processes run in the background of the terminal, and would be stopped if they drew on it.
#[test]
fn a_launched_process_writes_plain_lines() {
    let Some((status, text)) = on_terminal(&Place::new(), "launch --processes 1 -- ", "") else { return };
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("Epoch 2/2") && text.contains("done: run"), "{text:?}");
    assert!(!text.contains(ALTERNATE_SCREEN[0]), "{text:?}");
}

#[test]
fn without_a_terminal_there_are_plain_lines() {
    let place = Place::new();
    let out = place.prints(TRAIN, "Epoch 2/2").says("done: run").out();
    assert!(!out.contains('\x1b'), "{out:?}");
    place.refuses(&format!("{TRAIN} --no-progress"), "--no-progress");
}
