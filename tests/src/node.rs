// SPDX-License-Identifier: Apache-2.0
//! A node: the network namespace with the parents, in which the plugins run.

use crate::{Answer, Call, Conf, Pod, Version, programs, within};
use common::netlink::{Link, Route, Socket};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

const NONE: Option<&str> = None;

/// A node with its own network, mounts and files.
pub struct Node {
    dir: TempDir,
    pods: AtomicU32,
    plugins: Mutex<Version>,
}

impl Node {
    /// Runs `test` on a new node with one Ethernet link, `eth0`, whose cable is plugged in.
    ///
    /// One thread represents the node: it leaves the namespaces of this process, and its child processes inherit the
    /// new ones.
    pub fn run(test: impl FnOnce(&Self) + Send) {
        Self::on_thread(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS, |node| {
            node.ip("link set lo up");
            node.cable("eth0");
            test(node);
        });
    }

    /// Runs `test` in this machine's own network. The fabric's VM needs it, because its HCAs cannot leave the network.
    pub fn on_this_machine(test: impl FnOnce(&Self) + Send) {
        Self::on_thread(CloneFlags::CLONE_NEWNS, test);
    }

    fn on_thread(leave: CloneFlags, test: impl FnOnce(&Self) + Send) {
        let work = || {
            unshare(leave).expect("leave the machine's namespaces; this suite must run as root");
            mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).unwrap();
            if leave.contains(CloneFlags::CLONE_NEWNET) {
                mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), NONE).unwrap();
            }
            let node = Self {
                dir: TempDir::with_prefix("rdmanet-node-").unwrap(),
                pods: AtomicU32::new(0),
                plugins: Mutex::new(Version::Today),
            };
            for directory in ["bin", "netns"] {
                fs::create_dir(node.path(directory)).unwrap();
            }
            test(&node);
        };
        // The kernel may print another path to the thread below.
        programs::running();
        thread::scope(|scope| {
            let node = thread::Builder::new()
                .name("node".to_owned())
                .spawn_scoped(scope, work)
                .unwrap();
            if let Err(panic) = node.join() {
                std::panic::resume_unwind(panic);
            }
        });
    }

    /// A path in the node's own directory: `state` contains the attachments, `rdma-ipam` and `host-local` the leases.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates a pair of connected Ethernet links, `name` and `name`-far, and waits until both are operational.
    ///
    /// # Panics
    /// After a minute.
    pub fn cable(&self, name: &str) {
        let ends = [name.to_owned(), format!("{name}-far")];
        self.ip(&format!("link add {name} type veth peer name {name}-far"));
        for end in &ends {
            self.ip(&format!("link set {end} up"));
        }
        // The kernel sets the state in a work queue, after the request (`net/core/link_watch.c`).
        let state = |end: &String| fs::read_to_string(format!("/sys/class/net/{end}/operstate")).unwrap();
        within(Duration::from_secs(60), &format!("{name} is operational"), || {
            ends.iter().all(|end| state(end) == "up\n")
        });
    }

    /// A new pod.
    pub fn pod(&self) -> Pod<'_> {
        let number = self.pods.fetch_add(1, Ordering::Relaxed) + 1;
        let id = format!("pod-{number}");
        let netns = self.path("netns").join(&id);
        Pod::new(self, &id, netns)
    }

    /// A configuration for `cni-ipoib` with these keys; by default network `net-a` on master `eth0` in version 1.1.0.
    pub fn conf(&self, keys: Value) -> Conf {
        let defaults = json!({"cniVersion": "1.1.0", "name": "net-a", "type": "cni-ipoib", "master": "eth0"});
        let Value::Object(keys) = keys else {
            panic!("keys are an object, not {keys}");
        };
        keys.into_iter()
            .fold(Conf::new(defaults), |conf, (key, value)| conf.with(&key, value))
    }

    /// An `ipam` block for `rdma-ipam` with the subnet `subnet` and no cooldown of released addresses.
    pub fn rdma_ipam(&self, subnet: &str) -> Value {
        json!({
            "type": "rdma-ipam", "dataDir": self.path("rdma-ipam"), "cooldown": 0,
            "ranges": [[{"subnet": subnet}]],
        })
    }

    /// The same with addresses of both families, of 10.7.0.0/24 and `fd00:7::/64`.
    pub fn dual_stack_ipam(&self) -> Value {
        let mut ipam = self.rdma_ipam("10.7.0.0/24");
        ipam["ranges"] = json!([[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd00:7::/64"}]]);
        ipam
    }

    /// An `ipam` block for the reference `host-local`.
    pub fn host_local(&self, subnet: &str) -> Value {
        json!({"type": "host-local", "dataDir": self.path("host-local"), "ranges": [[{"subnet": subnet}]]})
    }

    /// The directories of `CNI_PATH`: the node's own, those of rdmanet and of the reference plugins.
    pub fn cni_path(&self) -> Vec<PathBuf> {
        vec![
            self.path("bin"),
            self.plugins.lock().unwrap().plugins().to_owned(),
            programs::peers().to_owned(),
        ]
    }

    /// Replaces both plugins by those of `version`, as an upgrade or a rollback does.
    pub fn use_plugins(&self, version: Version) {
        *self.plugins.lock().unwrap() = version;
    }

    /// The plugin `name`, found as a runtime finds it.
    pub fn plugin(&self, name: &str) -> PathBuf {
        let path = self.cni_path();
        let found = path.iter().map(|dir| dir.join(name)).find(|file| file.is_file());
        found.unwrap_or_else(|| panic!("no plugin {name} in {path:?}"))
    }

    /// Installs a shell script as a plugin.
    pub fn install_script(&self, name: &str, script: &str) {
        let file = self.path("bin").join(name);
        // Renamed at the end: the kernel does not start a program that is open for writing (ETXTBSY).
        let unfinished = self.path("unfinished");
        fs::write(&unfinished, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&unfinished, file).unwrap();
    }

    /// Shell commands that wait until a file exists, for a minute at most.
    pub fn until_exists(file: &Path) -> String {
        let file = file.display();
        format!("i=0; until [ -e {file} ] || [ $i -ge 3000 ]; do sleep 0.02; i=$((i + 1)); done")
    }

    /// An `ipam` block for a script whose ADD prints `result`.
    pub fn scripted_ipam(&self, result: &Value) -> Value {
        let add = format!("[ \"$CNI_COMMAND\" = ADD ] && cat <<'END'\n{result}\nEND\nexit 0");
        self.install_script("scripted", &add);
        json!({"type": "scripted"})
    }

    /// Installs `cni-ipoib` under another plugin's name.
    pub fn install_as(&self, name: &str) {
        symlink(programs::ours().join("cni-ipoib"), self.path("bin").join(name)).unwrap();
    }

    /// A call without a container, such as GC and STATUS, of the plugin in the configuration.
    pub fn call(&self, command: &str, conf: &Conf) -> Call {
        Call::new(&self.plugin(conf.text("type")))
            .env("CNI_COMMAND", command)
            .env("CNI_PATH", std::env::join_paths(self.cni_path()).unwrap())
            .env("RDMANET_STATE", self.path("state"))
            .stdin(conf.to_value().to_string())
    }

    /// Calls GC, with these valid attachments.
    pub fn gc(&self, conf: &Conf, valid: &[(&str, &str)]) -> Answer {
        self.call("GC", &conf.clone().keeping(valid)).run()
    }

    /// Calls STATUS.
    pub fn status(&self, conf: &Conf) -> Answer {
        self.call("STATUS", conf).run()
    }

    /// A netlink socket of the node.
    pub fn socket(&self) -> Socket<Route> {
        Socket::open().unwrap()
    }

    /// Every link of the node.
    pub fn links(&self) -> Vec<Link> {
        self.socket().links().unwrap()
    }

    /// The names of [`Node::links`].
    pub fn link_names(&self) -> Vec<String> {
        self.links().into_iter().map(|link| link.name).collect()
    }

    /// The link `name`.
    #[track_caller]
    pub fn link(&self, name: &str) -> Link {
        let link = self.socket().link(name).unwrap();
        link.unwrap_or_else(|| panic!("the node has no {name}, only {:?}", self.link_names()))
    }

    /// Runs `ip` with these arguments on the node. It must succeed.
    #[track_caller]
    pub fn ip(&self, words: &str) -> String {
        text_of(&format!("ip {words}"), &self.exec("ip", words))
    }

    /// Runs a program on the node.
    pub fn exec(&self, program: &str, words: &str) -> Output {
        let output = Command::new(program).args(words.split_whitespace()).output();
        output.unwrap_or_else(|e| panic!("cannot start {program}: {e}; is it installed?"))
    }
}

impl Drop for Node {
    /// Unmounts everything below the node's directory before the directory is removed. Otherwise the removal would delete the
    /// mounted files, which may be the machine's own.
    fn drop(&mut self) {
        let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4));
        let below: Vec<&str> = points
            .filter(|point| Path::new(point).starts_with(self.dir.path()))
            .collect();
        // Mounts on the same path are unmounted last to first.
        let left = below
            .into_iter()
            .rev()
            .find(|point| umount2(*point, MntFlags::MNT_DETACH).is_err());
        if let Some(point) = left {
            self.dir.disable_cleanup(true);
            crate::log_line(&format!(
                "cannot unmount {point}; {} stays",
                self.dir.path().display()
            ));
        }
    }
}

/// Runs a program, which must succeed, and returns its standard output.
#[track_caller]
pub(crate) fn text_of(what: &str, output: &Output) -> String {
    assert!(
        output.status.success(),
        "{what}: {}: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    // ip drops what does not fit into its request, and succeeds.
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!err.contains("addattr_l ERROR"), "{what}: {err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The names of the files in and below `dir` that `wanted` selects, relative to `dir`, sorted.
pub(crate) fn files_below(dir: &Path, wanted: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![dir.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            if path.is_dir() {
                directories.push(path);
            } else if wanted(&name) {
                found.push(name);
            }
        }
    }
    found.sort();
    found
}
