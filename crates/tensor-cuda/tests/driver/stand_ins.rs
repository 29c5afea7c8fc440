//! Stand-ins for the driver, NVRTC and the libraries, which the C++ compiler builds, and programs on them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A source, and the file that is looked for.
type Source = (&'static str, &'static str);

const DRIVER: [Source; 2] = [("driver/driver.cpp", "libcuda.so.1"), ("driver/nvrtc.cpp", "libnvrtc.so.13")];
const LIBRARIES: [Source; 3] = [
    ("libraries/cublaslt.cpp", "libcublasLt.so.13"),
    ("libraries/cudnn.cpp", "libcudnn.so.9"),
    ("libraries/nccl.cpp", "libnccl.so.2"),
];

const FLAGS: [&str; 9] = [
    "-std=c++17",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Wno-missing-field-initializers",
    "-Werror",
    "-shared",
    "-fPIC",
    "-pthread",
];

/// The files that stand in, under the names that NVIDIA's have.
pub struct StandIns {
    /// With the driver and NVRTC.
    driver: PathBuf,
    /// With a driver of CUDA 12.4, and NVRTC under the name of its version 12.
    old: PathBuf,
    libraries: PathBuf,
    /// With kernels that were compiled.
    objects: PathBuf,
}

impl StandIns {
    /// Those built from the folder `emulation` of tensor-cuda, if no program of tests did it before. Where they can't be there are none, and
    /// it is said that `what` is skipped.
    pub fn find(sources: &str, what: &str) -> Option<&'static StandIns> {
        static BUILT: OnceLock<Result<StandIns, String>> = OnceLock::new();
        let built = BUILT.get_or_init(|| StandIns::build(Path::new(sources)));
        built.as_ref().inspect_err(|why| println!("SKIPPED: {what}: {why}")).ok()
    }

    fn build(sources: &Path) -> Result<StandIns, String> {
        if !cfg!(target_os = "linux") {
            return Err("the stand-ins are Linux libraries".into());
        }
        if !sources.exists() {
            return Err(format!("{} is not on this machine", sources.display()));
        }
        let cxx = std::env::var("CXX").ok().filter(|cxx| !cxx.is_empty()).unwrap_or_else(|| "g++".into());
        let objects = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stand-in");
        let mut made_of = DefaultHasher::new();
        (&cxx, FLAGS).hash(&mut made_of);
        hash_folder(sources, &mut made_of);
        let driver = objects.join(format!("{:016x}", made_of.finish()));
        let linked = driver.join(DRIVER[0].1);
        let [libraries, old] = ["libraries", "old"].map(|name| driver.join(name));
        for folder in [&libraries, &old] {
            std::fs::create_dir_all(folder).expect("a folder can be made");
        }
        let linked = linked.to_str().expect("a path in UTF-8");
        let compile = |source, folder, more: &[&str]| compile(&cxx, sources, source, folder, more);
        std::thread::scope(|scope| {
            let nvrtc = scope.spawn(|| compile(DRIVER[1], &driver, &[]));
            compile(DRIVER[0], &driver, &[])?;
            LIBRARIES.iter().try_for_each(|&source| compile(source, &libraries, &[linked]))?;
            nvrtc.join().expect("it compiles")
        })?;
        link(&driver.join(DRIVER[0].1), &old.join(DRIVER[0].1));
        link(&driver.join(DRIVER[1].1), &old.join("libnvrtc.so.12"));
        Ok(StandIns { driver, old, libraries, objects })
    }

    /// Has a program find the driver, the libraries too if it is to, and leave its files in a folder.
    pub fn prepare(&self, command: &mut Command, with_libraries: bool, folder: &Path) {
        let folders = [&self.driver, &self.libraries];
        let folders = if with_libraries { &folders[..] } else { &folders[..1] };
        command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).expect("folders without a colon"));
        command.env("FAKE_OBJECTS", &self.objects);
        command.env("FAKE_LETTERS", folder).env("TOWERS_CACHE_DIR", folder);
    }
}

#[allow(dead_code, reason = "not every program of tests plays with the names")]
impl StandIns {
    /// Has a program find a driver of CUDA 12.4 and its NVRTC alone.
    pub fn prepare_as_old(&self, command: &mut Command) {
        command.env("LD_LIBRARY_PATH", &self.old).env("FAKE_VERSION", "12040").env("FAKE_NVRTC", "12040");
    }

    /// Has a program find the files under NVIDIA's names alone, behind a folder whose `libcudnn.so` is another library.
    pub fn prepare_as_wheels(&self, command: &mut Command, folder: &Path) {
        link(&self.libraries.join(LIBRARIES[0].1), &folder.join("libcudnn.so"));
        let folders = [folder, &self.driver, &self.libraries];
        command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).expect("folders without a colon"));
    }
}

fn link(file: &Path, at: &Path) {
    #[cfg(unix)]
    match std::os::unix::fs::symlink(file, at) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => panic!("{error}"),
        _ => {}
    }
    #[cfg(not(unix))]
    let _ = (file, at);
}

/// What is in the files of a folder, and where.
fn hash_folder(folder: &Path, hasher: &mut DefaultHasher) {
    let entries = std::fs::read_dir(folder).expect("a folder of sources");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        path.hash(hasher);
        if path.is_dir() {
            hash_folder(&path, hasher);
        } else {
            std::fs::read(&path).expect("a source").hash(hasher);
        }
    }
}

/// Compiles a source, unless it was before.
fn compile(
    compiler: &str,
    sources: &Path,
    (source, file): Source,
    folder: &Path,
    more: &[&str],
) -> Result<(), String> {
    if folder.join(file).exists() {
        return Ok(());
    }
    // Another program may be at it: each puts a whole file there.
    let made = folder.join(format!("{file}-{}", std::process::id()));
    let output = Command::new(compiler)
        .args(FLAGS)
        .arg(format!("-DEMULATION=\"{}\"", sources.display()))
        .arg(sources.join(source))
        .args(more)
        .arg("-o")
        .arg(&made)
        .output()
        .map_err(|error| format!("`{compiler}` does not start: {error}"))?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&made, folder.join(file)).expect("the folder is there");
    Ok(())
}
