//! Errors before there is a device: of the machine, its driver and libraries, or of a kernel.

use crate::version::Version;
use std::path::PathBuf;

/// The result of looking for a GPU, a library, or of compiling a kernel.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The name of the driver in errors.
pub(crate) const DRIVER: &str = "the NVIDIA driver";

/// A missing or broken part of the machine, in one sentence with a hint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The dynamic linker does not find a library, or refuses it.
    #[error("{library} can't be loaded ({reason}); {hint}")]
    Missing {
        /// The library's name.
        library: &'static str,
        /// The linker's message.
        reason: String,
        /// What mends it.
        hint: String,
    },
    /// A library is too old.
    #[error("{library} {found}{} is too old, for at least {needed} is needed; {hint}", within(.path))]
    TooOld {
        /// The library's name.
        library: &'static str,
        /// Its version.
        found: Version,
        /// The file, if the system reports it.
        path: Option<PathBuf>,
        /// The oldest supported version.
        needed: Version,
        /// What mends it.
        hint: String,
    },
    /// A call into the driver or NVRTC failed.
    #[error("{call} failed with {name}: {text}{}", remedy(.hint))]
    Call {
        /// The function.
        call: &'static str,
        /// The error's name, as `CUDA_ERROR_NO_DEVICE`.
        name: String,
        /// What it means.
        text: String,
        /// A hint, if one is known.
        hint: Option<&'static str>,
    },
    /// A GPU is there, and can't be used.
    #[error("{gpu} is there, but can't be used: {why}")]
    Unusable {
        /// The GPU's name, or a description.
        gpu: String,
        /// The reason, with what mends it.
        why: Box<Error>,
    },
    /// A GPU that this machine does not have.
    #[error("there is no GPU {gpu}; {}", present(.gpus))]
    NoSuchGpu {
        /// The given number.
        gpu: usize,
        /// The names of the GPUs, by number.
        gpus: Vec<String>,
    },
    /// A GPU that is too old for our kernels, or for which NVRTC makes no code any more.
    #[error(
        "{gpu} has compute capability {}.{}, but at least {}.{} is needed with NVRTC {nvrtc}; use a newer GPU",
        .capability / 10, .capability % 10, .oldest / 10, .oldest % 10
    )]
    OldGpu {
        /// The GPU's name.
        gpu: String,
        /// Its compute capability, 75 for 7.5.
        capability: u32,
        /// The oldest that is supported.
        oldest: u32,
        /// NVRTC's version.
        nvrtc: Version,
    },
    /// A GPU that NVRTC does not know. The driver is too old to translate NVRTC's code for it.
    #[error(
        "NVRTC {nvrtc} has no code for {gpu} but PTX, which a driver of CUDA {driver} is too old to translate; update the driver, \
         or {hint}"
    )]
    NewNvrtc {
        /// The GPU's name.
        gpu: String,
        /// NVRTC's version.
        nvrtc: Version,
        /// The driver's version of CUDA.
        driver: Version,
        /// The package with an older NVRTC.
        hint: String,
    },
    /// A kernel file that NVRTC rejects.
    #[error("{file} does not compile for {target} with {format} activations:\n{log}")]
    Compile {
        /// The file in `kernels/`.
        file: String,
        /// The format of activations.
        format: &'static str,
        /// The architecture.
        target: String,
        /// What NVRTC says.
        log: String,
    },
}

fn remedy(hint: &Option<&'static str>) -> String {
    hint.map(|hint| format!("; {hint}")).unwrap_or_default()
}

fn within(path: &Option<PathBuf>) -> String {
    path.as_ref().map(|path| format!(" in {}", path.display())).unwrap_or_default()
}

fn present(gpus: &[String]) -> String {
    let one = |(number, name): (usize, &String)| format!("{number} ({name})");
    match gpus {
        [] => "the driver sees none".into(),
        [name] => format!("the only one is {}", one((0, name))),
        _ => format!("there are {}", gpus.iter().enumerate().map(one).collect::<Vec<_>>().join(", ")),
    }
}

impl Error {
    /// Whether no GPU can be used here, so that another device must do.
    pub fn lacks_gpu(&self) -> bool {
        match self {
            Error::Missing { library, .. } => *library == DRIVER,
            Error::Call { name, .. } => name == "CUDA_ERROR_NO_DEVICE",
            Error::Unusable { .. } | Error::OldGpu { .. } => true,
            _ => false,
        }
    }

    /// The same as an error of a device.
    pub(crate) fn of_device(self, device: impl Into<String>) -> towers_program::Error {
        towers_program::Error::Device { device: device.into(), message: self.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_a_sentence_with_its_values() {
        let name = |name: &str| name.to_owned();
        let too_old = Error::TooOld {
            library: "cuDNN",
            found: Version::new(8, 9, 7),
            path: Some("/lib/libcudnn.so.8".into()),
            needed: Version::new(9, 10, 0),
            hint: "`pip install -U nvidia-cudnn-cu13`".into(),
        };
        assert_eq!(
            too_old.to_string(),
            "cuDNN 8.9.7 in /lib/libcudnn.so.8 is too old, for at least 9.10.0 is needed; `pip install -U nvidia-cudnn-cu13`"
        );
        let none = Error::NoSuchGpu { gpu: 2, gpus: vec![] };
        assert_eq!(none.to_string(), "there is no GPU 2; the driver sees none");
        let one = Error::NoSuchGpu { gpu: 2, gpus: vec![name("A")] };
        assert_eq!(one.to_string(), "there is no GPU 2; the only one is 0 (A)");
        let two = Error::NoSuchGpu { gpu: 2, gpus: vec![name("A"), name("B")] };
        assert_eq!(two.to_string(), "there is no GPU 2; there are 0 (A), 1 (B)");
        let old = Error::OldGpu { gpu: name("A"), capability: 70, oldest: 75, nvrtc: Version::new(13, 0, 0) };
        assert!(
            old.to_string().contains("compute capability 7.0, but at least 7.5 is needed with NVRTC 13.0"),
            "{old}"
        );
        let unusable = Error::Unusable { gpu: name("A"), why: Box::new(two) };
        assert!(
            unusable.to_string().starts_with("A is there, but can't be used: there is no GPU 2"),
            "{unusable}"
        );
        let call = Error::Call { call: "cuInit", name: name("X"), text: name("no"), hint: Some("try") };
        assert_eq!(call.to_string(), "cuInit failed with X: no; try");
    }
}
