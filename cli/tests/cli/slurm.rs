//! The batch script of `docs/cluster` under a SLURM of two machines, which are hosts within this one.
//!
//! It needs root, SLURM's daemons and emulated GPUs; the cluster belongs to the test and is in its folder.

use crate::Place;
use crate::hosts::Hosts;
use crate::processes::{expected, with_gpus};
use crate::ranks::{environment, signal, wait_for, wait_for_epochs};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

/// The training options instead of `--recipe minigooglenet`: those of the tests with other launchers.
const TRAIN: &str = "--quick --dataset synthetic --limit-train 6 --limit-test 4 --global-batch-size 4 \
                     --schedule constant --no-progress --device cuda --epochs 8 --threads 2";

/// SLURM's names of the two.
const MACHINES: [&str; 2] = ["one", "two"];

/// The controller and the users' commands run on the first.
struct Cluster<'a> {
    place: &'a Place,
    hosts: Hosts,
    daemons: Vec<Child>,
}

impl<'a> Cluster<'a> {
    fn new(place: &'a Place) -> Result<Cluster<'a>, String> {
        for daemon in ["slurmctld", "slurmd"] {
            let there = Command::new(daemon).arg("-V").output();
            there.map_err(|error| format!("{daemon}: {error}"))?;
        }
        let mut cluster = Cluster { place, hosts: Hosts::new("slurm")?, daemons: Vec::new() };
        cluster.configure();
        cluster.daemons.push(cluster.daemon(0, "slurmctld", &["-D"]));
        for (host, machine) in MACHINES.iter().enumerate() {
            cluster.daemons.push(cluster.daemon(host, "slurmd", &["-D", "-N", machine]));
        }
        Ok(cluster)
    }

    /// A command on one of the machines, which knows its name and that of the other.
    fn on(&self, host: usize, program: &str) -> Command {
        let folder = self.place.path();
        let name_it = r#"hostname "$1"; mount --bind "$2" /etc/hosts; shift 2; exec "$@""#;
        let mut command = self.hosts.on(host);
        command.args(["unshare", "--uts", "--mount", "sh", "-c", name_it, "sh", MACHINES[host]]);
        command.arg(folder.join("hosts")).arg(program);
        command.current_dir(folder).env("SLURM_CONF", folder.join("slurm.conf"));
        command
    }

    fn configure(&self) {
        let folder = self.place.path();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        let [one, two] = [0, 1].map(Hosts::address);
        write("hosts", &format!("127.0.0.1 localhost\n{one} one\n{two} two\n"));
        write("cgroup.conf", "CgroupPlugin=cgroup/v1\n");
        let folder = folder.display();
        write(
            "slurm.conf",
            &format!(
                "ClusterName=towers\nSlurmctldHost=one({one})\nAuthType=auth/none\nCredType=cred/none\n\
                 SlurmUser=root\nSlurmdUser=root\nMpiDefault=none\nProctrackType=proctrack/linuxproc\n\
                 TaskPlugin=task/none\nSelectType=select/cons_tres\nReturnToService=2\n\
                 StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool-%n\n\
                 SlurmctldPidFile={folder}/controller.pid\nSlurmdPidFile={folder}/%n.pid\n\
                 SlurmctldLogFile={folder}/controller.log\nSlurmdLogFile={folder}/%n.log\n\
                 NodeName=one NodeAddr={one} CPUs=2\nNodeName=two NodeAddr={two} CPUs=2\n\
                 PartitionName=all Nodes=one,two Default=YES State=UP\n"
            ),
        );
        fs::create_dir(self.place.path().join("state")).unwrap();
    }

    fn daemon(&self, host: usize, program: &str, arguments: &[&str]) -> Child {
        let mut command = self.on(host, program);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// A user's command, and its output.
    fn ask(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.on(0, program).args(arguments).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program} {arguments:?}: {err}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        self.hosts.end();
        for daemon in &mut self.daemons {
            let _ = daemon.wait();
        }
    }
}

/// The script of the documentation, with the network and data of this test. Machines get emulated GPUs.
fn script(place: &Place) {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cluster/towers.sbatch");
    let page = fs::read_to_string(page).unwrap();
    let replaced = [
        ("#SBATCH --ntasks-per-node=4", "#SBATCH --ntasks-per-node=1"),
        ("#SBATCH --cpus-per-task=8", "#SBATCH --cpus-per-task=1"),
        ("#SBATCH --gpus-per-node=4\n", ""),
        ("--mpi=pmix", "--mpi=none"),
        ("--recipe minigooglenet --threads \"$((SLURM_CPUS_PER_TASK * SLURM_NTASKS_PER_NODE))\"", TRAIN),
    ];
    let script = replaced.iter().fold(page, |text, (from, to)| {
        assert!(text.contains(from), "the script has no `{from}`");
        text.replace(from, to)
    });
    place.write("towers.sbatch", script);
}

/// The process of a machine's rank, once it trains.
fn rank(cluster: &Cluster<'_>, host: usize) -> String {
    let rank = host.to_string();
    wait_for(|| {
        cluster.hosts.processes(host).into_iter().find(|id| {
            let program = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            let own = environment(id).and_then(|variables| variables.get("SLURM_PROCID").cloned());
            program.trim() == "towers" && own.as_ref() == Some(&rank)
        })
    })
}

/// A rank is killed. The others report it, the script asks for a restart, and the job ends with the weights
/// of a run without faults.
#[test]
fn slurm_runs_the_script_and_starts_it_again() {
    let Some(place) = with_gpus() else { return };
    let cluster = match Cluster::new(&place) {
        Ok(cluster) => cluster,
        Err(why) => return println!("SKIPPED: no SLURM can be started here: {why}"),
    };
    let expected = expected(&place, 8);
    script(&place);
    let folder = place.path().join("bin");
    fs::create_dir(&folder).unwrap();
    // The emulated GPU of a process is that of its rank, since both machines are this one.
    let towers = format!(
        "#!/bin/sh\nexport TOWERS_EMULATED_GPUS=1 TMPDIR={} HOME={}\nexec {} \"$@\"\n",
        place.path().join("tmp").display(),
        place.path().display(),
        env!("CARGO_BIN_EXE_towers")
    );
    fs::write(folder.join("towers"), towers).unwrap();
    fs::set_permissions(folder.join("towers"), fs::Permissions::from_mode(0o755)).unwrap();
    wait_for(|| (cluster.ask("sinfo", &["-h", "-o", "%T"]).trim() == "idle").then_some(()));

    let path = format!("ALL,PATH={}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let job = cluster.ask("sbatch", &["--parsable", "--export", &path, "towers.sbatch"]);
    let job = job.trim();
    wait_for_epochs(&place, &format!("runs/{job}"), 2);
    signal("-KILL", &rank(&cluster, 1));
    // SLURM waits two minutes before it restarts a job.
    wait_for(|| cluster.ask("squeue", &["-h", "-o", "%t %r"]).contains("BeginTime").then_some(()));
    cluster.ask("scontrol", &["update", &format!("JobId={job}"), "StartTime=now"]);
    wait_for(|| cluster.ask("squeue", &["-h"]).is_empty().then_some(()));

    let log = fs::read_to_string(place.path().join(format!("towers-{job}.log"))).unwrap_or_default();
    assert!(log.contains("resuming from "), "{log}");
    let state = cluster.ask("scontrol", &["show", "job", job]);
    assert!(state.contains("JobState=COMPLETED") && state.contains("Restarts=1"), "{state}{log}");
    assert!(place.model(&format!("runs/{job}")) == expected, "another network: {log}");
}
