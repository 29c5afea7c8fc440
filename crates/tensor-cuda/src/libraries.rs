//! NVIDIA's libraries on this machine: their versions and files, and hints for missing ones.
//!
//! Each is loaded once, by the name that its version has. CUDA's own libraries are there for CUDA 12 and 13:
//! the driver's version decides which may be taken.

mod wanted;

use crate::error::{self, Result};
use crate::version::Version;
use std::sync::OnceLock;
pub use wanted::Found;
pub(crate) use wanted::Wanted;
use wanted::{Ask, File};

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

/// All libraries, the required ones first.
pub fn libraries() -> Vec<Library> {
    ALL.map(|wanted| Library { name: wanted.name, purpose: wanted.purpose, state: wanted.find() }).into()
}

const ALL: [&Wanted; 5] = [&DRIVER, &NVRTC, &CUBLASLT, &CUDNN, &NCCL];

/// The address of a function of one of the libraries, by its name. 0 if the library is missing, or has no such
/// function.
pub(crate) fn address(function: &str) -> usize {
    library_of(function).map_or(0, |library| library.address(function))
}

fn library_of(function: &str) -> Option<&'static Wanted> {
    let prefixed = ALL.into_iter().filter(|library| function.starts_with(library.prefix));
    prefixed.max_by_key(|library| library.prefix.len())
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
fn install(package: &str) -> String {
    format!(concat!("`pip install {}`, and have its folder in ", search_path!()), package)
}

/// A package of CUDA's own, of a version that the driver supports.
fn part_of_cuda(part: &str, driver: Option<Version>) -> String {
    let (major, minor) = driver.map_or((13, 0), |driver| (driver.major(), driver.minor()));
    install(&match major {
        ..=12 => format!("'{part}-cu12<12.{}'", minor + 1),
        13 => format!("'{part}<13.{}'", minor + 1),
        _ => format!("'{part}<14'"),
    })
}

/// A package with builds for each CUDA.
fn built_for_cuda(part: &str, driver: Option<Version>) -> String {
    install(&format!("{part}-cu{}", if driver.is_some_and(|driver| driver.major() < 13) { 12 } else { 13 }))
}

/// The version of CUDA that the driver supports, if there is a driver that is new enough.
pub(crate) fn driver_version() -> Option<Version> {
    DRIVER.find().ok().map(|found| found.version)
}

/// The GPU's driver. By its headers 12.4 has every function that is called, one of them under an older name.
pub(crate) static DRIVER: Wanted = Wanted {
    name: error::DRIVER,
    purpose: "runs everything",
    prefix: "cu",
    files: &[File::new(0, "libcuda.so.1", "nvcuda.dll")],
    oldest: Version::new(12, 4, 0),
    driver: || None,
    hint: |_| {
        let hint = match cfg!(target_os = "macos") {
            true => "NVIDIA has none to install on macOS",
            false => "install NVIDIA driver 550 or newer",
        };
        hint.into()
    },
    version: Ask::Writes("cuDriverGetVersion", |n| Version::new(n / 1000, n % 1000 / 10, n % 10)),
    state: OnceLock::new(),
};

/// The compiler of kernels.
pub(crate) static NVRTC: Wanted = Wanted {
    name: "NVRTC",
    purpose: "compiles our kernels",
    prefix: "nvrtc",
    files: &[
        File::new(13, "libnvrtc.so.13", "nvrtc64_130_0.dll"),
        File::new(12, "libnvrtc.so.12", "nvrtc64_120_0.dll"),
    ],
    oldest: Version::new(12, 4, 0),
    driver: driver_version,
    hint: |driver| part_of_cuda("nvidia-cuda-nvrtc", driver),
    version: Ask::WritesTwo("nvrtcVersion"),
    state: OnceLock::new(),
};

/// Matrix products.
pub(crate) static CUBLASLT: Wanted = Wanted {
    name: "cuBLASLt",
    purpose: "dense layers; our own kernels do without it",
    prefix: "cublasLt",
    files: &[
        File::new(13, "libcublasLt.so.13", "cublasLt64_13.dll"),
        File::new(12, "libcublasLt.so.12", "cublasLt64_12.dll"),
    ],
    oldest: Version::new(12, 4, 0),
    driver: driver_version,
    hint: |driver| part_of_cuda("nvidia-cublas", driver),
    // Five digits up to 11.10, six since.
    version: Ask::Returns("cublasLtGetVersion", |n| decimal(n, if n < 100_000 { 1000 } else { 10_000 })),
    state: OnceLock::new(),
};

/// Convolutions.
pub(crate) static CUDNN: Wanted = Wanted {
    name: "cuDNN",
    purpose: "convolutions; our own kernels do without it",
    prefix: "cudnn",
    files: &[File::new(0, "libcudnn.so.9", "cudnn64_9.dll")],
    oldest: Version::new(9, 0, 0),
    driver: driver_version,
    hint: |driver| built_for_cuda("nvidia-cudnn", driver),
    // Four digits up to 8.9, five since.
    version: Ask::Returns("cudnnGetVersion", |n| decimal(n, if n < 10_000 { 1000 } else { 10_000 })),
    state: OnceLock::new(),
};

/// Sums across GPUs.
pub(crate) static NCCL: Wanted = Wanted {
    name: "NCCL",
    purpose: "sums across GPUs",
    prefix: "nccl",
    files: &[File::new(0, "libnccl.so.2", "nccl.dll")],
    // Older ones have every function, but keep the state of a background job in memory of the calling thread
    // (`ncclGroupJobMain` in group.cc). So a thread can't join several devices to a group.
    oldest: Version::new(2, 27, 0),
    driver: driver_version,
    hint: |driver| match cfg!(windows) {
        true => "NVIDIA has none to install on Windows: sums travel through host memory".into(),
        false => built_for_cuda("nvidia-nccl", driver),
    },
    version: Ask::Writes("ncclGetVersion", |n| decimal(n, if n < 10_000 { 1000 } else { 10_000 })),
    state: OnceLock::new(),
};

/// A version in NVIDIA's packed form: two digits for the patch, the rest below `major` for the minor number.
fn decimal(n: u32, major: u32) -> Version {
    Version::new(n / major, n % major / 100, n % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_nvidia_packs_them() {
        let decode = |wanted: &Wanted, number| wanted.decode(number).to_string();
        assert_eq!(decode(&DRIVER, 13000), "13.0");
        assert_eq!(decode(&DRIVER, 12080), "12.8");
        assert_eq!(decode(&CUBLASLT, 130_002), "13.0.2");
        assert_eq!(decode(&CUBLASLT, 120_402), "12.4.2");
        assert_eq!(decode(&CUBLASLT, 11_401), "11.4.1");
        assert_eq!(decode(&CUDNN, 91_900), "9.19.0");
        assert_eq!(decode(&CUDNN, 8_907), "8.9.7");
        assert_eq!(decode(&NCCL, 22_809), "2.28.9");
        assert_eq!(decode(&NCCL, 2_804), "2.8.4");
    }

    #[test]
    fn an_old_library_is_refused_with_both_versions() {
        assert_eq!(DRIVER.judge(Version::new(12, 4, 0), None), Ok(()));
        assert_eq!(CUDNN.judge(Version::new(9, 0, 0), None), Ok(()));
        assert_eq!(CUDNN.judge(Version::new(10, 0, 0), None), Ok(()));
        let error = DRIVER.judge(Version::new(12, 3, 0), None).unwrap_err().to_string();
        assert!(
            error.contains("12.3 is too old, for at least 12.4 is needed; install NVIDIA driver 550"),
            "{error}"
        );
        assert!(CUDNN.judge(Version::new(8, 9, 9), None).is_err());
        assert!(NCCL.judge(Version::new(2, 26, 6), None).is_err());
        assert_eq!(NCCL.judge(Version::new(2, 27, 3), None), Ok(()));
    }

    /// No hint names a package that the driver is too old for.
    #[test]
    fn hints_name_packages_that_the_driver_supports() {
        for (driver, packages) in [
            (
                None,
                ["'nvidia-cuda-nvrtc<13.1'", "'nvidia-cublas<13.1'", "nvidia-cudnn-cu13", "nvidia-nccl-cu13"],
            ),
            (
                Some(Version::new(12, 8, 0)),
                [
                    "'nvidia-cuda-nvrtc-cu12<12.9'",
                    "'nvidia-cublas-cu12<12.9'",
                    "nvidia-cudnn-cu12",
                    "nvidia-nccl-cu12",
                ],
            ),
            (
                Some(Version::new(13, 2, 0)),
                ["'nvidia-cuda-nvrtc<13.3'", "'nvidia-cublas<13.3'", "nvidia-cudnn-cu13", "nvidia-nccl-cu13"],
            ),
            (
                Some(Version::new(14, 1, 0)),
                ["'nvidia-cuda-nvrtc<14'", "'nvidia-cublas<14'", "nvidia-cudnn-cu13", "nvidia-nccl-cu13"],
            ),
        ] {
            for (library, package) in [&NVRTC, &CUBLASLT, &CUDNN, &NCCL].into_iter().zip(packages) {
                let hint = (library.hint)(driver);
                let is_there = hint.starts_with(&format!("`pip install {package}`, and have its folder in "));
                assert!(is_there || hint.contains("Windows"), "{driver:?}: {hint}");
            }
        }
    }

    #[test]
    fn functions_belong_to_the_library_of_their_longest_prefix() {
        for (function, library) in
            [("cuInit", "cu"), ("cudnnCreate", "cudnn"), ("cublasLtCreate", "cublasLt"), ("ncclSend", "nccl")]
        {
            assert_eq!(library_of(function).map(|library| library.prefix), Some(library));
        }
        assert!(library_of("printf").is_none());
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
}
