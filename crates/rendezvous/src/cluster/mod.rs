//! The rank of this process and the number of processes, from the environment.
//!
//! Every launcher sets other variables. [`discover`] reads those of torchrun, `towers launch`, Open MPI,
//! MPICH, SLURM, Kubernetes' jobs and `TF_CONFIG`. The environment is passed in as a
//! function: [`variable`] is that of this process.

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
