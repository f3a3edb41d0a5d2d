// SPDX-License-Identifier: Apache-2.0
//! The thick plugin's daemon, run as in its own manifest: with a pod's account, the node's root mounted below its own
//! directory, plugins that start in that root, and a configuration that it writes for the runtime.

use crate::Setup;
use nix::mount::{MsFlags, mount};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use tests::multus::{Multus, cluster_network};
use tests::programs;

/// Where Kubernetes mounts the credentials of a pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The path at which the daemon has the node's root.
const ROOT: &str = "/run/hostroot";

/// The directory of the socket between daemon and shim.
const SOCKETS: &str = "/run/multus/";

/// A daemon that runs on a test's node until the value is dropped.
pub struct Daemon<'s, 'n> {
    setup: &'s Setup<'n>,
    process: tests::Daemon,
    id: u32,
}

impl<'s, 'n> Daemon<'s, 'n> {
    /// Starts a daemon and waits until it has written its configuration.
    pub fn start(setup: &'s Setup<'n>) -> Self {
        account(setup);
        let net_d = directory(setup, "net.d");
        host_root();
        fs::write(
            net_d.join("10-cluster.conf"),
            single(cluster_network()).to_string(),
        )
        .unwrap();
        let config = setup.node.path("daemon-config.json");
        let daemon = json!({
            "chrootDir": ROOT, "cniVersion": "0.3.1", "logLevel": "verbose", "logToStderr": true,
            "cniConfigDir": net_d, "multusAutoconfigDir": net_d, "multusConfigFile": "auto",
            "socketDir": SOCKETS, "daemonSocketDir": SOCKETS,
        });
        fs::write(&config, daemon.to_string()).unwrap();
        let process = tests::Daemon::new("multus-daemon", &setup.node.path("multus-daemon.log"));
        let mut command = Command::new(programs::multus().join("multus-daemon"));
        command
            .arg("--config")
            .arg(&config)
            .env_clear()
            .env("CNI_PATH", std::env::join_paths(setup.node.cni_path()).unwrap())
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env("KUBERNETES_SERVICE_PORT", setup.port().to_string())
            .env("MULTUS_NODE_NAME", "node-1");
        let id = process.spawn(&mut command);
        let daemon = Self { setup, process, id };
        daemon.wait_until_ready();
        daemon
    }

    fn written(&self) -> Option<Value> {
        let text = fs::read(self.setup.node.path("net.d/00-multus.conf")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    fn wait_until_ready(&self) {
        let start = Instant::now();
        while self.written().is_none() {
            let late = start.elapsed() > Duration::from_secs(120);
            assert!(
                !self.process.has_ended() && !late,
                "multus-daemon does not get ready: {}",
                self.process.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The program that a runtime calls.
    pub fn multus(&self) -> Multus<'n> {
        Multus::shim(self.setup.node, self.written().unwrap())
    }

    /// What the daemon has logged.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The daemon's peak memory in KiB.
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id)).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

/// Converts a list of one plugin to that plugin's configuration. For DEL the daemon keeps only some keys of a list, and
/// `host-local` then finds none of its addresses (multus-cni#1449).
fn single(mut list: Value) -> Value {
    let mut plugin = list["plugins"][0].take();
    for key in ["cniVersion", "name"] {
        plugin[key] = list[key].take();
    }
    plugin
}

fn directory(setup: &Setup, name: &str) -> PathBuf {
    let path = setup.node.path(name);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Writes the token and the CA certificate of the account.
fn account(setup: &Setup) {
    fs::create_dir_all(ACCOUNT).unwrap();
    let file = |name: &str| PathBuf::from(ACCOUNT).join(name);
    fs::write(file("token"), setup.token()).unwrap();
    fs::write(file("namespace"), "kube-system").unwrap();
    fs::copy(setup.server().dir().join("pki/ca.crt"), file("ca.crt")).unwrap();
}

/// Mounts the whole node again, with later mounts such as the namespaces of pods. The machine's own file system is
/// read-only there. The mount point is in the node's own `/run`, which is never removed file by file, so the machine's
/// files stay.
fn host_root() {
    let none = None::<&str>;
    fs::create_dir(ROOT).unwrap();
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SHARED, none).unwrap();
    mount(Some("/"), ROOT, none, MsFlags::MS_REC | MsFlags::MS_BIND, none).unwrap();
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    mount(none, ROOT, none, read_only, none).unwrap();
    let flags = nix::sys::statvfs::statvfs(ROOT).unwrap().flags();
    assert!(flags.contains(nix::sys::statvfs::FsFlags::ST_RDONLY));
}
