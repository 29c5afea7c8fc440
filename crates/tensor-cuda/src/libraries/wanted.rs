//! A library that is loaded by its file's name, and its version.

use crate::error::{Error, Result};
use crate::version::Version;
use core::ffi::{c_int, c_uint};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A library that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its version.
    pub version: Version,
    /// The file, if the system reports it.
    pub path: Option<PathBuf>,
}

/// The requirements on a library, and what came of looking for it.
pub(crate) struct Wanted {
    pub(super) name: &'static str,
    pub(super) purpose: &'static str,
    /// The beginning of its functions' names.
    pub(super) prefix: &'static str,
    /// The files with the supported versions, the best one first.
    pub(super) files: &'static [File],
    pub(super) oldest: Version,
    /// The CUDA version of the driver, if there is one.
    pub(super) driver: fn() -> Option<Version>,
    /// What mends it, with such a driver.
    pub(super) hint: fn(Option<Version>) -> String,
    pub(super) version: Ask,
    pub(super) state: OnceLock<State>,
}

/// The name of a file.
pub(super) struct File {
    /// The oldest driver that it runs on, by the first number of its CUDA version.
    cuda: u32,
    name: &'static str,
}

impl File {
    /// The file's name on each system.
    pub(super) const fn new(cuda: u32, linux: &'static str, windows: &'static str) -> File {
        File { cuda, name: if cfg!(windows) { windows } else { linux } }
    }
}

/// How a library reports its version.
pub(super) enum Ask {
    /// By a function that returns a number.
    Returns(&'static str, fn(u32) -> Version),
    /// By a function that writes a number and returns 0.
    Writes(&'static str, fn(u32) -> Version),
    /// By a function that writes the two first numbers and returns 0.
    WritesTwo(&'static str),
}

/// The library, if there is one, also if it can't be used.
pub(super) struct State {
    library: Option<libloading::Library>,
    found: Result<Found>,
}

impl Wanted {
    /// Loads the library, if that was not done before, and compares its version with the oldest supported one.
    pub(crate) fn find(&self) -> Result<Found> {
        self.state().found.clone()
    }

    /// The address of a function, or 0. A library that is too old has functions too.
    pub(crate) fn address(&self, function: &str) -> usize {
        self.state().library.as_ref().map_or(0, |library| address(library, function))
    }

    /// What mends it.
    pub(crate) fn hint(&self) -> String {
        (self.hint)((self.driver)())
    }

    fn state(&self) -> &State {
        self.state.get_or_init(|| self.load())
    }

    fn load(&self) -> State {
        let driver = (self.driver)();
        let mut reason = None;
        for file in self.files.iter().filter(|file| driver.is_none_or(|driver| file.cuda <= driver.major())) {
            // SAFETY: loading runs the library's own start code, which NVIDIA's libraries allow at any time and on any
            // thread.
            match unsafe { libloading::Library::new(file.name) } {
                Ok(library) => return State { found: self.look_at(&library), library: Some(library) },
                Err(error) => reason = reason.or(Some(reason_in(&error))),
            }
        }
        State { library: None, found: Err(self.missing(reason.unwrap_or_default())) }
    }

    fn look_at(&self, library: &libloading::Library) -> Result<Found> {
        let (version, function) = self.version.of(library).map_err(|silence| self.missing(silence))?;
        let path = file_at(function);
        self.judge(version, path.as_deref())?;
        Ok(Found { version, path })
    }

    pub(super) fn judge(&self, found: Version, path: Option<&Path>) -> Result<()> {
        if found >= self.oldest {
            return Ok(());
        }
        let path = path.map(Path::to_owned);
        Err(Error::TooOld { library: self.name, found, path, needed: self.oldest, hint: self.hint() })
    }

    fn missing(&self, reason: String) -> Error {
        Error::Missing { library: self.name, reason, hint: self.hint() }
    }
}

/// The address of a library's function, or 0.
fn address(library: &libloading::Library, name: &str) -> usize {
    // SAFETY: the address alone is taken.
    unsafe { library.get::<*const ()>(name) }.map_or(0, |symbol| *symbol as usize)
}

/// The linker's message, which libloading has one error further down.
fn reason_in(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| cause.to_string())
}

impl Ask {
    /// The version and the address of its function, or why there is none.
    fn of(&self, library: &libloading::Library) -> Result<(Version, usize), String> {
        let (Ask::Returns(name, _) | Ask::Writes(name, _) | Ask::WritesTwo(name)) = *self;
        let silent = || format!("{name} does not answer");
        let answer =
            |status: c_uint| if status == 0 { Ok(()) } else { Err(format!("{name} answers {status}")) };
        // SAFETY: the types are those of NVIDIA's headers, the same since the functions exist, and they write to what
        // they are given alone.
        unsafe {
            match *self {
                Ask::Returns(_, decode) => {
                    type Function = unsafe extern "C" fn() -> usize;
                    let function = *library.get::<Function>(name).map_err(|_| silent())?;
                    let number = u32::try_from(function()).map_err(|_| silent())?;
                    Ok((decode(number), function as usize))
                }
                Ask::Writes(_, decode) => {
                    type Function = unsafe extern "C" fn(*mut c_int) -> c_uint;
                    let function = *library.get::<Function>(name).map_err(|_| silent())?;
                    let mut number = 0;
                    answer(function(&raw mut number))?;
                    Ok((decode(u32::try_from(number).map_err(|_| silent())?), function as usize))
                }
                Ask::WritesTwo(_) => {
                    type Function = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_uint;
                    let function = *library.get::<Function>(name).map_err(|_| silent())?;
                    let (mut major, mut minor) = (0, 0);
                    answer(function(&raw mut major, &raw mut minor))?;
                    let pair = u32::try_from(major).ok().zip(u32::try_from(minor).ok());
                    let (major, minor) = pair.ok_or_else(silent)?;
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

    impl Wanted {
        /// The version of a packed number.
        pub(in super::super) fn decode(&self, number: u32) -> Version {
            match self.version {
                Ask::Returns(_, decode) | Ask::Writes(_, decode) => decode(number),
                Ask::WritesTwo(_) => unreachable!("its version is two numbers"),
            }
        }
    }

    /// A library of any name, for the errors of a missing or a wrong one.
    fn wanted(files: &'static [File], version: Ask) -> Wanted {
        let hint = |driver: Option<Version>| format!("install it for {driver:?}");
        let (name, purpose, oldest) = ("Nothing", "a test", Version::new(1, 0, 0));
        let driver = || None;
        Wanted { name, purpose, prefix: "x", files, oldest, driver, hint, version, state: OnceLock::new() }
    }

    #[test]
    fn the_linker_says_why() {
        const NOWHERE: &[File] = &[File::new(0, "libtowers-is-nowhere.so.1", "towers-is-nowhere.dll")];
        let nothing = wanted(NOWHERE, Ask::WritesTwo("version"));
        let error = nothing.find().unwrap_err().to_string();
        assert!(error.starts_with("Nothing can't be loaded ("), "{error}");
        assert!(error.ends_with("; install it for None"), "{error}");
        // Windows' message does not name the file.
        assert!(cfg!(windows) || error.contains("libtowers-is-nowhere.so.1"), "{error}");
        assert_eq!(nothing.address("xversion"), 0);
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    const C: &[File] = &[File::new(13, "libtowers-is-nowhere.so.13", ""), File::new(12, "libc.so.6", "")];

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn a_library_without_the_function_is_no_such_library() {
        let error =
            wanted(C, Ask::Returns("towersGetVersion", |n| Version::new(n, 0, 0))).find().unwrap_err();
        assert!(error.to_string().contains("towersGetVersion does not answer"), "{error}");
        // `getpid` takes nothing and returns a positive number: it passes for a version, and its file is found.
        let this = wanted(C, Ask::Returns("getpid", |n| Version::new(n, 0, 0)));
        let found = this.find().unwrap();
        assert_eq!(found.version, Version::new(std::process::id(), 0, 0));
        assert!(found.path.unwrap().to_string_lossy().contains("libc"));
        assert!(this.address("getpid") != 0 && this.address("towersGetVersion") == 0);
    }

    /// `abs` of no number does not answer 0, since its argument is an address.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn a_refusal_is_said_with_its_number() {
        let error = wanted(C, Ask::Writes("abs", |n| Version::new(n, 0, 0))).find().unwrap_err().to_string();
        assert!(error.contains("abs answers "), "{error}");
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn files_for_a_newer_driver_are_not_taken() {
        let of = |driver| Wanted { driver, ..wanted(C, Ask::Returns("getpid", |n| Version::new(n, 0, 0))) };
        assert!(of(|| Some(Version::new(12, 4, 0))).find().is_ok());
        assert!(of(|| Some(Version::new(13, 0, 0))).find().is_ok());
        let error = of(|| Some(Version::new(11, 8, 0))).find().unwrap_err().to_string();
        assert!(error.contains("install it for Some"), "{error}");
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
