//! NVIDIA's NCCL.
//!
//! Source: NVIDIA's "NCCL User Guide" (ncclCommInitRankConfig, ncclConfig_t, "Fault Tolerance", "Group Calls").
//!
//! Not yet tested on a GPU: everything except that the library loads, draws ids and reports errors.

use super::calls::{self, Calls, Comm, MARKS, Op, Status, UniqueId};
use crate::driver::{Driver, Mark, Ptr};
use crate::libraries::NCCL;
use crate::number::{self, number};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use cudarc::nccl::sys;
use std::sync::Arc;
use towers_program::{Error, Result};

/// NCCL, loaded, with a device's stream.
pub(crate) struct Installed {
    marks: Vec<Mark>,
    driver: Arc<dyn Driver>,
}

/// NCCL's value for an unset setting.
const UNSET: c_int = c_int::MIN;

/// The version of our settings. Fields are only added at the end: an older library reads the beginning, and a
/// newer one takes its defaults for missing fields.
const VERSION: u32 = 22_800;

/// Whether NCCL is installed and new enough.
///
/// # Errors
/// The cause, in one sentence.
pub fn available() -> crate::Result<()> {
    NCCL.find().map(drop)
}

/// Draws an id for a group.
///
/// # Errors
/// If NCCL is missing, or can't listen for the other ranks.
pub fn unique_id() -> Result<UniqueId> {
    available().map_err(|error| error.of_device("NCCL"))?;
    let mut id = sys::ncclUniqueId { internal: [0; UniqueId::BYTES] };
    // SAFETY: the library is there, and new enough to have every function that this file calls; it writes the id.
    match Status::from(unsafe { number!(sys::ncclGetUniqueId(&raw mut id)) }) {
        Status::Failed(why) => {
            let message = format!("ncclGetUniqueId failed: {}", explain(ptr::null_mut(), why));
            Err(Error::Device { device: "NCCL".into(), message })
        }
        _ => Ok(UniqueId::from_bytes(id.internal.map(|byte| byte as u8))),
    }
}

impl Installed {
    pub(crate) fn on(driver: &Arc<dyn Driver>) -> Result<Installed> {
        available().map_err(|error| error.of_device(driver.name()))?;
        let marks = (0..MARKS).map(|_| Mark::new(driver)).collect::<Result<_>>()?;
        Ok(Installed { marks, driver: Arc::clone(driver) })
    }
}

fn raw(comm: Comm) -> sys::ncclComm_t {
    comm.0 as sys::ncclComm_t
}

fn rank_of(rank: usize) -> c_int {
    // A group of more is refused by NCCL, as one with a negative rank is.
    c_int::try_from(rank).unwrap_or(-1)
}

/// A communicator whose calls return before they are done.
fn config() -> sys::ncclConfig_t {
    sys::ncclConfig_t {
        size: size_of::<sys::ncclConfig_t>(),
        magic: 0xcafe_beef,
        version: VERSION,
        blocking: 0,
        cgaClusterSize: UNSET,
        minCTAs: UNSET,
        maxCTAs: UNSET,
        netName: ptr::null(),
        splitShare: UNSET,
        trafficClass: UNSET,
        commName: ptr::null(),
        collnetEnable: UNSET,
        CTAPolicy: UNSET,
        shrinkShare: UNSET,
        nvlsCTAs: UNSET,
        nChannelsPerNetPeer: UNSET,
        nvlinkCentricSched: UNSET,
    }
}

fn explain(comm: sys::ncclComm_t, why: u32) -> String {
    // SAFETY: the library is there, and the function is one that gives an answer's text.
    let general = unsafe { number::words("ncclGetErrorString", why) };
    let general = general.unwrap_or_else(|| format!("error {why}"));
    type LastError = unsafe extern "C" fn(sys::ncclComm_t) -> *const c_char;
    // SAFETY: the type is that of the function. It returns a string with its end, or null.
    let last = unsafe {
        let last = number::function::<LastError>("ncclGetLastError").map_or(ptr::null(), |last| last(comm));
        (!last.is_null()).then(|| CStr::from_ptr(last).to_string_lossy().trim().to_owned())
    };
    last.filter(|last| !last.is_empty()).map_or(general.clone(), |last| format!("{general}: {last}"))
}

impl Calls for Installed {
    fn enter(&self) -> Result<()> {
        self.driver.make_current()
    }

    fn init(&self, id: &UniqueId, world: usize, rank: usize) -> (Status, Comm) {
        let id = sys::ncclUniqueId { internal: id.as_bytes().map(|byte| byte as c_char) };
        let (mut comm, mut config) = (ptr::null_mut(), config());
        // SAFETY: the library is there, and the device is current. It writes the communicator at once; the settings it copies.
        let result = unsafe {
            number!(sys::ncclCommInitRankConfig(
                &raw mut comm,
                rank_of(world),
                id,
                rank_of(rank),
                &raw mut config
            ))
        };
        (result.into(), Comm(comm as usize))
    }

    fn progress(&self, comm: Comm) -> Status {
        let mut state = calls::SUCCESS;
        // SAFETY: a `Comm` is what `init` gave, until `destroy` or `abort` takes it. It writes the state.
        match Status::from(unsafe { number!(sys::ncclCommGetAsyncError(raw(comm), (&raw mut state).cast())) })
        {
            Status::Done => state.into(),
            failed => failed,
        }
    }

    fn group_start(&self) -> Status {
        // SAFETY: the library is there.
        unsafe { number!(sys::ncclGroupStart()) }.into()
    }

    fn group_end(&self) -> Status {
        // SAFETY: as above; a group is open.
        unsafe { number!(sys::ncclGroupEnd()) }.into()
    }

    unsafe fn ask(&self, comm: Comm, op: Op, aside: bool) -> Status {
        let stream = if aside { self.driver.side_stream() } else { self.driver.stream() };
        let (comm, stream) = (raw(comm), stream.cast());
        let (f32, sum) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclSum);
        let at = |run: Ptr| run.0 as *mut c_void;
        // SAFETY: the communicator as in `progress`, the runs as the caller says. Sum, broadcast and gathering may work in place.
        let result = unsafe {
            match op {
                Op::AllReduce { run, len } => {
                    number!(sys::ncclAllReduce(at(run), at(run), len, f32, sum, comm, stream))
                }
                Op::Broadcast { run, len, root } => {
                    number!(sys::ncclBroadcast(at(run), at(run), len, f32, rank_of(root), comm, stream))
                }
                Op::AllGather { own, run, len } => {
                    number!(sys::ncclAllGather(at(own), at(run), len, f32, comm, stream))
                }
                Op::Send { run, len, to } => {
                    number!(sys::ncclSend(at(run), len, f32, rank_of(to), comm, stream))
                }
                Op::Receive { run, len, from } => {
                    number!(sys::ncclRecv(at(run), len, f32, rank_of(from), comm, stream))
                }
            }
        };
        result.into()
    }

    fn finalize(&self, comm: Comm) -> Status {
        // SAFETY: as in `progress`.
        unsafe { number!(sys::ncclCommFinalize(raw(comm))) }.into()
    }

    fn destroy(&self, comm: Comm) -> Status {
        // SAFETY: as in `progress`; it has no other user.
        unsafe { number!(sys::ncclCommDestroy(raw(comm))) }.into()
    }

    fn abort(&self, comm: Comm) -> Status {
        // SAFETY: as in `destroy`.
        unsafe { number!(sys::ncclCommAbort(raw(comm))) }.into()
    }

    fn explain(&self, comm: Option<Comm>, why: u32) -> String {
        explain(comm.map_or(ptr::null_mut(), raw), why)
    }

    fn put_mark(&self, number: usize) -> Result<()> {
        self.marks.get(number).map_or(Ok(()), Mark::put)
    }

    fn has_passed(&self, number: usize) -> Result<bool> {
        self.marks.get(number).map_or(Ok(true), Mark::has_passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields that every version reads are at the same place in all of NVIDIA's headers since 2.14.
    #[test]
    fn the_settings_begin_as_in_every_version() {
        let settings = config();
        assert_eq!(core::mem::offset_of!(sys::ncclConfig_t, magic), 8);
        assert_eq!(core::mem::offset_of!(sys::ncclConfig_t, version), 12);
        assert_eq!(core::mem::offset_of!(sys::ncclConfig_t, blocking), 16);
        assert_eq!((settings.size, settings.blocking), (80, 0));
    }

    /// Without a GPU NCCL still draws ids, if it is installed.
    #[test]
    fn ids_differ_and_are_not_shown() {
        if let Err(error) = available() {
            println!("SKIPPED: ids of NCCL: {error}");
            return;
        }
        match (unique_id(), unique_id()) {
            (Ok(one), Ok(other)) => {
                assert_ne!(one, other);
                assert_eq!(UniqueId::from_bytes(*one.as_bytes()), one);
                assert_eq!(format!("{one:?}"), "UniqueId");
                let unknown = explain(ptr::null_mut(), sys::ncclResult_t::ncclInvalidUsage as u32);
                assert!(unknown.starts_with("invalid usage"), "{unknown}");
            }
            (Err(error), _) | (_, Err(error)) => {
                assert!(error.to_string().contains("ncclGetUniqueId failed: "), "{error}");
                println!("SKIPPED: ids of NCCL: {error}");
            }
        }
    }

    /// The library itself, if it is installed, with a device that it must refuse, with a reason.
    #[cfg(feature = "emulation")]
    #[test]
    fn a_refusal_is_a_sentence_of_nccls_own() {
        use crate::Cuda;
        use crate::nccl::session::{Join, Session};
        use std::time::Duration;
        let cuda = Cuda::emulated(Default::default());
        let installed = cuda.and_then(|cuda| Installed::on(cuda.driver()));
        let id = unique_id();
        let (Ok(installed), Ok(id)) = (installed, id) else {
            println!("SKIPPED: refusals of NCCL: it is not installed, or there is no C++ compiler");
            return;
        };
        if crate::available().is_ok() {
            println!("SKIPPED: refusals of NCCL: there is a GPU, which it would take");
            return;
        }
        let join = Join { id, rank: 0, world: 1, patience: Duration::from_secs(60), failed: None };
        let session = Session::begin(Arc::new(installed), "a test".into(), join);
        let joined = session.and_then(|session| session.joined());
        let error = joined.unwrap_err().to_string();
        println!("{error}");
        assert!(error.starts_with("a test: ncclCommInitRankConfig failed: "), "{error}");
        assert!(error.len() > 60, "NCCL's own words: {error}");
    }
}
