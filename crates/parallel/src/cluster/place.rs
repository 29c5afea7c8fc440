use core::fmt;

/// The place of this process among those of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of this process, from 0. The first one writes files and talks to people.
    pub rank: usize,
    /// How many processes there are, at least 1.
    pub world: usize,
    /// The number of this process among those of its machine, from 0: the number of its GPU.
    pub local_rank: usize,
    /// How many processes its machine has, at least 1: they share its cores.
    pub local_world: usize,
    /// The machine of rank 0, and a port there. What listens at the port is up to the launcher: torchrun keeps a store there.
    pub master: Option<(String, u16)>,
    /// What the launcher calls the job; the same on all ranks.
    pub job: Option<String>,
    /// How often the launcher has started the job anew. torchrun counts on each machine by itself, so there it may differ from
    /// rank to rank.
    pub restart: u32,
    /// Who said all this.
    pub source: Source,
}

impl Place {
    /// Whether this process writes the files and talks to people.
    pub fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// Which start of the job this is, where all ranks are told the same.
    pub(crate) fn start(&self) -> u32 {
        if self.source == Source::Torchrun { 0 } else { self.restart }
    }
}

/// Who told a process its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// torchrun, or `torch.distributed.run`.
    Torchrun,
    /// `towers launch`.
    Launch,
    /// `RANK` and `WORLD_SIZE` without a launcher's mark: Kubernetes' `PyTorchJob`, a script, a hand.
    Variables,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// MPICH's `mpiexec`, or another Hydra.
    Mpich,
    /// `TF_CONFIG`: Kubernetes' `TFJob`, or a script for TensorFlow.
    TfConfig,
    /// SLURM's `srun`.
    Slurm,
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
        })
    }
}
