//! NVRTC from its wheel: fetched, verified and unpacked once.

use crate::index::Index;
use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};

const VERSION: &str = "13.0.88";
const PACKAGE: &str = "nvidia-cuda-nvrtc";

/// A wheel holds one of these in this folder. Its other files are not needed, and not unpacked.
const INSIDE: &str = "nvidia/cu13/lib";
const LIBRARIES: [&str; 2] = ["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"];

/// The largest file that is accepted, packed or not.
const LIMIT: u64 = 512 << 20;

/// A file of the index.
struct Wheel {
    architecture: &'static str,
    /// The end of its name.
    platform: &'static str,
    sha256: &'static str,
}

const WHEELS: [Wheel; 2] = [
    Wheel {
        architecture: "x86_64",
        platform: "manylinux2010_x86_64.manylinux_2_12_x86_64",
        sha256: "ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575",
    },
    Wheel {
        architecture: "aarch64",
        platform: "manylinux2014_aarch64.manylinux_2_17_aarch64",
        sha256: "d27f20a0ca67a4bb34268a5e951033496c5b74870b868bacd046b1b8e0c3267b",
    },
];

impl Wheel {
    fn of_this_machine() -> Option<&'static Wheel> {
        let here = |wheel: &&Wheel| wheel.architecture == std::env::consts::ARCH;
        WHEELS.iter().find(here).filter(|_| cfg!(target_os = "linux"))
    }

    fn file(&self) -> String {
        format!("{}-{VERSION}-py3-none-{}.whl", PACKAGE.replace('-', "_"), self.platform)
    }
}

/// What came of looking for NVRTC.
pub enum Fetched {
    /// The folder with its libraries.
    Folder(PathBuf),
    /// There is none for this machine, or it can't be reached now.
    Unavailable(String),
}

/// The folder with NVRTC under `target`, filled if this is the first time.
///
/// # Errors If the fetched file has another digest, or can't be written.
pub fn fetch(target: &Path) -> Result<Fetched> {
    let folder = target.join(format!("nvrtc-{VERSION}"));
    if folder.is_dir() {
        return Ok(Fetched::Folder(folder.canonicalize()?));
    }
    let Some(wheel) = Wheel::of_this_machine() else {
        let (os, machine) = (std::env::consts::OS, std::env::consts::ARCH);
        return Ok(Fetched::Unavailable(format!("there is no NVRTC {VERSION} for {os} on {machine}")));
    };
    let index = Index::of_environment()?;
    eprintln!("     Fetching NVRTC {VERSION} from {}, once", index.host());
    // Whatever is in the folder under its own name is whole: it is made elsewhere and renamed.
    let fresh = target.join(format!("nvrtc-{VERSION}.{}.tmp", std::process::id()));
    fs::create_dir_all(&fresh).with_context(|| format!("{} can't be made", fresh.display()))?;
    let filled = fill(&fresh, wheel, || index.open(PACKAGE, &wheel.file(), LIMIT));
    let fetched = filled.and_then(|unreachable| match unreachable {
        Some(why) => {
            Ok(Fetched::Unavailable(format!("NVRTC {VERSION} can't be had from {}: {why:#}", index.host())))
        }
        None => {
            // Another process may have been faster.
            let renamed = fs::rename(&fresh, &folder);
            if !folder.is_dir() {
                renamed.with_context(|| format!("{} can't be made", folder.display()))?;
            }
            Ok(Fetched::Folder(folder.canonicalize()?))
        }
    });
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    fetched
}

/// Fetches the wheel into the folder, verifies it and leaves its libraries there. `Some` is why it can't be
/// reached.
fn fill<R: Read>(
    folder: &Path,
    wheel: &Wheel,
    open: impl FnOnce() -> Result<R>,
) -> Result<Option<anyhow::Error>> {
    let file = folder.join("wheel");
    let digest = match open().and_then(|body| copy(body, &file)) {
        Ok(digest) => digest,
        Err(error) => return Ok(Some(error)),
    };
    if digest != wheel.sha256 {
        bail!(
            "{} has SHA-256 {digest}, not {}: it is damaged or not the real one",
            wheel.file(),
            wheel.sha256
        );
    }
    unpack(&file, folder)?;
    fs::remove_file(&file)?;
    Ok(None)
}

/// Copies to a file and returns the SHA-256 of the bytes.
fn copy(mut from: impl Read, to: &Path) -> Result<String> {
    let (mut file, mut hash, mut buffer) = (File::create(to)?, Sha256::new(), vec![0; 1 << 16]);
    loop {
        match from.read(&mut buffer)? {
            0 => break,
            n => {
                hash.update(&buffer[..n]);
                file.write_all(&buffer[..n])?;
            }
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Takes the libraries out of a wheel. Their names in it are known, so no name in it decides where anything
/// is written.
fn unpack(wheel: &Path, folder: &Path) -> Result<()> {
    let mut archive = zip::ZipArchive::new(File::open(wheel)?).context("the wheel is no zip file")?;
    for library in LIBRARIES {
        let entry = archive.by_name(&format!("{INSIDE}/{library}"));
        let entry = entry.with_context(|| format!("the wheel has no {library}"))?;
        if entry.size() > LIMIT {
            bail!("{library} in the wheel would take {} bytes", entry.size());
        }
        std::io::copy(&mut entry.take(LIMIT), &mut File::create(folder.join(library))?)
            .with_context(|| format!("{library} can't be unpacked"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zip::write::SimpleFileOptions;

    fn zip_of(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for (name, content) in entries {
            writer.start_file(*name, SimpleFileOptions::default()).unwrap();
            writer.write_all(content).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    /// A wheel with this content and its right digest.
    fn wheel_of(bytes: &[u8]) -> Wheel {
        let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Wheel { architecture: "any", platform: "any", sha256: String::leak(hex) }
    }

    #[test]
    fn only_the_libraries_are_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = zip_of(&[
            ("../../outside", b"x"),
            ("nvidia/cu13/lib/libnvrtc.so.13", b"one"),
            ("nvidia/cu13/lib/libnvrtc.alt.so.13", b"x"),
            ("nvidia/cu13/lib/libnvrtc-builtins.so.13.0", b"two"),
        ]);
        let inside = folder.path().join("inside");
        fs::create_dir(&inside).unwrap();
        assert!(fill(&inside, &wheel_of(&bytes), || Ok(&bytes[..])).unwrap().is_none());
        assert_eq!(fs::read(inside.join("libnvrtc.so.13")).unwrap(), b"one");
        let count = |folder: &Path| fs::read_dir(folder).unwrap().count();
        assert_eq!((count(&inside), count(folder.path())), (2, 1));
    }

    #[test]
    fn other_wheels_are_refused_and_an_index_that_can_not_be_reached_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = fill(folder.path(), &WHEELS[0], || Ok(&b"something else"[..])).unwrap_err().to_string();
        assert!(error.contains("damaged or not the real one"), "{error}");
        let bytes = zip_of(&[("nvidia/cu13/lib/libnvrtc.so.13", b"one")]);
        let error = fill(folder.path(), &wheel_of(&bytes), || Ok(&bytes[..])).unwrap_err();
        assert!(format!("{error:#}").contains("no libnvrtc-builtins"), "{error:#}");
        let why = fill(folder.path(), &WHEELS[0], || -> Result<&[u8]> { bail!("no route") }).unwrap();
        assert_eq!(why.unwrap().to_string(), "no route");
    }

    #[test]
    fn a_folder_that_is_there_is_not_fetched_again() {
        let target = tempfile::tempdir().unwrap();
        let folder = target.path().join(format!("nvrtc-{VERSION}"));
        fs::create_dir(&folder).unwrap();
        let Fetched::Folder(found) = fetch(target.path()).unwrap() else { panic!("it is there") };
        assert_eq!(found, folder.canonicalize().unwrap());
    }
}
