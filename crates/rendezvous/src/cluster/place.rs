use core::fmt;

/// The place of this process among those of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The rank of this process, from 0. Rank 0 writes the files and the output.
    pub rank: usize,
    /// The number of processes, at least 1.
    pub world: usize,
    /// The rank of this process on its machine, from 0.
    pub local_rank: usize,
    /// The number of processes of this machine, at least 1. They share its cores.
    pub local_world: usize,
    /// Whether the launcher means each process to take one device of its machine: there are several
    /// processes on it, or `LOCAL_RANK` is set. Otherwise a process takes all.
    pub one_device: bool,
    /// The machine of rank 0, and a port there. The launcher decides what listens there: torchrun runs a
    /// store.
    pub master: Option<(String, u16)>,
    /// The launcher's name of the job, the same on all ranks.
    pub job: Option<String>,
    /// The number of restarts of the job. torchrun counts on each machine by itself, so it may differ between
    /// ranks.
    pub restart: u32,
    /// The source of these values.
    pub source: Source,
}

impl Place {
    /// The only process of its machine, in a job without a name.
    pub fn new(source: Source, rank: usize, world: usize) -> Place {
        let (local_rank, local_world, one_device) = (0, 1, false);
        Place {
            rank,
            world,
            local_rank,
            local_world,
            one_device,
            master: None,
            job: None,
            restart: 0,
            source,
        }
    }

    /// Whether this process writes the files and the output.
    pub fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// The number of this start of the job, if the launcher tells all ranks the same.
    pub(crate) fn start(&self) -> u32 {
        if self.source == Source::Torchrun { 0 } else { self.restart }
    }
}

/// The source of a process's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// torchrun, or `torch.distributed.run`.
    Torchrun,
    /// `towers launch`.
    Launch,
    /// `RANK` and `WORLD_SIZE` without a launcher's mark: Kubernetes' `PyTorchJob`, a script, a user.
    Variables,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// MPICH's `mpiexec`, or another Hydra.
    Mpich,
    /// `TF_CONFIG`: Kubernetes' `TFJob`, or a script for TensorFlow.
    TfConfig,
    /// SLURM's `srun`.
    Slurm,
    /// Kubernetes' `TrainJob`, of Kubeflow's Trainer 2.
    TrainJob,
    /// Kubernetes' `LeaderWorkerSet`.
    LeaderWorkerSet,
    /// Kubernetes' `Job` with indexed pods, alone or in a `JobSet`.
    IndexedJob,
}

impl Source {
    /// The variables that hold the rank and the number of processes.
    pub(super) fn variables(self) -> (&'static str, &'static str) {
        match self {
            Source::Torchrun | Source::Launch | Source::Variables => ("RANK", "WORLD_SIZE"),
            Source::OpenMpi => ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
            Source::Mpich => ("PMI_RANK", "PMI_SIZE"),
            Source::TfConfig => ("the rank by TF_CONFIG", "the number of processes by TF_CONFIG"),
            Source::Slurm => ("SLURM_PROCID", "the number of tasks by SLURM"),
            Source::TrainJob => ("PET_NODE_RANK", "PET_NNODES"),
            Source::LeaderWorkerSet => ("LWS_WORKER_INDEX", "LWS_GROUP_SIZE"),
            Source::IndexedJob => ("JOB_COMPLETION_INDEX", "WORLD_SIZE"),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Torchrun => "torchrun",
            Source::Launch => "towers launch",
            Source::Variables => "RANK and WORLD_SIZE",
            Source::OpenMpi => "Open MPI",
            Source::Mpich => "MPICH",
            Source::TfConfig => "TF_CONFIG",
            Source::Slurm => "SLURM",
            Source::TrainJob => "Kubernetes' TrainJob",
            Source::LeaderWorkerSet => "Kubernetes' LeaderWorkerSet",
            Source::IndexedJob => "Kubernetes' Job",
        })
    }
}
