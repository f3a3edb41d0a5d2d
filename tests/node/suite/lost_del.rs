// SPDX-License-Identifier: Apache-2.0
//! A DEL that the runtime loses: the agent and its container `collector` remove what the pod has left (docs/operate.md, "A lost DEL").
//!
//! The kernel returns the child of a namespace that is gone to the node. `tests/infiniband` also loses the DELs of whole links.

use crate::cluster::{Cluster, NODES};
use crate::steps::{agent_log, metric, shell};
use crate::witnesses::{agree, nothing_left};
use serde_json::{Value, json};

/// Calls the installed plugin as a runtime does. Then the namespace goes without a DEL. Arguments: the network configuration, the
/// name of the container, `CNI_ARGS`.
const LOSE: &str = r#"
    export CNI_COMMAND=ADD CNI_CONTAINERID=$2 CNI_NETNS=/run/netns/$2 CNI_IFNAME=net1 CNI_PATH=/opt/cni/bin CNI_ARGS=$3
    ip netns add "$2" && printf %s "$1" | /opt/cni/bin/cni-ipoib && ip netns del "$2"
"#;

/// Calls the installed plugin without a namespace. Arguments: the network configuration, the name of the container, the verb.
const CALL: &str = r#"
    export CNI_COMMAND=$3 CNI_CONTAINERID=$2 CNI_NETNS= CNI_IFNAME=net1 CNI_PATH=/opt/cni/bin
    printf %s "$1" | /opt/cni/bin/cni-ipoib
"#;

/// `CNI_ARGS` of a pod that the API server does not have.
pub(crate) const OF_A_POD: &str = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=lost;K8S_POD_UID=11111111-2222-4333-8444-555555555555";

/// What an attachment of container `$1` has: its entry in the journal of `cni-ipoib`, its lease of any directory, its address of a pool,
/// and its record of `host-local`.
const LEFT: &str = r#"
    find /run/rdmanet/attachments -name "$1@net1" 2>/dev/null
    find /var/lib/cni/rdma-ipam /var/lib/other -path '*/leases/*' -name "$1@net1" 2>/dev/null
    grep -ls "$1" /var/lib/cni/networks/lost/10.* 2>/dev/null
    true
"#;

/// An attachment whose DEL is lost.
pub(crate) struct Lost<'c> {
    cluster: &'c Cluster,
    node: &'static str,
    container: &'static str,
    config: Value,
}

impl<'c> Lost<'c> {
    /// Adds a child of the node's first port, with addresses of `ipam`.
    pub(crate) fn child(
        cluster: &'c Cluster,
        node: &'static str,
        container: &'static str,
        ipam: &Value,
        args: &str,
    ) -> Self {
        let at = NODES.iter().position(|name| *name == node).unwrap();
        let config = json!({
            "cniVersion": "1.1.0", "name": "lost", "type": "cni-ipoib", "master": format!("ib{at}"), "ipam": ipam,
        });
        Self::of(cluster, node, container, config, args)
    }

    fn of(
        cluster: &'c Cluster,
        node: &'static str,
        container: &'static str,
        config: Value,
        args: &str,
    ) -> Self {
        cluster.at(
            node,
            &["sh", "-c", LOSE, "sh", &config.to_string(), container, args],
        );
        let lost = Self {
            cluster,
            node,
            container,
            config,
        };
        let left = lost.left().unwrap();
        assert!(!left.is_empty(), "ADD has written nothing on {node}");
        println!("did: lost the DEL of {container} on {node}, which leaves {left:?}");
        lost
    }

    /// What is left of it, as paths.
    pub(crate) fn left(&self) -> Result<Vec<String>, String> {
        let text = self
            .cluster
            .try_at(self.node, &["sh", "-c", LEFT, "sh", self.container])?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Waits until nothing is left but a path that has `rest` in it, if it has a length.
    pub(crate) fn collected_but(&self, rest: &str) {
        let what = format!("{} has nothing left but '{rest}'", self.container);
        self.cluster.until(&what, || {
            let left = self.left()?;
            let is_rest = match left.as_slice() {
                [] => rest.is_empty(),
                [one] => !rest.is_empty() && one.contains(rest),
                _ => false,
            };
            if is_rest { Ok(()) } else { Err(format!("{left:?}")) }
        });
    }

    /// Calls a verb of the plugin by hand, with more keys in the network configuration.
    fn call(&self, verb: &str, keys: &Value) {
        let mut config = self.config.clone();
        for (key, value) in keys.as_object().unwrap() {
            config[key] = value.clone();
        }
        self.cluster.at(
            self.node,
            &["sh", "-c", CALL, "sh", &config.to_string(), self.container, verb],
        );
    }
}

/// Addresses from files of the node.
pub(crate) fn ranges() -> Value {
    json!({ "type": "rdma-ipam", "ranges": [[{ "subnet": "10.88.0.0/24" }]] })
}

#[test]
fn what_a_lost_del_leaves_is_collected_on_each_node() {
    let cluster = Cluster::lock();
    let pool = json!({ "type": "rdma-ipam", "pool": "rail0" });
    let mut all = Vec::new();
    for node in NODES {
        all.push(Lost::child(&cluster, node, "lost", &ranges(), OF_A_POD));
        all.push(Lost::child(&cluster, node, "lost-of-pool", &pool, OF_A_POD));
    }
    for lost in &all {
        lost.collected_but("");
    }
    for node in NODES {
        let log = agent_log(&cluster, node);
        for line in [
            "collected an attachment without a pod",
            "released a lease of ranges without a pod",
            "released a lease without a pod",
        ] {
            assert!(log.contains(line), "{node}: {line} is not in {log}");
        }
        for name in [
            "rdmanet_addresses_reclaimed_total{pool=\"rail0\"}",
            "rdmanet_garbage_collected_total{kind=\"attachment\"}",
            "rdmanet_garbage_collected_total{kind=\"lease\"}",
        ] {
            assert!(metric(&cluster, node, name) > Some(0), "{node}: {name}");
        }
    }
    nothing_left(&cluster);
}

#[test]
fn an_attachment_without_a_pod_waits_for_a_gc_by_hand() {
    let cluster = Cluster::lock();
    let pool = json!({ "type": "rdma-ipam", "pool": "rail0" });
    let of_ranges = Lost::child(&cluster, "node-1", "tool", &ranges(), "");
    let of_pool = Lost::child(&cluster, "node-1", "tool-of-pool", &pool, "");
    let listed = Lost::child(&cluster, "node-1", "tool-listed", &ranges(), "");
    // Of an attachment with an address of a pool, the lease goes and the rest waits.
    of_pool.collected_but("/run/rdmanet/attachments/");
    // The agent has looked for garbage again and again meanwhile.
    assert_eq!(of_ranges.left().unwrap().len(), 2);
    let valid = json!([{ "containerID": "tool-listed", "ifname": "net1" }]);
    of_ranges.call("GC", &json!({ "cni.dev/valid-attachments": valid }));
    of_ranges.collected_but("");
    of_pool.collected_but("");
    assert_eq!(listed.left().unwrap().len(), 2);
    listed.call("DEL", &json!({}));
    listed.collected_but("");
    nothing_left(&cluster);
}

#[test]
fn addresses_of_other_stores_wait_for_the_del() {
    let cluster = Cluster::lock();
    let other = json!({ "type": "host-local", "ranges": [[{ "subnet": "10.88.1.0/24" }]] });
    let mut elsewhere = ranges();
    elsewhere["dataDir"] = "/var/lib/other".into();
    let all = [
        Lost::child(&cluster, "node-1", "host-local", &other, OF_A_POD),
        Lost::child(&cluster, "node-2", "elsewhere", &elsewhere, OF_A_POD),
    ];
    all[1].collected_but("/var/lib/other/");
    cluster.until("the link of the other IPAM plugin's address is collected", || {
        let log = agent_log(&cluster, "node-1");
        let is =
            |line: &str| line.contains("collected an attachment") && line.contains("container host-local");
        if log.lines().any(is) { Ok(()) } else { Err(log) }
    });
    // The journal keeps the entry, for the DEL of the IPAM plugin.
    let left = all[0].left().unwrap();
    assert_eq!(left.len(), 2, "{left:?}");
    agree(&cluster, 0);
    for lost in &all {
        lost.call("DEL", &json!({}));
        lost.collected_but("");
        lost.cluster.at(
            lost.node,
            &["rm", "-rf", "/var/lib/other", "/var/lib/cni/networks/lost"],
        );
    }
    nothing_left(&cluster);
}

#[test]
fn a_whole_link_with_changed_sysctls_waits_for_the_del() {
    let cluster = Cluster::lock();
    let of = |link: &str| format!("/proc/sys/net/ipv4/conf/{link}/rp_filter");
    let read = |link: &str| cluster.at("node-1", &["cat", &of(link)]);
    let before = read("ib0");
    let changed = if read("default") == "2" { "1" } else { "2" };
    let set = |value: &str| shell(&cluster, "node-1", &format!("echo {value} >{}", of("ib0")));
    set(changed);
    let config = json!({
        "cniVersion": "1.1.0", "name": "lost", "type": "cni-ipoib", "mode": "device", "master": "ib0", "keepLast": false,
        "ipam": ranges(),
    });
    let lost = Lost::of(&cluster, "node-1", "whole", config, OF_A_POD);
    cluster.until("the agent counts what it could not remove", || {
        match metric(&cluster, "node-1", "rdmanet_garbage_left") {
            Some(1) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    let log = agent_log(&cluster, "node-1");
    let of_this = |line: &&str| line.contains("without a pod failed") && line.contains("container whole");
    assert_eq!(log.lines().filter(of_this).count(), 1, "{log}");
    lost.call("DEL", &json!({}));
    lost.collected_but("");
    assert_eq!(read("ib0"), changed);
    set(&before);
    cluster.until("the agent counts nothing any more", || {
        match metric(&cluster, "node-1", "rdmanet_garbage_left") {
            Some(0) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    nothing_left(&cluster);
}

/// docs/install.md, "What the pods may do": a cluster that does not allow the collector.
#[test]
fn without_a_collector_the_lease_is_collected_and_the_link_waits() {
    let cluster = Cluster::lock();
    let containers = cluster.get("-n rdmanet-system daemonset rdmanet-agent");
    let containers = containers["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap();
    let at = containers
        .iter()
        .position(|one| one["name"] == "collector")
        .unwrap();
    let remove = json!([{ "op": "remove", "path": format!("/spec/template/spec/containers/{at}") }]);
    cluster.kubectl(&format!(
        "-n rdmanet-system patch daemonset rdmanet-agent --type json -p {remove}"
    ));
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
    let lost = Lost::child(&cluster, "node-1", "lost", &ranges(), OF_A_POD);
    lost.collected_but("/run/rdmanet/attachments/");
    let log = agent_log(&cluster, "node-1");
    assert_eq!(log.matches("no collector listens").count(), 1, "{log}");
    cluster.kubectl("apply -k conf/base");
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
    lost.collected_but("");
    nothing_left(&cluster);
}
