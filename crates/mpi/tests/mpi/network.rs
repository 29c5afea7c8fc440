//! Two hosts, and a cable between them that is cut in the middle of a run: rank 0 with mpirun is on the first, the others on the second.

use crate::hosts::{CABLE, Hosts, ip};
use crate::job::{FOLDER, Job, ROLE, as_role, mpirun, mpirun_is_there, version};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

impl Hosts {
    fn cut(&self) {
        ip(&format!("-n {} link set {CABLE} down", self.name(1))).unwrap();
    }

    /// mpirun on the first host. It starts the other host's processes by a script instead of ssh.
    fn mpirun(&self, folder: &Path, more: &str) -> Command {
        let agent = folder.join(format!("{}.sh", self.name(1)));
        // Open MPI calls it as ssh: options, the host, the command.
        let script = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nshift\n\
             exec ip netns exec {} sh -c \"$*\"\n",
            self.name(1)
        );
        fs::write(&agent, script).unwrap();
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
        let plain = mpirun();
        let mut command = self.on(0);
        command.arg(plain.get_program()).args(plain.get_args());
        command.args("-n 3 --host 10.77.0.1:1,10.77.0.2:2 --mca pml ob1 --mca btl tcp,self".split(' '));
        command
            .args("--mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24".split(' '));
        command.args(["--mca", "plm_rsh_agent"]).arg(agent).args(more.split_whitespace());
        command.args(["-x", ROLE, "-x", FOLDER]);
        as_role(&mut command);
        command
    }
}

/// Hosts, or why there are none.
fn hosts(test: &str) -> Option<Hosts> {
    if !mpirun_is_there() {
        return None;
    }
    if !version().unwrap_or_default().contains("Open MPI) 4") {
        println!("SKIPPED: these tests give mpirun options of Open MPI 4, and this one is another");
        return None;
    }
    Hosts::new(test)
        .inspect_err(|why| println!("SKIPPED: no network namespaces can be made here: {why}"))
        .ok()
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// The ranks on both sides end by themselves and name the ranks that they waited for.
#[test]
fn ranks_that_are_cut_off_are_named() {
    let Some(hosts) = hosts("ranks") else { return };
    let mut job = Job::start_with(hosts.mpirun(&folder(), ""), "steps");
    let ranks = job.wait_for("stepping", 3);
    hosts.cut();
    // For both, unless one's numbers came through just before the cut.
    job.wait_for_text("rank 0 waited 2 seconds in an all-reduce for rank");
    job.wait_for_end_of(&ranks);
    // mpirun would keep trying to reach the other host, as long as TCP does, so the test ends it.
}

/// With an option to notice dead connections, mpirun ends too.
#[test]
fn mpirun_notices_a_cut_where_it_keeps_connections_alive() {
    let Some(hosts) = hosts("mpirun") else { return };
    let alive =
        "--mca oob_tcp_keepalive_time 1 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 1";
    let mut job = Job::start_with(hosts.mpirun(&folder(), alive), "steps");
    let ranks = job.wait_for("stepping", 3);
    hosts.cut();
    job.wait_for_end_of(&ranks);
    let ended = job.wait();
    assert!(!ended.success, "{}", ended.text);
}
