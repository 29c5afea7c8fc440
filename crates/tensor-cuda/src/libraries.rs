//! NVIDIA's libraries on this machine: their versions and files, and hints for missing ones.
//!
//! cudarc panics if a library is missing. So each library is loaded here before the first call into it, and
//! only its version is read before that is known to be new enough.

use crate::error::{Error, Result};
use crate::version::Version;
use core::ffi::{c_int, c_uint};
use std::path::{Path, PathBuf};

/// A library that this crate can use, and whether it is installed.
#[derive(Clone, Debug)]
pub struct Library {
    /// Its name.
    pub name: &'static str,
    /// Its purpose.
    pub purpose: &'static str,
    /// Where it was found, or why it can't be used.
    pub state: Result<Found>,
}

/// A library that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its version.
    pub version: Version,
    /// The file, if the system reports it.
    pub path: Option<PathBuf>,
}

/// All libraries, the required ones first.
pub fn libraries() -> Vec<Library> {
    ALL.map(|wanted| Library { name: wanted.name, purpose: wanted.purpose, state: wanted.find() }).into()
}

pub(crate) const ALL: [&Wanted; 5] = [&DRIVER, &NVRTC, &CUBLASLT, &CUDNN, &NCCL];

/// The version suffixes of file names with which cudarc finds the library, of the supported versions.
const KNOWN: [&str; 3] = ["1", "9", "13"];

/// The requirements on a library.
pub(crate) struct Wanted {
    name: &'static str,
    purpose: &'static str,
    /// The file with the supported version.
    file: &'static str,
    oldest: Version,
    hint: &'static str,
    /// The file as cudarc finds it.
    loaded: fn() -> Option<&'static libloading::Library>,
    version: Ask,
}

/// How a library reports its version.
enum Ask {
    /// By a function that returns a number.
    Returns(&'static str, fn(u32) -> Version),
    /// By a function that writes a number and returns 0.
    Writes(&'static str, fn(u32) -> Version),
    /// By a function that writes the two first numbers and returns 0.
    WritesTwo(&'static str),
}

/// The library as cudarc loads it: under all of its names.
macro_rules! loaded_by {
    ($($module:ident)::+) => {
        || {
            // SAFETY: loading runs the library's own start code, which NVIDIA's libraries allow at any time and on any
            // thread. The second call finds the library of the first.
            unsafe { cudarc::$($module)::+::is_culib_present().then(|| cudarc::$($module)::+::culib()) }
        }
    };
}

/// The name of the variable that holds the folders which the linker looks through.
#[cfg(not(windows))]
macro_rules! search_path {
    () => {
        "LD_LIBRARY_PATH"
    };
}
#[cfg(windows)]
macro_rules! search_path {
    () => {
        "PATH"
    };
}
pub(crate) use search_path;

/// A hint: the package to install, and how it is found.
macro_rules! install {
    ($command:literal) => {
        concat!("`", $command, "`, and have its folder in ", search_path!())
    };
}

/// The file's name on this system.
const fn file(linux: &'static str, windows: &'static str) -> &'static str {
    if cfg!(windows) { windows } else { linux }
}

/// The GPU's driver.
pub(crate) const DRIVER: Wanted = Wanted {
    name: "the NVIDIA driver",
    purpose: "runs everything",
    file: file("libcuda.so.1", "nvcuda.dll"),
    oldest: Version::new(13, 0, 0),
    hint: if cfg!(target_os = "macos") {
        "NVIDIA has none to install on macOS: go on with `--device cpu`"
    } else {
        "install NVIDIA driver 580 or newer, or go on with `--device cpu`"
    },
    loaded: loaded_by!(driver::sys),
    version: Ask::Writes("cuDriverGetVersion", |n| Version::new(n / 1000, n % 1000 / 10, n % 10)),
};

/// The compiler of kernels.
pub(crate) const NVRTC: Wanted = Wanted {
    name: "NVRTC",
    purpose: "compiles our kernels",
    file: file("libnvrtc.so.13", "nvrtc64_130_0.dll"),
    oldest: Version::new(13, 0, 0),
    hint: install!("pip install 'nvidia-cuda-nvrtc==13.0.*'"),
    loaded: loaded_by!(nvrtc::sys),
    version: Ask::WritesTwo("nvrtcVersion"),
};

/// Matrix products.
pub(crate) const CUBLASLT: Wanted = Wanted {
    name: "cuBLASLt",
    purpose: "dense layers; our own kernels do without it",
    file: file("libcublasLt.so.13", "cublasLt64_13.dll"),
    oldest: Version::new(13, 0, 0),
    hint: install!("pip install 'nvidia-cublas==13.0.*'"),
    loaded: loaded_by!(cublaslt::sys),
    // Five digits up to 11.10, six since.
    version: Ask::Returns("cublasLtGetVersion", |n| decimal(n, if n < 100_000 { 1000 } else { 10_000 })),
};

/// Convolutions.
pub(crate) const CUDNN: Wanted = Wanted {
    name: "cuDNN",
    purpose: "convolutions; our own kernels do without it",
    file: file("libcudnn.so.9", "cudnn64_9.dll"),
    oldest: Version::new(9, 10, 0),
    hint: install!("pip install nvidia-cudnn-cu13"),
    loaded: loaded_by!(cudnn::sys),
    // Four digits up to 8.9, five since.
    version: Ask::Returns("cudnnGetVersion", |n| decimal(n, if n < 10_000 { 1000 } else { 10_000 })),
};

/// Sums across GPUs.
pub(crate) const NCCL: Wanted = Wanted {
    name: "NCCL",
    purpose: "sums across GPUs",
    file: file("libnccl.so.2", "nccl.dll"),
    // Older ones have every function, but keep what a call does in the background in memory of the calling thread
    // (`ncclGroupJobMain` in group.cc). So a thread can't join several devices to a group.
    oldest: Version::new(2, 27, 0),
    hint: if cfg!(windows) {
        "NVIDIA has none to install on Windows: sums travel through host memory"
    } else {
        install!("pip install nvidia-nccl-cu13")
    },
    loaded: loaded_by!(nccl::sys),
    version: Ask::Writes("ncclGetVersion", |n| decimal(n, if n < 10_000 { 1000 } else { 10_000 })),
};

/// A version in NVIDIA's packed form: two digits for the patch, the rest below `major` for the minor number.
fn decimal(n: u32, major: u32) -> Version {
    Version::new(n / major, n % major / 100, n % 100)
}

impl Wanted {
    /// Loads the library and compares its version with the oldest supported one.
    pub(crate) fn find(&self) -> Result<Found> {
        // cudarc loads it to check, unloads it, and loads it again. Held meanwhile, it is loaded once.
        // SAFETY: as in `loaded_by`.
        let held = unsafe { libloading::Library::new(self.file) };
        let library = (self.loaded)().ok_or_else(|| self.missing(self.reason(&held)))?;
        let (version, function) = self
            .version
            .of(library)
            .map_err(|function| self.missing(format!("{function} does not answer")))?;
        let path = file_at(function);
        self.judge(version, path.as_deref())?;
        Ok(Found { version, path })
    }

    fn judge(&self, found: Version, path: Option<&Path>) -> Result<()> {
        if found >= self.oldest {
            return Ok(());
        }
        let path = path.map(Path::to_owned);
        Err(Error::TooOld { library: self.name, found, path, needed: self.oldest, hint: self.hint })
    }

    /// The name that cudarc tries first, and the file that it should lead to, if it leads to another file or
    /// none.
    pub(crate) fn link(&self) -> Option<(String, PathBuf)> {
        let (name, version) = self.file.split_once(".so.")?;
        let first = format!("{name}.so");
        let right = self.found_as(self.file)?;
        let same = |found: PathBuf| found.canonicalize().ok() == right.canonicalize().ok();
        let finds = self.found_as(&first).map_or(KNOWN.contains(&version), same);
        (!finds).then_some((first, right))
    }

    /// The file that the linker finds under this name.
    fn found_as(&self, name: &str) -> Option<PathBuf> {
        // SAFETY: as in `loaded_by`.
        let library = unsafe { libloading::Library::new(name) }.ok()?;
        let (Ask::Returns(function, _) | Ask::Writes(function, _) | Ask::WritesTwo(function)) = self.version;
        // SAFETY: its address alone is looked at.
        let address = unsafe { library.get::<*const ()>(function) }.map(|symbol| *symbol as usize);
        // A file without the function is another library.
        Some(address.ok().and_then(file_at).unwrap_or_else(|| name.into()))
    }

    fn missing(&self, reason: String) -> Error {
        Error::Missing { library: self.name, reason, hint: self.hint }
    }

    /// The linker's reason.
    fn reason(&self, said: &Result<libloading::Library, libloading::Error>) -> String {
        match said {
            Ok(_) => format!("{} is there, but is not looked for under this name", self.file),
            Err(error) => reason_in(error),
        }
    }
}

/// The linker's message, which libloading has one error further down.
fn reason_in(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| cause.to_string())
}

impl Ask {
    /// The version and the address of its function. The function's name if it is missing or fails.
    fn of(&self, library: &libloading::Library) -> Result<(Version, usize), &'static str> {
        // SAFETY: the types are those of NVIDIA's headers, the same since the functions exist, and they write to what
        // they are given alone.
        unsafe {
            match *self {
                Ask::Returns(name, decode) => {
                    type Function = unsafe extern "C" fn() -> usize;
                    let function = *library.get::<Function>(name).map_err(|_| name)?;
                    let number = u32::try_from(function()).map_err(|_| name)?;
                    Ok((decode(number), function as usize))
                }
                Ask::Writes(name, decode) => {
                    type Function = unsafe extern "C" fn(*mut c_int) -> c_uint;
                    let function = *library.get::<Function>(name).map_err(|_| name)?;
                    let mut number = 0;
                    let status = function(&raw mut number);
                    let number = u32::try_from(number).ok().filter(|_| status == 0).ok_or(name)?;
                    Ok((decode(number), function as usize))
                }
                Ask::WritesTwo(name) => {
                    type Function = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_uint;
                    let function = *library.get::<Function>(name).map_err(|_| name)?;
                    let (mut major, mut minor) = (0, 0);
                    let status = function(&raw mut major, &raw mut minor);
                    let pair = u32::try_from(major).ok().zip(u32::try_from(minor).ok());
                    let (major, minor) = pair.filter(|_| status == 0).ok_or(name)?;
                    Ok((Version::new(major, minor, 0), function as usize))
                }
            }
        }
    }
}

/// The file that is mapped at an address, on Linux.
fn file_at(address: usize) -> Option<PathBuf> {
    file_in(&std::fs::read_to_string("/proc/self/maps").ok()?, address)
}

/// Lines are like `7f00-7f10 r-xp 00000000 08:01 42      /lib/libcuda.so.1`.
fn file_in(maps: &str, address: usize) -> Option<PathBuf> {
    let holds = |line: &&str| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let bounds = range.map(|(from, to)| (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)));
        matches!(bounds, Some((Ok(from), Ok(to))) if (from..to).contains(&address))
    };
    let line = maps.lines().find(holds)?;
    line.find('/').map(|start| PathBuf::from(&line[start..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_nvidia_packs_them() {
        let decode = |wanted: &Wanted, number| match wanted.version {
            Ask::Returns(_, decode) | Ask::Writes(_, decode) => decode(number).to_string(),
            Ask::WritesTwo(_) => unreachable!(),
        };
        assert_eq!(decode(&DRIVER, 13000), "13.0");
        assert_eq!(decode(&DRIVER, 12080), "12.8");
        assert_eq!(decode(&CUBLASLT, 130_002), "13.0.2");
        assert_eq!(decode(&CUBLASLT, 11_401), "11.4.1");
        assert_eq!(decode(&CUDNN, 91_900), "9.19.0");
        assert_eq!(decode(&CUDNN, 8_907), "8.9.7");
        assert_eq!(decode(&NCCL, 22_809), "2.28.9");
        assert_eq!(decode(&NCCL, 2_804), "2.8.4");
    }

    #[test]
    fn an_old_library_is_refused_with_both_versions() {
        assert_eq!(DRIVER.judge(Version::new(13, 0, 0), None), Ok(()));
        assert_eq!(CUDNN.judge(Version::new(10, 0, 0), None), Ok(()));
        let error = DRIVER.judge(Version::new(12, 8, 0), None).unwrap_err().to_string();
        assert!(
            error.contains("12.8 is too old, for at least 13.0 is needed; install NVIDIA driver"),
            "{error}"
        );
        assert!(CUDNN.judge(Version::new(9, 9, 9), None).is_err());
        assert!(NCCL.judge(Version::new(2, 26, 6), None).is_err());
        assert_eq!(NCCL.judge(Version::new(2, 27, 3), None), Ok(()));
    }

    #[test]
    fn every_library_has_a_version_or_a_sentence_with_a_remedy() {
        let all = libraries();
        assert_eq!(all.len(), 5);
        for library in all {
            match library.state {
                Ok(Found { version, path }) => println!("{}: {version} in {path:?}", library.name),
                Err(error) => {
                    let sentence = error.to_string();
                    assert!(sentence.starts_with(library.name), "{sentence}");
                    assert!(sentence.contains("install"), "{sentence}");
                    assert!(!sentence.contains('\n'), "{sentence}");
                }
            }
        }
    }

    /// A library of any name, for the errors of a missing or a wrong one.
    fn wanted(loaded: fn() -> Option<&'static libloading::Library>, version: Ask) -> Wanted {
        let (name, purpose, file) = ("Nothing", "a test", "libtowers-is-nowhere.so.1");
        Wanted { name, purpose, file, oldest: Version::new(1, 0, 0), hint: "install it", loaded, version }
    }

    #[test]
    fn the_linker_says_why() {
        let error = wanted(|| None, Ask::WritesTwo("version")).find().unwrap_err().to_string();
        assert!(error.starts_with("Nothing can't be loaded (") && error.ends_with("; install it"), "{error}");
        // Windows' message does not name the file.
        assert!(cfg!(windows) || error.contains("libtowers-is-nowhere.so.1"), "{error}");
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn a_library_without_the_function_is_no_such_library() {
        fn this() -> Option<&'static libloading::Library> {
            // SAFETY: the C library is loaded already.
            unsafe { libloading::Library::new("libc.so.6") }
                .ok()
                .map(|library| &*Box::leak(Box::new(library)))
        }
        let error = wanted(this, Ask::Returns("towersGetVersion", |n| decimal(n, 1000))).find().unwrap_err();
        assert!(error.to_string().contains("towersGetVersion does not answer"), "{error}");
        // `getpid` takes nothing and returns a positive number: it passes for a version, and its file is found.
        let found = wanted(this, Ask::Returns("getpid", |n| Version::new(n, 0, 0))).find().unwrap();
        assert_eq!(found.version, Version::new(std::process::id(), 0, 0));
        assert!(found.path.unwrap().to_string_lossy().contains("libc"));
    }

    #[test]
    fn a_file_is_found_by_its_address() {
        let maps =
            "1000-2000 r-xp 00000000 08:01 42      /lib/a b.so\n2000-3000 rw-p 00000000 00:00 0 \n\nx\n";
        assert_eq!(file_in(maps, 0x1fff), Some("/lib/a b.so".into()));
        assert_eq!(file_in(maps, 0x2000), None);
        assert_eq!(file_in(maps, 0x3000), None);
    }
}
