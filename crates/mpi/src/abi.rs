//! The functions of MPI that this crate calls, and what differs from one binary interface of MPI to another:
//! handles, constants, and the layout of a status.
//!
//! The interfaces are those of Open MPI 4 and 5, of MPICH (also Intel MPI, Cray MPICH and MVAPICH), and the
//! standard one of MPI 5. `tests/mpi/headers.rs` compares the constants with real headers.
#![allow(unsafe_code, reason = "the bindings of MPI")]

use core::ffi::{c_char, c_int, c_void};
use libloading::Library;

/// A handle of a communicator, a type or a request: a pointer, or with MPICH an int in the low half.
///
/// A function that expects an int in a register reads the low half alone, on every processor that this crate
/// supports. One that writes an int through a pointer writes the low half, on little-endian machines.
pub(crate) type Handle = usize;

/// The result of a receive or a probe. It is larger than that of any interface.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(crate) struct Status([c_int; 16]);

macro_rules! functions {
    ($(#[$doc:meta])* $set:ident: $($name:ident($($argument:ty),*);)*) => {
        $(#[$doc])*
        #[allow(non_snake_case, reason = "the names of the standard")]
        pub(crate) struct $set {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl $set {
            /// The functions of this library, or the name of one that it lacks.
            pub(crate) fn of(library: &Library) -> Result<$set, &'static str> {
                Ok($set {
                    $(
                        // SAFETY: the standard gives the function these arguments, and `Handle` says why its
                        // type serves all interfaces. The library is never unloaded.
                        $name: *unsafe { library.get(stringify!($name).as_bytes()) }
                            .map_err(|_| stringify!($name))?,
                    )*
                })
            }
        }
    };
}

functions! {
    /// The functions. All return an error code, 0 for success.
    Functions:
    MPI_Initialized(*mut c_int);
    MPI_Init_thread(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    MPI_Finalize();
    MPI_Abort(Handle, c_int);
    MPI_Comm_rank(Handle, *mut c_int);
    MPI_Comm_size(Handle, *mut c_int);
    MPI_Comm_split_type(Handle, c_int, c_int, Handle, *mut Handle);
    MPI_Comm_free(*mut Handle);
    MPI_Buffer_attach(*mut c_void, c_int);
    MPI_Bsend(*const c_void, c_int, Handle, c_int, c_int, Handle);
    MPI_Iprobe(c_int, c_int, Handle, *mut c_int, *mut Status);
    MPI_Get_count(*const Status, Handle, *mut c_int);
    MPI_Recv(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Status);
    MPI_Isend(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    MPI_Irecv(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    MPI_Test(*mut Handle, *mut c_int, *mut Status);
}

functions! {
    /// The functions with which the other processes continue after one was lost. Open MPI has them since version 5:
    /// <https://docs.open-mpi.org/en/v5.0.x/features/ulfm.html>.
    Recovery:
    MPI_Comm_set_errhandler(Handle, Handle);
    MPIX_Comm_revoke(Handle);
    MPIX_Comm_shrink(Handle, *mut Handle);
}

/// What differs between interfaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abi {
    /// The communicator of all processes.
    pub(crate) world: Handle,
    /// The type of bytes.
    pub(crate) byte: Handle,
    /// No hints.
    pub(crate) no_info: Handle,
    /// The error handler that lets functions return their errors; only of Open MPI.
    pub(crate) errors_return: Handle,
    /// Any rank.
    pub(crate) any_source: c_int,
    /// The level of threads at which one thread makes all calls.
    pub(crate) funneled: c_int,
    /// The processes of one machine.
    pub(crate) shared: c_int,
    /// Where the rank stands in a status, counted in ints.
    pub(crate) source_at: usize,
}

impl Abi {
    /// The interface of MPICH since 3.1: <https://www.mpich.org/abi/>.
    pub(crate) const MPICH: Abi = Abi {
        world: 0x4400_0000,
        byte: 0x4c00_010d,
        no_info: 0x1c00_0000,
        errors_return: 0,
        any_source: -2,
        funneled: 1,
        shared: 1,
        source_at: 2,
    };

    /// The interface of the MPI standard since version 5, chapter 20.
    pub(crate) const STANDARD: Abi = Abi {
        world: 0x101,
        byte: 0x247,
        no_info: 0x130,
        errors_return: 0,
        any_source: -1,
        funneled: 1024,
        shared: 221,
        source_at: 0,
    };

    /// The interface of Open MPI since 4.0, but for its handles.
    pub(crate) const OPEN_MPI: Abi = Abi {
        world: 0,
        byte: 0,
        no_info: 0,
        errors_return: 0,
        any_source: -1,
        funneled: 1,
        shared: 0,
        source_at: 0,
    };

    /// The interface of Open MPI, if the library is one: its handles are the addresses of global variables.
    pub(crate) fn open_mpi(library: &Library) -> Option<Abi> {
        let address = |name: &[u8]| {
            // SAFETY: only the address is taken, and the library is never unloaded.
            let symbol = unsafe { library.get::<*const c_void>(name).ok()?.try_as_raw_ptr() };
            Some(symbol?.addr())
        };
        Some(Abi {
            world: address(b"ompi_mpi_comm_world")?,
            byte: address(b"ompi_mpi_byte")?,
            no_info: address(b"ompi_mpi_info_null")?,
            errors_return: address(b"ompi_mpi_errors_return")?,
            ..Abi::OPEN_MPI
        })
    }

    /// The sender of a message.
    pub(crate) fn source(&self, status: &Status) -> usize {
        usize::try_from(status.0[self.source_at]).unwrap_or_default()
    }
}
