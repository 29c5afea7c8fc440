//! Two hosts: two network namespaces of this machine with a cable between them. That needs Linux and root.

use std::process::Command;

/// Each of them sees one end of the cable, by this name.
pub const CABLE: &str = "cable";

/// Two namespaces, numbered 0 and 1, that reach each other.
pub struct Hosts([String; 2]);

/// Calls the program `ip`, which makes networks.
pub fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output();
    match output.map_err(|error| format!("`ip` does not start: {error}"))? {
        output if output.status.success() => Ok(()),
        output => Err(format!("`ip {arguments}`: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Hosts {
    /// Hosts for one test, with a name that is unique in this process.
    pub fn new(test: &str) -> Result<Hosts, String> {
        let hosts = Hosts([0, 1].map(|host| format!("towers-{}-{test}-{host}", std::process::id())));
        let [one, other] = &hosts.0;
        ip(&format!("netns add {one}"))?;
        ip(&format!("netns add {other}"))?;
        ip(&format!("link add {CABLE} netns {one} type veth peer name {CABLE} netns {other}"))?;
        for (host, name) in hosts.0.iter().enumerate() {
            ip(&format!("-n {name} address add {}/24 dev {CABLE}", Hosts::address(host)))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set {CABLE} up"))?;
        }
        Ok(hosts)
    }

    /// The name of a host for `ip`.
    pub fn name(&self, host: usize) -> &str {
        &self.0[host]
    }

    /// The address of the other host. Several pairs may have the same addresses, in separate networks.
    pub fn address(host: usize) -> String {
        format!("10.77.0.{}", host + 1)
    }

    /// The beginning of a command line that runs on a host.
    pub fn on(&self, host: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.name(host)]);
        command
    }

    /// The processes on a host.
    pub fn processes(&self, host: usize) -> Vec<String> {
        let running = Command::new("ip").args(["netns", "pids", self.name(host)]).output();
        let running = running.map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&running).lines().map(str::to_owned).collect()
    }

    /// Ends all processes on both.
    pub fn end(&self) {
        for process in [0, 1].into_iter().flat_map(|host| self.processes(host)) {
            let _ = Command::new("kill").args(["-KILL", &process]).status();
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.end();
        for name in &self.0 {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}
