//! Compiles kernels by NVRTC, or loads them from the cache.

use crate::cache::{Cache, Key};
use crate::error::{Error, Result};
use crate::libraries::{NVRTC, driver_version, search_path};
use crate::number::{self, number};
use crate::source::{HEADERS, Source};
use crate::version::Version;
use core::ffi::{c_char, c_int};
use core::fmt;
use cudarc::nvrtc::sys;
use std::ffi::CString;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The target of a kernel file. Architectures are numbers like 90, for compute capability 9.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The machine code of one architecture.
    Cubin(u32),
    /// Code that the driver translates, for this architecture and all later ones.
    Ptx(u32),
}

/// The oldest architecture that our kernels are written for.
const OLDEST: u32 = 75;

impl Target {
    /// The best target for a GPU among NVRTC's architectures. A GPU newer than all of them gets code for the
    /// newest one that the driver translates. `None` for a GPU older than all.
    pub fn of(capability: u32, known: &[u32]) -> Option<Target> {
        if known.contains(&capability) {
            return Some(Target::Cubin(capability));
        }
        known.iter().copied().filter(|&older| older < capability).max().map(Target::Ptx)
    }
}

impl fmt::Display for Target {
    /// As NVRTC's option spells it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Cubin(architecture) => write!(f, "sm_{architecture}"),
            Target::Ptx(architecture) => write!(f, "compute_{architecture}"),
        }
    }
}

/// A kernel file to compile.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// The file.
    pub source: &'static Source,
    /// The format of activations: one of [`FORMATS`](crate::kernels::FORMATS).
    pub format: (&'static str, u32),
    /// What it becomes.
    pub target: Target,
}

impl Job {
    /// NVRTC's options. Divisions and roots follow IEEE, without fast mathematics, so formats differ by
    /// rounding alone. Line numbers are for profilers, and cost no instruction.
    fn options(&self) -> Vec<String> {
        vec![
            format!("--gpu-architecture={}", self.target),
            "--std=c++17".into(),
            "--generate-line-info".into(),
            format!("--define-macro=TOWERS_ACT={}", self.format.1),
        ]
    }

    /// All inputs that decide the result.
    fn key(&self, nvrtc: Version) -> Key {
        let mut parts = vec![format!("NVRTC {nvrtc}"), self.source.name.into(), self.source.text.into()];
        parts.extend(HEADERS.iter().flat_map(|&(name, text)| [name.to_owned(), text.to_owned()]));
        parts.extend(self.options());
        let stem = self.source.name.trim_end_matches(".cu");
        let label = format!("{stem}-{}-{}", self.format.0, self.target);
        Key::new(&label, parts.iter().map(String::as_bytes))
    }

    fn refused(&self, log: String) -> Error {
        let Job { source, format, target } = self;
        Error::Compile { file: source.name.into(), format: format.0, target: target.to_string(), log }
    }
}

/// A compiled kernel file.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// An ELF file for the driver, or PTX with a zero at its end.
    pub image: Vec<u8>,
    /// NVRTC's messages, often empty.
    pub log: String,
}

/// NVRTC, loaded.
#[derive(Clone, Debug)]
pub struct Nvrtc {
    version: Version,
    architectures: Vec<u32>,
}

impl Nvrtc {
    /// Looks for NVRTC.
    ///
    /// # Errors
    /// If it is missing or too old.
    pub fn find() -> Result<Nvrtc> {
        let version = NVRTC.find()?.version;
        let mut count = 0;
        // SAFETY: NVRTC is there and new enough; it writes the count.
        check("nvrtcGetNumSupportedArchs", unsafe {
            number!(sys::nvrtcGetNumSupportedArchs(&raw mut count))
        })?;
        let mut architectures: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: there is room for as many as it has just said.
        check("nvrtcGetSupportedArchs", unsafe {
            number!(sys::nvrtcGetSupportedArchs(architectures.as_mut_ptr()))
        })?;
        Ok(Nvrtc {
            version,
            architectures: architectures.into_iter().filter_map(|x| u32::try_from(x).ok()).collect(),
        })
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The target for a GPU of this name and compute capability (75 for 7.5).
    ///
    /// # Errors
    /// If it is too old for our kernels or for NVRTC, or the driver is too old to translate for it.
    pub fn target(&self, gpu: &str, capability: u32) -> Result<Target> {
        self.target_on(driver_version(), gpu, capability)
    }

    /// A driver loads machine code of every NVRTC with the same first number, and of older ones. It translates
    /// PTX of no newer NVRTC than itself.
    fn target_on(&self, driver: Option<Version>, gpu: &str, capability: u32) -> Result<Target> {
        let (gpu, nvrtc) = (gpu.to_owned(), self.version);
        let oldest = self.architectures.iter().copied().min().unwrap_or(u32::MAX).max(OLDEST);
        let target = Target::of(capability, &self.architectures).filter(|_| capability >= oldest);
        match (target, driver) {
            (None, _) => Err(Error::OldGpu { gpu, capability, oldest, nvrtc }),
            (Some(Target::Ptx(_)), Some(driver)) if driver < nvrtc => {
                Err(Error::NewNvrtc { gpu, nvrtc, driver, hint: NVRTC.hint() })
            }
            (Some(target), _) => Ok(target),
        }
    }

    /// Compiles one file. `more` are further options that don't change the result.
    ///
    /// # Errors
    /// [`Error::Compile`] with NVRTC's messages.
    pub fn compile(&self, job: &Job, more: &[&str]) -> Result<Compiled> {
        let program = Program::new(job)?;
        let options = job.options().into_iter().chain(more.iter().map(|&option| option.into()));
        let options = options.map(|option| text(job, &option)).collect::<Result<Vec<_>>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is there; the options are strings that outlive the call.
        let status = unsafe {
            number!(sys::nvrtcCompileProgram(program.0, pointers.len() as c_int, pointers.as_ptr()))
        };
        let log = program.log();
        if status == sys::nvrtcResult::NVRTC_ERROR_COMPILATION as u32 {
            return Err(job.refused(log));
        }
        check("nvrtcCompileProgram", status).map_err(|error| with_text(error, &log))?;
        Ok(Compiled { image: program.image(job.target)?, log })
    }

    /// Compiles many files on all CPU cores. The results are in the order of the jobs.
    pub fn compile_all(&self, jobs: &[Job], more: &[&str]) -> Vec<Result<Compiled>> {
        // The largest files first, so that none is left over for one core at the end.
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        order.sort_by_key(|&k| std::cmp::Reverse(jobs[k].source.text.len()));
        on_all_cores(&order, |k| self.compile(&jobs[k], more))
    }

    /// The images of these files, from the cache or compiled, and the number of compiled files.
    pub(crate) fn images(&self, cache: &Cache, jobs: &[Job]) -> Result<(Vec<Vec<u8>>, usize)> {
        let keys: Vec<Key> = jobs.iter().map(|job| job.key(self.version)).collect();
        load_or_make(cache, &keys, |missing| {
            let jobs: Vec<Job> = missing.iter().map(|&k| jobs[k]).collect();
            self.compile_all(&jobs, &[]).into_iter().map(|result| Ok(result?.image)).collect()
        })
    }
}

/// Does the work of each number on all CPU cores. They are begun in this order; the results are in the order of
/// the numbers.
pub fn on_all_cores<T: Send>(order: &[usize], work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mine = std::iter::from_fn(|| order.get(next.fetch_add(1, Ordering::Relaxed)));
        mine.map(|&number| (number, work(number))).collect::<Vec<_>>()
    };
    let threads = thread::available_parallelism().map_or(1, |n| n.get()).min(order.len());
    let mut done = thread::scope(|scope| {
        // If a thread can't be started, the others do its work.
        let others = (1..threads).map_while(|_| thread::Builder::new().spawn_scoped(scope, take).ok());
        let others: Vec<_> = others.collect();
        let mut done = take();
        others.into_iter().for_each(|other| match other.join() {
            Ok(more) => done.extend(more),
            Err(panic) => std::panic::resume_unwind(panic),
        });
        done
    });
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The entries of these keys. Missing ones are made, all at once, and stored.
fn load_or_make(
    cache: &Cache,
    keys: &[Key],
    make: impl FnOnce(&[usize]) -> Result<Vec<Vec<u8>>>,
) -> Result<(Vec<Vec<u8>>, usize)> {
    let mut images: Vec<Option<Vec<u8>>> = keys.iter().map(|key| cache.load(key)).collect();
    let missing: Vec<usize> = (0..keys.len()).filter(|&k| images[k].is_none()).collect();
    if !missing.is_empty() {
        for (&k, image) in missing.iter().zip(make(&missing)?) {
            cache.store(&keys[k], &image);
            images[k] = Some(image);
        }
    }
    Ok((images.into_iter().flatten().collect(), missing.len()))
}

/// A program of NVRTC.
struct Program(sys::nvrtcProgram);

impl Program {
    fn new(job: &Job) -> Result<Program> {
        let (source, name) = (text(job, job.source.text)?, text(job, job.source.name)?);
        let column = |of: fn(&(&'static str, &'static str)) -> &'static str| {
            HEADERS.iter().map(|header| text(job, of(header))).collect::<Result<Vec<CString>>>()
        };
        let (names, texts) = (column(|header| header.0)?, column(|header| header.1)?);
        let pointers = |column: &[CString]| column.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let mut program = ptr::null_mut();
        // SAFETY: NVRTC is there; all strings outlive the call, which copies them; both columns are as long as it says.
        let status = unsafe {
            number!(sys::nvrtcCreateProgram(
                &raw mut program,
                source.as_ptr(),
                name.as_ptr(),
                HEADERS.len() as c_int,
                pointers(&texts).as_ptr(),
                pointers(&names).as_ptr(),
            ))
        };
        check("nvrtcCreateProgram", status)?;
        Ok(Program(program))
    }

    /// The messages; empty where there are none.
    fn log(&self) -> String {
        // SAFETY: the program is there; `filled` gives room for as many bytes as NVRTC says.
        let log = unsafe {
            let size = |bytes| number!(sys::nvrtcGetProgramLogSize(self.0, bytes));
            self.filled("nvrtcGetProgramLog", size, |log| number!(sys::nvrtcGetProgramLog(self.0, log)))
        };
        let log = log.unwrap_or_default();
        String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n', ' ']).into()
    }

    fn image(&self, target: Target) -> Result<Vec<u8>> {
        // SAFETY: as above.
        unsafe {
            match target {
                Target::Cubin(_) => {
                    let size = |bytes| number!(sys::nvrtcGetCUBINSize(self.0, bytes));
                    self.filled("nvrtcGetCUBIN", size, |image| number!(sys::nvrtcGetCUBIN(self.0, image)))
                }
                Target::Ptx(_) => {
                    let size = |bytes| number!(sys::nvrtcGetPTXSize(self.0, bytes));
                    self.filled("nvrtcGetPTX", size, |image| number!(sys::nvrtcGetPTX(self.0, image)))
                }
            }
        }
    }

    /// The bytes that the second function writes. The first one counts them.
    ///
    /// # Safety
    /// The functions are such a pair.
    unsafe fn filled(
        &self,
        call: &'static str,
        size: impl FnOnce(*mut usize) -> u32,
        get: impl FnOnce(*mut c_char) -> u32,
    ) -> Result<Vec<u8>> {
        let mut bytes = 0;
        check(call, size(&raw mut bytes))?;
        let mut filled = vec![0u8; bytes];
        check(call, get(filled.as_mut_ptr().cast()))?;
        Ok(filled)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program is there, and it is not used any more. It can't fail but for a program that is not there.
        unsafe { number!(sys::nvrtcDestroyProgram(&raw mut self.0)) };
    }
}

fn text(job: &Job, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| job.refused("a zero byte in its text".into()))
}

/// NVRTC's error with its messages in place of its text, which only repeats the name.
fn with_text(error: Error, log: &str) -> Error {
    let words = log.split_whitespace().collect::<Vec<_>>().join(" ");
    match error {
        Error::Call { call, name, hint, .. } if !words.is_empty() => {
            Error::Call { call, name, text: words.trim_end_matches('.').into(), hint }
        }
        other => other,
    }
}

fn check(call: &'static str, result: u32) -> Result<()> {
    if result == sys::nvrtcResult::NVRTC_SUCCESS as u32 {
        return Ok(());
    }
    // SAFETY: the result came from NVRTC, so it is there. The function is one that gives a result's text, which is its name.
    let name = unsafe { number::words("nvrtcGetErrorString", result) };
    let name = name.unwrap_or_else(|| format!("error {result}"));
    // The more likely cause: NVRTC loads a second library by its name.
    let hint = (result == sys::nvrtcResult::NVRTC_ERROR_BUILTIN_OPERATION_FAILURE as u32)
        .then_some(concat!("have the folder of libnvrtc-builtins in ", search_path!()));
    Err(Error::Call { call, text: name.clone(), name, hint })
}

#[cfg(test)]
mod tests;
