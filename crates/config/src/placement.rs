use crate::data_limit::DataLimit;
use crate::device_weights::DeviceWeights;
use crate::forms;
use crate::forms::MOST;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use towers_dataset::Limit;
use towers_options::{Kind, Table, options};

/// The longest time-out, in seconds.
const A_WEEK: u64 = 7 * 24 * 60 * 60;

options! {
    /// The devices and the location of the data of a run. They may change at a resume.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Placement {
        ["Several replicas"]
        /// The share of every batch for each replica: a number for each, as in 2,1,1; auto to measure their speed; or even
        device_weights: DeviceWeights = DeviceWeights::Even, Kind::form(forms::device_weights, DeviceWeights::ACCEPTED), "--device-weights W,...";
        +
        /// The files of the data.
        files: DataFiles, as "data";
        /// The devices.
        devices: Devices;
    }
}

options! {
    /// The location of the data files.
    #[derive(Clone, Debug, PartialEq)]
    pub struct DataFiles {
        ["Data"]
        /// The folder of the data; by default data/ in the workspace of towers, or else in the user's cache
        data_dir: Option<PathBuf> = None, Kind::form(towers_options::path, "a path in quotes"), "--data-dir DIR", with env("TOWERS_DATA_DIR");
        /// The URL of an archive to download instead of the official one; may be repeated
        data_url: Vec<String> = Vec::new(), Kind::List(&Kind::Text, None), "--data-url URL";
        /// Never download anything
        offline: bool = false, Kind::Switch, "--offline";
        /// Use only the first N test samples, or P% of them; of class folders, as many of each class as can be
        limit_test: Option<DataLimit> = None, Kind::form(forms::limit, Limit::ACCEPTED), "--limit-test N|P%";
        /// Decode the pictures of class folders while training, and not before: auto (if their pixels would take more than half of the free memory), always or never
        stream: When = When::Auto, Kind::OneOf(&["auto", "always", "never"]), "--stream WHEN";
    }
}

options! {
    /// The devices of a run.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Devices {
        ["Devices"]
        /// The devices: auto (CUDA if a GPU works, else the CPU), cpu or cuda
        device: DeviceKind = DeviceKind::Auto, Kind::OneOf(&["auto", "cpu", "cuda"]), "--device NAME", with brief("auto, cpu or cuda");
        /// The GPUs: a number or a list of ids, as in 3 or 0,2,3; implies --device cuda
        gpus: Option<Vec<usize>> = None, Kind::form(forms::gpus, "a number of GPUs, as in 3, or a list of their ids, as in [0, 2]"), "--gpus N|IDS", with short('g'), with brief("The GPUs: a number, or their ids as in 0,2");
        /// The number of replicas, copies of the network that share every batch; by default one per device
        replicas: usize = 0, Kind::Between(0, MOST as u64), "--replicas N", with least(1);
        /// CPU threads in total; by default one per core
        threads: usize = 0, Kind::Between(0, MOST as u64), "--threads N", with least(1);
        /// What computes convolutions and dense layers on a GPU: auto (the faster of both), own (our own kernels) or library (cuDNN and cuBLASLt)
        kernels: Kernels = Kernels::Auto, Kind::OneOf(&["auto", "own", "library"]), "--kernels NAME";
        /// Start the ops of a step one by one, and not as a CUDA graph
        no_graph: bool = false, Kind::Switch, "--no-graph";
        /// Run one kernel of a GPU after the other, and none side by side
        one_stream: bool = false, Kind::Switch, "--one-stream";
        /// Compare the first step with the CPU's, op by op: auto (once for each model of GPU, driver and libraries), always or never
        check_device: When = When::Auto, Kind::OneOf(&["auto", "always", "never"]), "--check-device WHEN";
        ["Several replicas"]
        /// Split the network of every replica into S stages of consecutive layers, each on a separate device
        pipeline_stages: usize = 0, Kind::Between(0, MOST as u64), "--pipeline-stages S";
        /// The last layer of each stage but the last; by default layers are timed, so that all stages take about the same time
        split_at: Vec<String> = Vec::new(), Kind::List(&Kind::Text, Some(',')), "--split-at LAYER,...";
        /// Fail when another replica or process has kept the others waiting for this long, or a process has sent no heartbeat for a tenth of it
        collective_timeout: u64 = 300, Kind::Between(1, A_WEEK), "--collective-timeout SECONDS", with env("TOWERS_COLLECTIVE_TIMEOUT");
        /// Let processes train together on different models of GPUs or instruction sets of CPUs, though their sums differ in the last bits
        mixed_devices: bool = false, Kind::Switch, "--mixed-devices";
        /// The file of the MPI library, such as libmpi.so.40; by default the one that fits the launcher
        mpi_library: Option<PathBuf> = None, Kind::form(towers_options::path, "a path in quotes"), "--mpi-library FILE";
    }
}

impl Devices {
    /// The kind of device: CUDA where GPUs are named.
    pub fn kind(&self) -> DeviceKind {
        let names_gpus = self.gpus.as_ref().is_some_and(|gpus| !gpus.is_empty());
        if self.device == DeviceKind::Auto && names_gpus { DeviceKind::Cuda } else { self.device }
    }

    /// The number of stages of each replica, at least 1.
    pub fn stages(&self) -> usize {
        self.pipeline_stages.max(1)
    }

    /// How long a replica or process may keep the others waiting.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.collective_timeout)
    }
}

/// The kind of device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// CUDA if a GPU works, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
}

/// What computes convolutions and dense layers on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kernels {
    /// The faster of both.
    #[default]
    Auto,
    /// Our own kernels.
    Own,
    /// cuDNN and cuBLASLt.
    Library,
}

impl fmt::Display for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kernels::Auto => "auto",
            Kernels::Own => "own",
            Kernels::Library => "library",
        })
    }
}

/// When to do what an option says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// Where it is of use.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The keys of a configuration that [`Placement`] holds.
pub(crate) const TABLES: [Table; 3] = [
    Table { key: "", options: Placement::OPTIONS, begins: None },
    Table { key: "data", options: DataFiles::OPTIONS, begins: None },
    Table { key: "devices", options: Devices::OPTIONS, begins: None },
];
