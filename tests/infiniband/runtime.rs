// SPDX-License-Identifier: Apache-2.0
//! Calls as a container runtime makes them: `cnitool`, based on libcni, with the files of `conf/`.

use crate::fabric::{printed, reaches, run};
use std::path::Path;
use std::process::Command;
use tests::{Pod, Value, programs};

const CONFIGURATIONS: &str = "/etc/cni/net.d";

/// Runs cnitool, which must succeed, and returns its output.
#[track_caller]
fn cnitool(verb: &str, network: &str, pod: &Pod<'_>) -> String {
    printed(&mut cnitool_call(verb, network, pod))
}

/// The command for cnitool on the interface `net1` of the pod.
fn cnitool_call(verb: &str, network: &str, pod: &Pod<'_>) -> Command {
    assert!(
        Path::new(CONFIGURATIONS).join("ipoib-rail0.conflist").exists(),
        "{CONFIGURATIONS} has no ipoib-rail0.conflist: give tests/fabric/run --share \"$PWD/conf:{CONFIGURATIONS}\""
    );
    let mut call = Command::new(programs::peers().join("cnitool"));
    call.args([verb, network])
        .arg(&pod.netns)
        .env("CNI_PATH", "/opt/cni/bin")
        .env("NETCONFPATH", CONFIGURATIONS)
        .env("CNI_IFNAME", "net1");
    call
}

/// Removes addresses in cooldown that another test released: the files of `conf/` name the VM's own store.
fn forget_released() {
    let _ = std::fs::remove_dir_all("/var/lib/cni/rdma-ipam");
}

/// Records of attachments and leases in their default places.
fn files() -> Vec<String> {
    let found = printed(Command::new("find").args(["/run/rdmanet", "/var/lib/cni/rdma-ipam", "-type", "f"]));
    let ours = |file: &&str| {
        ["/attachments/", "/leases/", "/addresses/"]
            .iter()
            .any(|part| file.contains(part))
    };
    found.lines().filter(ours).map(str::to_owned).collect()
}

fn first_address(result: &str) -> String {
    let result: Value = serde_json::from_str(result).unwrap();
    result["ips"][0]["address"].as_str().unwrap().to_owned()
}

#[test]
fn pods_added_with_cnitool_get_no_excluded_address_and_can_be_deleted() {
    run(|node| {
        forget_released();
        let pods = [node.pod(), node.pod(), node.pod()];
        let rails = ["rail0", "rail1", "rail0"];
        let addresses: Vec<_> = rails
            .iter()
            .zip(&pods)
            .map(|(rail, pod)| first_address(&cnitool("add", rail, pod)))
            .collect();
        // .129, .131 to .134 and .136 are excluded; both rails allocate from one range.
        assert_eq!(
            addresses,
            ["192.168.5.130/27", "192.168.5.135/27", "192.168.5.137/27"]
        );
        reaches(&pods[0], "192.168.5.135");
        reaches(&pods[2], "192.168.5.130");
        for (rail, pod) in rails.iter().zip(&pods) {
            cnitool("check", rail, pod);
            cnitool("status", rail, pod);
            cnitool("del", rail, pod);
            cnitool("del", rail, pod);
            assert!(pod.links().is_empty());
        }
        assert_eq!(files(), [""; 0]);
    });
}

#[test]
fn pods_of_a_tenant_partition_reach_each_other_over_both_families() {
    run(|node| {
        let pods = [node.pod(), node.pod()];
        for pod in &pods {
            cnitool("add", "tenant-a", pod);
        }
        assert_eq!(
            pods[1].route("net1", "10.21.0.0/16").gateway,
            Some("10.20.0.1".parse().unwrap())
        );
        for address in pods[1].global("net1") {
            reaches(&pods[0], address.split('/').next().unwrap());
        }
        for pod in &pods {
            cnitool("check", "tenant-a", pod);
            cnitool("del", "tenant-a", pod);
            assert!(pod.links().is_empty());
        }
        assert_eq!(files(), [""; 0]);
    });
}

#[test]
fn cnitool_gc_detaches_every_living_pod_that_cnitool_attached() {
    run(|node| {
        let pods = [node.pod(), node.pod()];
        for pod in &pods {
            cnitool("add", "rail0", pod);
            assert_eq!(pod.link_names(), ["net1"]);
        }
        // libcni calls DEL for every cached attachment, then GC. cnitool sends no list of valid attachments with GC.
        let output = cnitool_call("gc", "rail0", &pods[0]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stderr.contains("cni.dev/valid-attachments") && stderr.contains("nothing is removed"),
            "{output:?}"
        );
        for pod in &pods {
            assert!(pod.links().is_empty(), "{:?}", pod.link_names());
        }
        assert_eq!(files(), [""; 0]);
    });
}
