//! This test program on stand-ins for CUDA.

mod stand_ins;

use stand_ins::StandIns;
use std::path::Path;
use std::process::Command;

/// What a second start of this program printed, with the stand-ins' complaints on the standard error stream.
pub struct Played {
    pub printed: String,
    pub errors: String,
}

impl Played {
    /// The same, if nothing was called wrongly.
    pub fn correct(self) -> Played {
        let Played { printed, errors } = &self;
        assert!(!errors.contains("FAKE:"), "a wrong call\n{printed}{errors}");
        self
    }
}

/// Starts this program anew with these arguments and variables, on the driver alone or with the libraries. `None`, which is said,
/// without a compiler.
pub fn play_on(with_libraries: bool, arguments: &[&str], settings: &[(&str, &str)]) -> Option<Played> {
    play_prepared(arguments, settings, |stand_ins, command, folder| {
        stand_ins.prepare(command, with_libraries, folder);
    })
}

/// The same on a driver of CUDA 12.4.
#[allow(dead_code, reason = "one program of tests plays on it")]
pub fn play_on_old(arguments: &[&str], settings: &[(&str, &str)]) -> Option<Played> {
    play_prepared(arguments, settings, |stand_ins, command, folder| {
        stand_ins.prepare(command, false, folder);
        stand_ins.prepare_as_old(command);
    })
}

fn play_prepared(
    arguments: &[&str],
    settings: &[(&str, &str)],
    prepare: impl FnOnce(&StandIns, &mut Command, &Path),
) -> Option<Played> {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/emulation");
    let stand_ins = StandIns::find(sources, "calls into CUDA")?;
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    prepare(stand_ins, &mut command, folder.path());
    let output = command.args(arguments).envs(settings.iter().copied()).output().unwrap();
    let [printed, errors] =
        [output.stdout, output.stderr].map(|out| String::from_utf8_lossy(&out).into_owned());
    assert!(output.status.success(), "{arguments:?}, {settings:?}: {}\n{printed}{errors}", output.status);
    Some(Played { printed, errors })
}
