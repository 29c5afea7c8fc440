//! Two hosts, made of two network namespaces, and a cable between them that is cut in the middle of a run.

use crate::job::{FOLDER, Job, ROLE, as_role, is_open_mpi, mpirun, mpirun_is_there};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Two namespaces with a cable between them: rank 0 with mpirun in the first, the others in the second.
struct Hosts {
    names: [String; 2],
    cables: [String; 2],
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output();
    match output.map_err(|error| format!("`ip` does not start: {error}"))? {
        output if output.status.success() => Ok(()),
        output => Err(format!("`ip {arguments}`: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Hosts {
    fn new(test: char) -> Result<Hosts, String> {
        let number = std::process::id();
        let hosts = Hosts {
            names: ["a", "b"].map(|end| format!("towers-{number}-{test}{end}")),
            cables: ["a", "b"].map(|end| format!("tw{number}{test}{end}")),
        };
        let Hosts { names: [a, b], cables: [to_b, to_a] } = &hosts;
        ip(&format!("netns add {a}"))?;
        ip(&format!("netns add {b}"))?;
        ip(&format!("link add {to_b} netns {a} type veth peer name {to_a} netns {b}"))?;
        for (name, cable, address) in [(a, to_b, 1), (b, to_a, 2)] {
            ip(&format!("-n {name} address add 10.77.0.{address}/24 dev {cable}"))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set {cable} up"))?;
        }
        Ok(hosts)
    }

    fn cut(&self) {
        ip(&format!("-n {} link set {} down", self.names[1], self.cables[1])).unwrap();
    }

    /// mpirun in the first namespace; what it starts on the other host goes through a script instead of ssh.
    fn mpirun(&self, folder: &Path, more: &str) -> Command {
        let agent = folder.join(format!("{}.sh", self.names[1]));
        // Open MPI calls it as ssh: options, the host, the command.
        let script = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nshift\n\
             exec ip netns exec {} sh -c \"$*\"\n",
            self.names[1]
        );
        fs::write(&agent, script).unwrap();
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
        let plain = mpirun();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[0]]).arg(plain.get_program()).args(plain.get_args());
        command.args("-n 3 --host 10.77.0.1:1,10.77.0.2:2 --mca pml ob1 --mca btl tcp,self".split(' '));
        command
            .args("--mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24".split(' '));
        command.args(["--mca", "plm_rsh_agent"]).arg(agent).args(more.split_whitespace());
        command.args(["-x", ROLE, "-x", FOLDER]);
        as_role(&mut command);
        command
    }
}

impl Drop for Hosts {
    /// Ends what still runs in the namespaces, and removes them.
    fn drop(&mut self) {
        for name in &self.names {
            let running = Command::new("ip").args(["netns", "pids", name]).output();
            let running = running.map(|output| output.stdout).unwrap_or_default();
            for number in String::from_utf8_lossy(&running).lines().filter_map(|line| line.parse().ok()) {
                crate::job::signal("KILL", number);
            }
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

/// Hosts, or why there are none.
fn hosts(test: char) -> Option<Hosts> {
    if !mpirun_is_there() {
        return None;
    }
    if !is_open_mpi() {
        println!("SKIPPED: these tests give mpirun options of Open MPI, and this one is another");
        return None;
    }
    Hosts::new(test)
        .inspect_err(|why| println!("SKIPPED: no network namespaces can be made here: {why}"))
        .ok()
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// The ranks on both sides end and say for whom they waited, with nobody's help.
#[test]
fn ranks_that_are_cut_off_are_named() {
    let Some(hosts) = hosts('r') else { return };
    let mut job = Job::start_with(hosts.mpirun(&folder(), ""), "steps");
    let ranks = job.wait_for("stepping", 3);
    hosts.cut();
    // For both, unless one's numbers came through just before the cut.
    job.wait_for_text("rank 0 waited 2 seconds in an all-reduce for rank");
    job.wait_for_end_of(&ranks);
    // mpirun would go on trying to reach the other host, as long as TCP does: the test ends it.
}

/// Told to notice dead connections, mpirun ends too.
#[test]
fn mpirun_notices_a_cut_where_it_keeps_connections_alive() {
    let Some(hosts) = hosts('m') else { return };
    let alive =
        "--mca oob_tcp_keepalive_time 1 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 1";
    let mut job = Job::start_with(hosts.mpirun(&folder(), alive), "steps");
    let ranks = job.wait_for("stepping", 3);
    hosts.cut();
    job.wait_for_end_of(&ranks);
    let ended = job.wait();
    assert!(!ended.success, "{}", ended.text);
}
