// SPDX-License-Identifier: Apache-2.0
//! The names, the configurations and the tools that users have already.

use crate::fabric::{network, on_fabric};
use common::netlink::LinkInfo;
use common::rdma::Pkey;
use std::path::Path;
use std::process::{Command, Output};
use tests::{Node, Pod, json, traces::assert_same};

/// The configurations that are shipped, by the name of their network.
const SHIPPED: [(&str, &str); 2] = [
    ("rail0", include_str!("../../conf/ipoib-rail0.conflist")),
    ("tenant-a", include_str!("../../conf/ipoib-pkey.conflist")),
];

#[test]
fn under_the_name_ipoib_a_configuration_of_ipoib_cni_works_as_it_is() {
    on_fabric(|node| {
        node.install_as("ipoib");
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let conf = node
            .conf(json!({
                "type": "ipoib", "name": "ipoib-network", "master": "ib0", "mtu": 2044, "ipMasq": false,
                "ipam": node.host_local("10.7.0.0/24"),
            }))
            .version("0.3.1");
        let result = pod.attach(&conf, "net1");
        assert_eq!(result["ips"][0]["address"], "10.7.0.2/24");
        assert_eq!(pod.link("net1").mtu, 2044);
        pod.detach(&conf, "net1");
        assert_same(&before, &node.traces(&[&pod]), "after DEL");
    });
}

/// Runs the CNI project's own tool as an administrator does.
fn cnitool(node: &Node, verb: &str, network: &str, pod: &Pod<'_>) -> Output {
    let path = std::env::join_paths(node.cni_path()).unwrap();
    Command::new(node.plugin("cnitool"))
        .args([verb, network])
        .arg(&pod.netns)
        .env("CNI_PATH", path)
        .env("NETCONFPATH", node.path("net.d"))
        .env("CNI_IFNAME", "net1")
        .env("RDMANET_STATE", node.path("state"))
        .output()
        .unwrap()
}

#[track_caller]
fn works(node: &Node, verb: &str, network: &str, pod: &Pod<'_>) -> String {
    let output = cnitool(node, verb, network, pod);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "cnitool {verb} {network}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Every live lease in the store that the shipped configurations use.
fn shipped_leases() -> usize {
    let mut folders = vec![Path::new("/var/lib/cni/rdma-ipam").to_owned()];
    let mut leases = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if entry.path().to_string_lossy().contains("/leases/") {
                leases += 1;
            }
        }
    }
    leases
}

#[test]
fn cnitool_runs_every_verb_with_the_configurations_that_are_shipped() {
    on_fabric(|node| {
        std::fs::create_dir(node.path("net.d")).unwrap();
        for (name, text) in SHIPPED {
            std::fs::write(node.path("net.d").join(format!("{name}.conflist")), text).unwrap();
            let pod = node.pod();
            let before = node.traces(&[&pod]);
            works(node, "status", name, &pod);
            let result = works(node, "add", name, &pod);
            assert!(result.contains("\"net1\""), "{result}");
            let address = &pod.global("net1")[0];
            assert!(result.contains(address.as_str()), "{address} is not in {result}");
            works(node, "check", name, &pod);
            works(node, "del", name, &pod);
            works(node, "del", name, &pod);
            assert_same(
                &before,
                &node.traces(&[&pod]),
                &format!("after cnitool del {name}"),
            );
            works(node, "add", name, &pod);
            assert_eq!(shipped_leases(), 1);
            works(node, "gc", name, &pod);
            assert_same(
                &before,
                &node.traces(&[&pod]),
                &format!("after cnitool gc {name}"),
            );
            assert_eq!(shipped_leases(), 0);
        }
    });
}

#[test]
fn the_shipped_configurations_mean_what_they_say() {
    on_fabric(|node| {
        std::fs::create_dir(node.path("net.d")).unwrap();
        for (name, text) in SHIPPED {
            std::fs::write(node.path("net.d").join(format!("{name}.conflist")), text).unwrap();
        }
        let (plain, tenant) = (node.pod(), node.pod());
        works(node, "add", "rail0", &plain);
        works(node, "add", "tenant-a", &tenant);
        let addresses = plain.global("net1");
        assert!(
            addresses[0].starts_with("192.168.5.") && !addresses[0].starts_with("192.168.5.129"),
            "{addresses:?}"
        );
        assert!(matches!(
            tenant.link("net1").info,
            LinkInfo::Ipoib {
                pkey: Pkey(0x8001),
                ..
            }
        ));
        assert_eq!(tenant.global("net1").len(), 2, "one address of each family");
        assert_eq!(
            tenant.route("net1", "10.21.0.0/16").gateway,
            Some("10.20.0.1".parse().unwrap())
        );
        works(node, "del", "rail0", &plain);
        works(node, "del", "tenant-a", &tenant);
    });
}

#[test]
fn host_local_and_static_work_on_infiniband() {
    on_fabric(|node| {
        let fixed = json!({"type": "static", "addresses": [{"address": "10.9.0.7/24"}]});
        for ipam in [node.host_local("10.8.0.0/24"), fixed] {
            let pod = node.pod();
            let before = node.traces(&[&pod]);
            let conf = network(node, "ib0", &json!({"ipam": ipam}));
            pod.attach(&conf, "net1");
            pod.check(&conf, "net1").done();
            pod.detach(&conf, "net1");
            assert_same(&before, &node.traces(&[&pod]), "after DEL");
        }
    });
}
