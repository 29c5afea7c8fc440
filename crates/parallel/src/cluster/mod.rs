//! The rank of this process and the number of processes, from the environment.
//!
//! Every launcher sets other variables. [`discover`] reads those of torchrun, `towers launch`, Open MPI,
//! MPICH, SLURM, Kubernetes' jobs and `TF_CONFIG`. The environment is passed in as a
//! function: [`variable`] is that of this process.
//!
//! ```
//! use parallel::cluster::discover;
//!
//! let variables = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
//! let env = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
//! let place = discover(env)?.expect("Open MPI started this process");
//! assert_eq!((place.rank, place.world), (1, 4));
//! assert_eq!(discover(|_| None)?, None);
//! # Ok::<(), parallel::Error>(())
//! ```

mod discover;
mod environment;
mod hostlist;
mod launchers;
mod place;
mod slurm;
mod tf_config;

pub use discover::{discover, is_restarted, variable};
pub use place::{Place, Source};

pub(crate) use environment::Environment;
