// SPDX-License-Identifier: Apache-2.0
//! The namespaces of the self-test, and the plugins, called as a runtime does: an environment, a configuration on stdin,
//! one document on stdout (CNI specification, section 2).
//!
//! Invariant: everything that the self-test creates has a name of its own. `remove_everything` finds it by that name.

use super::ip;
use super::port::Port;
use super::program::{run, wait_for};
use super::uses::NAMESPACES;
use crate::args;
use crate::output::CommandError;
use cni_ipoib::select::RdmaPort;
use common::netlink::LinkLayer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

const IFNAME: &str = "net1";
/// Addresses for measurements between hosts (RFC 2544, appendix C.2.2). No network of a node uses them.
const SUBNET: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 0, 0), 15);
/// How many addresses of its slot a self-test uses.
const ADDRESSES: u32 = 99;
/// How long a child may take to come back to the host after DEL or GC, to be noticed. `cni-ipoib` waits a second for it.
const CHILDREN_RETURN_WITHIN: Duration = Duration::from_secs(2);
/// The names of all pods of the self-test.
const PODS: [&str; 4] = ["a", "b", "c", "d"];

/// Which side of a self-test this is. Both can run on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs the steps.
    Tester,
    /// Answers a self-test of another node.
    Listener,
}

impl Role {
    /// The name of its network, and how the names of its pods begin.
    fn network(self) -> &'static str {
        match self {
            Self::Tester => "rdmanet-selftest",
            Self::Listener => "rdmanet-selftest-listener",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Tester => Self::Listener,
            Self::Listener => Self::Tester,
        }
    }

    /// The directory of its leases and its lock.
    fn directory(self) -> PathBuf {
        Path::new("/run").join(self.network())
    }
}

/// The pods and plugins that the steps use.
#[derive(Debug)]
pub struct Bench {
    /// Which side this is.
    pub role: Role,
    plugins: PathBuf,
    state: PathBuf,
    conf: Value,
    /// The children that the port had on the host before the self-test.
    children: BTreeSet<String>,
    /// The RDMA port, if every namespace sees its device.
    pub rdma: Option<RdmaPort>,
    _lock: File,
}

/// A pod of the self-test.
#[derive(Clone, Debug)]
pub struct Pod {
    /// The name of the container and of the namespace.
    pub id: String,
    /// The links that the kernel puts into every new namespace.
    own: Vec<String>,
}

impl Bench {
    /// Finds the plugins and takes the lock.
    ///
    /// # Errors
    /// A program is missing, or another self-test runs.
    pub fn open(options: &args::Selftest, role: Role) -> Result<Self, CommandError> {
        let plugins = options.plugins.clone();
        for plugin in ["cni-ipoib", "rdma-ipam"] {
            if !plugins.join(plugin).is_file() {
                return Err(CommandError(format!(
                    "{} is missing; install the plugins, or name their directory with --plugins",
                    plugins.join(plugin).display()
                )));
            }
        }
        let directory = role.directory();
        let failed = |e: std::io::Error| {
            CommandError(format!("{}: {e}; the self-test needs root", directory.display()))
        };
        fs::create_dir_all(&directory).map_err(failed)?;
        let lock = File::create(directory.join("lock")).map_err(failed)?;
        lock.try_lock().map_err(|_| {
            CommandError(format!(
                "another self-test runs on this node and holds {}; wait until it ends",
                directory.join("lock").display()
            ))
        })?;
        Ok(Self {
            role,
            plugins,
            state: options.directories.state.clone(),
            conf: json!({
                "cniVersion": "1.1.0", "name": role.network(), "type": "cni-ipoib",
                "ipam": {
                    "type": "rdma-ipam", "dataDir": directory.join("leases"), "cooldown": 0,
                    "ranges": [[range(0)]],
                },
            }),
            children: BTreeSet::new(),
            rdma: None,
            _lock: lock,
        })
    }

    /// Uses `port` for all pods from now on.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn use_port(&mut self, port: &Port) -> Result<(), CommandError> {
        let infiniband = port.layer == LinkLayer::Infiniband;
        self.conf["mode"] = json!(if infiniband { "ipoib" } else { "macvlan" });
        self.conf["master"] = json!(port.master);
        self.conf["ipam"]["ranges"] = json!([[range(port.slot)]]);
        self.rdma = port.rdma.clone().filter(|_| infiniband && port.shared);
        self.children = self.children_on_host()?;
        Ok(())
    }

    /// The links on the host whose parent is the port.
    fn children_on_host(&self) -> Result<BTreeSet<String>, CommandError> {
        let mut links = ip::list(&["link", "show"])?;
        links.retain(|link| self.conf["master"] == link["link"]);
        Ok(links.iter().map(|link| ip::field(link, "ifname")).collect())
    }

    /// Checks that the port has no other children on the host than before the self-test: a killed ADD leaves one, and the kernel
    /// returns one from a namespace that is gone. A child that comes back within two seconds counts too.
    ///
    /// # Errors
    /// The names of the other children.
    pub fn require_no_child(&self) -> Result<(), String> {
        sleep(CHILDREN_RETURN_WITHIN);
        let now = self.children_on_host().map_err(|e| e.to_string())?;
        let left: Vec<_> = now.difference(&self.children).cloned().collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("the host still has the children {}", left.join(", ")))
        }
    }

    /// Creates the namespace of the pod `name`, one of a to d.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn pod(&self, name: &'static str) -> Result<Pod, String> {
        let id = self.id(name);
        run(Command::new("ip").args(["netns", "add", &id]))?;
        let mut pod = Pod { id, own: Vec::new() };
        self.inside(&pod, "ip", &["link", "set", "lo", "up"])?;
        pod.own = self.links(&pod)?;
        Ok(pod)
    }

    /// Removes the namespace of `pod`.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn remove_namespace(&self, pod: &Pod) -> Result<(), String> {
        remove_namespace(&pod.id)
    }

    /// Runs a program in the namespace of `pod`; returns what it printed.
    ///
    /// # Errors
    /// The program fails or times out. The error has its output.
    pub fn inside(&self, pod: &Pod, program: &str, words: &[impl AsRef<OsStr>]) -> Result<String, String> {
        run(&mut self.command_inside(pod, program, words))
    }

    /// A program in the namespace of `pod`.
    pub fn command_inside(&self, pod: &Pod, program: &str, words: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &pod.id, program]).args(words);
        command
    }

    /// Checks that `pod` has no link but those of every new namespace.
    ///
    /// # Errors
    /// The names of its other links.
    pub fn require_no_link(&self, pod: &Pod) -> Result<(), String> {
        let links = self.links(pod)?;
        let left: Vec<_> = links.into_iter().filter(|link| !pod.own.contains(link)).collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{} still has {}", pod.id, left.join(", ")))
        }
    }

    /// Attaches `pod`; returns the plugin's result.
    ///
    /// # Errors
    /// The plugin's error.
    pub fn add(&self, pod: &Pod) -> Result<Value, String> {
        let printed = self.call("ADD", &pod.id, &self.conf)?;
        serde_json::from_str(&printed).map_err(|e| format!("the output of ADD is not JSON: {e}"))
    }

    /// Starts an ADD of `pod`, for a caller that will kill it.
    ///
    /// # Errors
    /// The plugin cannot be started.
    pub fn begin_add(&self, pod: &Pod) -> Result<Child, String> {
        self.start("ADD", &pod.id, &self.conf)
    }

    /// Checks `pod` against the result of its ADD.
    ///
    /// # Errors
    /// The plugin's error.
    pub fn check(&self, pod: &Pod, result: &Value) -> Result<(), String> {
        let conf = self.with("prevResult", result.clone());
        self.call("CHECK", &pod.id, &conf).map(drop)
    }

    /// Detaches `pod`.
    ///
    /// # Errors
    /// The plugin's error.
    pub fn del(&self, pod: &Pod) -> Result<(), String> {
        self.call("DEL", &pod.id, &self.conf).map(drop)
    }

    /// Removes every attachment of the self-test's network that is not one of `valid`.
    ///
    /// # Errors
    /// The plugin's error.
    pub fn gc(&self, valid: &[&Pod]) -> Result<(), String> {
        let valid: Vec<_> = valid
            .iter()
            .map(|pod| json!({"containerID": pod.id, "ifname": IFNAME}))
            .collect();
        let conf = self.with("cni.dev/valid-attachments", Value::from(valid));
        self.call("GC", "", &conf).map(drop)
    }

    /// The number of addresses that the self-test's pods have.
    pub fn leases(&self) -> usize {
        leases_below(&self.role.directory().join("leases"))
    }

    /// Removes what killed self-tests of both roles have left: the pod of either keeps the port in use. Returns what could not be
    /// removed, with the reason.
    pub fn remove_everything_of_killed_runs(&self, options: &args::Selftest) -> Vec<String> {
        let mut left = self.remove_everything();
        let other = self.role.other();
        // If its lock is held, the other side runs.
        if other.directory().exists()
            && let Ok(killed) = Self::open(options, other)
        {
            left.extend(killed.remove_everything());
            killed.close();
        }
        left
    }

    /// Removes pods and attachments of this run and of a killed one. Returns what could not be removed, with the reason.
    pub fn remove_everything(&self) -> Vec<String> {
        let mut left = Vec::new();
        for id in PODS.map(|name| self.id(name)) {
            let detached = self.call("DEL", &id, &self.conf);
            left.extend(detached.err().map(|why| format!("{id}: {why}")));
            if Path::new(NAMESPACES).join(&id).exists() {
                left.extend(remove_namespace(&id).err());
            }
        }
        left.extend(self.gc(&[]).err());
        left
    }

    /// Removes the directory if it has no lease. The next self-test needs the leases of pods that could not be removed.
    pub fn close(self) {
        if self.leases() == 0 {
            // The next run overwrites a file that stays.
            let _ = fs::remove_dir_all(self.role.directory());
        }
    }

    fn id(&self, name: &str) -> String {
        format!("{}-{name}", self.role.network())
    }

    fn links(&self, pod: &Pod) -> Result<Vec<String>, String> {
        let links = self.inside(pod, "ip", &["-brief", "link", "show"])?;
        let names = links.lines().filter_map(|line| line.split([' ', '@']).next());
        Ok(names.map(str::to_owned).collect())
    }

    fn with(&self, key: &str, value: Value) -> Value {
        let mut conf = self.conf.clone();
        conf[key] = value;
        conf
    }

    fn call(&self, verb: &str, id: &str, conf: &Value) -> Result<String, String> {
        wait_for(self.start(verb, id, conf)?, &format!("{verb} of {id}"))
    }

    fn start(&self, verb: &str, id: &str, conf: &Value) -> Result<Child, String> {
        let mut command = Command::new(self.plugins.join("cni-ipoib"));
        command.env("CNI_COMMAND", verb).env("CNI_PATH", &self.plugins);
        command.env("RDMANET_STATE", &self.state);
        if verb != "GC" {
            command.env("CNI_CONTAINERID", id).env("CNI_IFNAME", IFNAME);
            command.env("CNI_NETNS", Path::new(NAMESPACES).join(id));
        }
        let pipes = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = pipes
            .spawn()
            .map_err(|e| format!("cannot start cni-ipoib: {e}"))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A plugin that exits before it has read its whole input gives the reason in its output.
            let _ = stdin.write_all(conf.to_string().as_bytes());
        }
        Ok(child)
    }
}

/// Removes the namespace of a pod and ends the programs in it, such as the server of a listener that was killed.
fn remove_namespace(id: &str) -> Result<(), String> {
    let inside = run(Command::new("ip").args(["netns", "pids", id]))?;
    for pid in inside.lines().filter_map(|line| line.trim().parse().ok()) {
        // A program that has ended by now is no error.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    run(Command::new("ip").args(["netns", "del", id])).map(drop)
}

/// The addresses of a slot.
fn range(slot: u32) -> Value {
    let (network, prefix) = SUBNET;
    let base = u32::from(network) + (slot << 8);
    json!({
        "subnet": format!("{network}/{prefix}"),
        "rangeStart": Ipv4Addr::from(base + 1), "rangeEnd": Ipv4Addr::from(base + ADDRESSES),
    })
}

/// The files in all directories `addresses` below `directory`.
fn leases_below(directory: &Path) -> usize {
    let count = |path: PathBuf| {
        if path.is_dir() {
            leases_below(&path)
        } else {
            usize::from(
                path.parent()
                    .is_some_and(|directory| directory.ends_with("addresses")),
            )
        }
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| count(entry.path())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_benchmark_slot_has_its_own_addresses_in_one_network() {
        let first = range(0);
        assert_eq!(
            (&first["rangeStart"], &first["rangeEnd"]),
            (&json!("198.18.0.1"), &json!("198.18.0.99"))
        );
        let last = range(0x1ff);
        assert_eq!(
            (&last["subnet"], &last["rangeEnd"]),
            (&json!("198.18.0.0/15"), &json!("198.19.255.99"))
        );
    }
}
