// SPDX-License-Identifier: Apache-2.0
//! The collector of a node, with the rights and the read-only `/proc/sys` and `/sys` of its container. The test is
//! the agent.

use crate::Node;
use common::collector::{DeadAttachment, Reply, Request, SOCKET_VARIABLE};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the process may take to listen.
const START: Duration = Duration::from_secs(120);

/// `CNI_ARGS` of a pod as kubelet's runtime sends them.
pub const POD_ARGS: &str =
    "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=train-0;K8S_POD_UID=uid-train-0";

/// Runs its arguments where `/proc/sys` and `/sys` are read-only, as runc mounts them for a container that is not
/// privileged. The mount namespace ends with the process.
const IN_CONTAINER: &str =
    "for dir in /proc/sys /sys; do mount -o bind,ro $dir $dir || exit; done; exec \"$@\"";

/// A running collector. It ends with the value.
pub struct Collector {
    child: Child,
    socket: PathBuf,
}

impl Collector {
    /// Starts the collector of `node` in a mount namespace of its own, as user 0 with the capability `NET_ADMIN`
    /// alone.
    pub fn start(node: &Node) -> Self {
        let socket = node.path("collector.sock");
        let child = Command::new("unshare")
            .args(["--mount", "--", "sh", "-c", IN_CONTAINER, "sh"])
            .args([
                "setpriv",
                "--bounding-set=-all,+net_admin",
                "--inh-caps=-all",
                "--no-new-privs",
            ])
            .arg(node.plugin("cni-ipoib"))
            .arg("collect")
            .env("RDMANET_STATE", node.path("state"))
            .env(SOCKET_VARIABLE, &socket)
            .stdin(Stdio::null())
            .spawn()
            .expect("start the collector; unshare, mount and setpriv are in util-linux");
        let begun = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            assert!(begun.elapsed() < START, "the collector does not listen");
            sleep(Duration::from_millis(10));
        }
        Self { child, socket }
    }

    /// The attachments of pods whose namespaces are gone.
    #[track_caller]
    pub fn dead(&self) -> Vec<DeadAttachment> {
        match self.ask(&Request::List) {
            Reply::Dead(dead) => dead,
            other => panic!("the collector answers {other:?} to a list"),
        }
    }

    /// Asks to remove one of them, as soon as it is seen unused.
    pub fn collect(&self, dead: &DeadAttachment) -> Reply {
        self.ask(&Request::Collect {
            dead: dead.clone(),
            seconds: 0,
        })
    }

    fn ask(&self, request: &Request) -> Reply {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        let line = serde_json::to_string(request).unwrap();
        stream.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut reply = String::new();
        BufReader::new(stream).read_line(&mut reply).unwrap();
        serde_json::from_str(&reply).unwrap()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
