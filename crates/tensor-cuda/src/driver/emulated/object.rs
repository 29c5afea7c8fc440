//! A compiled kernel file in this process.

use super::compiler::{self, Unit};
use super::error::error;
use super::order::Sense;
use crate::driver::{Arg, Geometry};
use crate::format::Format;
use crate::lock::lock;
use crate::source::{FORMATS, Source};
use libloading::Library;
use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use towers_program::Result;

/// `emulation::Launch` of emulation/launch.h.
#[repr(C)]
struct Launch {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    sense: Sense,
    draws: u64,
    allocations: *const Allocation,
    allocation_count: u32,
}

/// `emulation::Allocation` of emulation/machine.h: an address and a number of bytes.
#[repr(C)]
pub(super) struct Allocation(pub u64, pub u64);

type LaunchFn = unsafe extern "C" fn(u32, *const Launch, *const u64) -> *const c_char;
type SignatureFn = unsafe extern "C" fn(u32) -> *const c_char;

/// A loaded object. It is never unloaded: its threads' stacks live in it.
pub(super) struct Object {
    path: PathBuf,
    signatures: Vec<Vec<u8>>,
    launch: LaunchFn,
    /// One launch at a time: the threads' state is static.
    busy: Mutex<()>,
}

/// An object that may not be compiled yet.
type Slot = Arc<Mutex<Option<Arc<Object>>>>;

impl Object {
    /// The object of a kernel file. All devices of the process share it, and the first user compiles it.
    pub(super) fn of(source: &Source, format: Format, races: bool) -> Result<Arc<Object>> {
        static LOADED: OnceLock<Mutex<HashMap<PathBuf, Slot>>> = OnceLock::new();
        let unit = Unit::new(source, FORMATS[number_of(format)], races)?;
        let slot: Slot =
            lock(LOADED.get_or_init(Mutex::default)).entry(unit.path().into()).or_default().clone();
        let mut loaded = lock(&slot);
        if let Some(object) = &*loaded {
            return Ok(object.clone());
        }
        unit.build()?;
        let object = Arc::new(Object::load(unit.path(), source.kernels.len())?);
        *loaded = Some(object.clone());
        Ok(object)
    }

    fn load(path: &Path, kernels: usize) -> Result<Object> {
        let fail = |e: libloading::Error| error(format!("{} cannot be loaded: {e}", path.display()));
        // SAFETY: it is what we compiled; it runs nothing when it is loaded.
        let library = unsafe { Library::new(path) }.map_err(fail)?;
        // SAFETY: emulation/launch.h defines both with these types.
        let (launch, signature) = unsafe {
            let launch: LaunchFn = *library.get(b"towers_launch").map_err(fail)?;
            let signature: SignatureFn = *library.get(b"towers_signature").map_err(fail)?;
            (launch, signature)
        };
        core::mem::forget(library);
        // SAFETY: the object has so many kernels, and a signature is a constant string of C.
        let signature_of = |kernel| unsafe { CStr::from_ptr(signature(kernel)) }.to_bytes().to_vec();
        let signatures = (0..kernels as u32).map(signature_of).collect();
        Ok(Object { path: path.into(), signatures, launch, busy: Mutex::default() })
    }

    /// Whether arguments match the kernel's parameters.
    pub(super) fn check_args(&self, name: &str, kernel: u32, args: &[Arg]) -> Result<()> {
        let parameters = &self.signatures[kernel as usize];
        if parameters.len() != args.len() {
            return Err(error(format!(
                "kernel {name} has {} parameters and was given {} arguments",
                parameters.len(),
                args.len()
            )));
        }
        for (place, (parameter, arg)) in parameters.iter().zip(args).enumerate() {
            let (wanted, given) = (name_of(*parameter), name_of(letter(arg)));
            if wanted != given {
                return Err(error(format!(
                    "kernel {name}: argument {place} is {given} and the parameter {wanted}"
                )));
            }
        }
        Ok(())
    }

    /// Runs a kernel to its end. It may access these allocations, which are sorted.
    ///
    /// # Safety
    /// The arguments match the kernel's parameters.
    pub(super) unsafe fn launch(
        &self,
        name: &str,
        kernel: u32,
        geometry: &Geometry,
        args: &[Arg],
        (sense, draws): (Sense, u64),
        allocations: &[Allocation],
    ) -> Result<()> {
        let words: Vec<u64> = args.iter().map(|arg| arg.word()).collect();
        let launch = Launch {
            grid: geometry.grid,
            block: geometry.block,
            shared: geometry.shared,
            sense,
            draws,
            allocations: allocations.as_ptr(),
            allocation_count: allocations.len() as u32,
        };
        let _alone = lock(&self.busy);
        // SAFETY: the kernel is there, it finds a word for each parameter, and no other thread is in the object.
        let message = unsafe { (self.launch)(kernel, &launch, words.as_ptr()) };
        if message.is_null() {
            return Ok(());
        }
        // SAFETY: it is a string of C, which stays until the next launch.
        let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
        Err(error(format!("kernel {name}: {}", with_lines(&message, &self.path))))
    }
}

/// The message with files and lines in place of `{0x12ab}`, a place in the object's code.
fn with_lines(message: &str, object: &Path) -> String {
    let mut parts = message.split('{');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (place, rest) = part.split_once('}').unwrap_or((part, ""));
        text += &compiler::lines(object, place).unwrap_or_else(|| place.to_owned());
        text += rest;
    }
    text
}

/// A format's place in [`FORMATS`].
fn number_of(format: Format) -> usize {
    match format {
        Format::F32 => 0,
        Format::Bf16 => 1,
        Format::F16 => 2,
    }
}

/// The letter of emulation/launch.h for an argument's type.
fn letter(arg: &Arg) -> u8 {
    match arg {
        Arg::Ptr(_) => b'p',
        Arg::U32(_) => b'u',
        Arg::I32(_) => b'i',
        Arg::U64(_) => b'U',
        Arg::F32(_) => b'f',
    }
}

fn name_of(letter: u8) -> &'static str {
    match letter {
        b'p' => "a pointer",
        b'u' => "u32",
        b'i' => "i32",
        b'U' => "u64",
        _ => "f32",
    }
}

/// Whether a GPU takes the geometry. More than 48 KiB of dynamic shared memory must be requested from the
/// real driver; Hopper allows 227.
pub(super) fn check_geometry(name: &str, geometry: &Geometry) -> Result<()> {
    let Geometry { grid, block, shared } = *geometry;
    let threads: u64 = block.iter().map(|n| u64::from(*n)).product();
    let fits =
        |sizes: [u32; 3], most: [u32; 3]| sizes.iter().zip(most).all(|(n, most)| (1..=most).contains(n));
    let whole = fits(grid, [0x7fff_ffff, 65535, 65535]) && fits(block, [1024, 1024, 64]);
    if whole && threads <= 1024 && shared <= 227 << 10 {
        return Ok(());
    }
    Err(error(format!(
        "kernel {name}: no GPU runs a grid of {grid:?} blocks of {block:?} threads with {shared} bytes"
    )))
}
