//! Stand-ins for the driver, NVRTC and the libraries, which the C++ compiler builds, and programs on them.

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

/// The files that stand in, under the names that NVIDIA's have.
pub struct StandIns {
    /// With the driver and NVRTC, and kernels that were compiled.
    driver: PathBuf,
    libraries: PathBuf,
    /// With NCCL under the name that programs of ours look for.
    links: PathBuf,
}

impl StandIns {
    /// Those built from the folder `emulation` of tensor-cuda, once in a process. Where they can't be there are none, and it is said that
    /// `what` is skipped.
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
        let driver = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stand-in");
        let libraries = driver.join("libraries");
        std::fs::create_dir_all(&libraries).expect("a folder can be made");
        for source in DRIVER {
            compile(sources, source, &driver, None)?;
        }
        for source in LIBRARIES {
            compile(sources, source, &libraries, Some(&driver.join(DRIVER[0].1)))?;
        }
        let links = libraries.join("links");
        std::fs::create_dir_all(&links).expect("a folder can be made");
        link(&libraries.join("libnccl.so.2"), &links.join("libnccl.so"));
        Ok(StandIns { driver, libraries, links })
    }

    /// Has a program find the driver, the libraries too if it is to, and leave its files in a folder.
    pub fn prepare(&self, command: &mut Command, with_libraries: bool, folder: &Path) {
        let folders = [&self.driver, &self.libraries, &self.links];
        let folders = if with_libraries { &folders[..] } else { &folders[..1] };
        command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).expect("folders without a colon"));
        command.env("FAKE_OBJECTS", &self.driver);
        command.env("FAKE_LETTERS", folder).env("TOWERS_CACHE_DIR", folder);
    }
}

#[allow(dead_code, reason = "not every program of tests plays with the names")]
impl StandIns {
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

fn compile(
    sources: &Path,
    (source, file): Source,
    folder: &Path,
    linked: Option<&Path>,
) -> Result<(), String> {
    let compiler = std::env::var("CXX").ok().filter(|cxx| !cxx.is_empty()).unwrap_or_else(|| "g++".into());
    // Another program may be at it: each puts a whole file there.
    let made = folder.join(format!("{file}-{}", std::process::id()));
    let output = Command::new(&compiler)
        .args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror"])
        .args(["-shared", "-fPIC", "-pthread"])
        .arg(format!("-DEMULATION=\"{}\"", sources.display()))
        .arg(sources.join(source))
        .args(linked)
        .arg("-o")
        .arg(&made)
        .output()
        .map_err(|error| format!("`{compiler}` does not start: {error}"))?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&made, folder.join(file)).expect("the folder is there");
    Ok(())
}
