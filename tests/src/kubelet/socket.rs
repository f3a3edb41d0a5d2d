// SPDX-License-Identifier: Apache-2.0
//! The socket on which a kubelet reports the devices of each pod. Multus reads it first (`pkg/kubeletclient`).
//!
//! Invariant: the socket is in the mount namespace of the thread that started the kubelet. The program is written in Go
//! (`tests/go/multus`): gRPC for Go sends the path of the socket as `:authority`, which HTTP/2 libraries of Rust reject
//! (`RST_STREAM`, `PROTOCOL_ERROR`).

use super::Allocation;
use crate::programs;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// The path of every kubelet's socket.
const SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";

/// A kubelet that serves its socket until the value is dropped.
pub struct Kubelet {
    child: Child,
    calls: NamedTempFile,
}

impl Kubelet {
    /// Starts a kubelet that has allocated these devices.
    pub fn start(allocations: &[Allocation]) -> Self {
        fs::create_dir_all(Path::new(SOCKET).parent().unwrap()).unwrap();
        // The socket of a killed kubelet may remain.
        let _ = fs::remove_file(SOCKET);
        let calls = NamedTempFile::new().unwrap();
        let mut child = Command::new(programs::multus().join("podresources"))
            .arg(SOCKET)
            .stdin(Stdio::piped())
            .stdout(calls.reopen().unwrap())
            .spawn()
            .unwrap();
        let list = json!({ "podResources": pods(allocations) });
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(list.to_string().as_bytes()).unwrap();
        drop(stdin);
        let mut kubelet = Self { child, calls };
        kubelet.wait_until_ready();
        kubelet
    }

    fn wait_until_ready(&mut self) {
        let start = Instant::now();
        while !Path::new(SOCKET).exists() {
            let ended = self.child.try_wait().unwrap();
            let late = start.elapsed() > Duration::from_secs(120);
            assert!(ended.is_none() && !late, "no {SOCKET}: {ended:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The number of requests for the list.
    pub fn asked(&self) -> usize {
        let calls = fs::read_to_string(self.calls.path()).unwrap();
        let lists = calls
            .lines()
            .filter(|line| line.ends_with("PodResourcesLister/List"));
        lists.count()
    }

    /// Stops the kubelet like a crash: the socket file stays, and no process listens.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(SOCKET);
    }
}

/// The pods of the node with each device in its own entry. A device has a NUMA node if its plugin reported one; the
/// SR-IOV plugin does, and the RDMA shared device plugin does not (`pkg/kubelet/cm`,
/// `containerDevicesFromResourceDeviceInstances`).
fn pods(allocations: &[Allocation]) -> Vec<Value> {
    let mut pods =
        vec![json!({ "name": "coredns", "namespace": "kube-system", "containers": [{ "name": "coredns" }] })];
    for allocation in allocations {
        let device = |id: &&str| {
            let mut device = json!({ "resourceName": allocation.resource, "deviceIds": [id] });
            if id.contains(':') {
                device["topology"] = json!({ "nodes": [{ "ID": 0 }] });
            }
            device
        };
        let devices: Vec<Value> = allocation.devices.iter().map(device).collect();
        pods.push(json!({
            "name": allocation.pod.name, "namespace": allocation.pod.namespace,
            "containers": [{ "name": "main", "devices": devices }],
        }));
    }
    pods
}
