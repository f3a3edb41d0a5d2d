// SPDX-License-Identifier: Apache-2.0
//! A DEL that the runtime loses: the agent and its container `collector` remove what the pod has left (docs/operate.md, "A lost DEL").
//!
//! The kernel returns the child of a namespace that is gone to the node. `tests/infiniband` also loses the DELs of whole links.

use crate::cluster::{Cluster, NODES};
use crate::witnesses::nothing_left;
use serde_json::json;

/// Calls the installed plugin as a runtime does, for a pod that the API server does not have. Then the namespace goes without a DEL.
const LOSE: &str = r#"
    export CNI_COMMAND=ADD CNI_CONTAINERID=lost CNI_NETNS=/run/netns/lost CNI_IFNAME=net1 CNI_PATH=/opt/cni/bin
    export CNI_ARGS='IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=lost;K8S_POD_UID=11111111-2222-4333-8444-555555555555'
    ip netns add lost && printf %s "$1" | /opt/cni/bin/cni-ipoib && ip netns del lost
"#;

/// The attachment's entry in the journal of `cni-ipoib`, and its lease.
fn files(cluster: &Cluster, node: &str) -> Result<String, String> {
    let find = "find /run/rdmanet/attachments/lost /var/lib/cni/rdma-ipam/lost/boot-*/leases -name 'lost@net1' 2>/dev/null; true";
    cluster.try_at(node, &["sh", "-c", find])
}

#[test]
fn what_a_lost_del_leaves_is_collected_on_each_node() {
    let cluster = Cluster::lock();
    for (at, node) in NODES.iter().enumerate() {
        let config = json!({
            "cniVersion": "1.1.0", "name": "lost", "type": "cni-ipoib", "master": format!("ib{at}"),
            "ipam": { "type": "rdma-ipam", "ranges": [[{ "subnet": "10.88.0.0/24" }]] },
        });
        cluster.at(node, &["sh", "-c", LOSE, "sh", &config.to_string()]);
        let left = files(&cluster, node).unwrap();
        assert!(!left.is_empty(), "ADD has written nothing on {node}");
        println!(
            "did: lost a DEL on {node}, which leaves {}",
            left.replace('\n', " ")
        );
    }
    for node in NODES {
        cluster.until(
            &format!("nothing of the lost DEL is left on {node}"),
            || match files(&cluster, node)? {
                left if left.is_empty() => Ok(()),
                left => Err(left),
            },
        );
    }
    let logs =
        cluster.kubectl("-n rdmanet-system logs daemonset/rdmanet-agent -c agent --all-pods --tail=-1");
    assert!(logs.contains("collected an attachment without a pod"), "{logs}");
    assert!(
        logs.contains("released a lease of ranges without a pod"),
        "{logs}"
    );
    nothing_left(&cluster);
}
