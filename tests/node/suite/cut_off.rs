// SPDX-License-Identifier: Apache-2.0
//! Nodes whose agents get no answer from the API server (docs/operate.md, "When something breaks" and "Metrics").
//!
//! Invariant: each test ends with agents that are ready.

use crate::cluster::Cluster;
use crate::lost_del::{Lost, OF_A_POD, ranges};
use crate::pools::remove_pool;
use crate::returns::back;
use crate::steps::{NO_ROUTE, agent_log, agents_on, becomes, metric, none_of, refused, set_agents, shell};
use crate::witnesses::{agree, nothing_left};
use crate::workload::{network, ready, remove, start};
use serde_json::{Value, json};

/// Calls ADD, then DEL, of a network as a runtime does. Prints what ADD says. Arguments: the network configuration.
const ADD_AND_DEL: &str = r#"
    ip netns add by-hand
    export CNI_CONTAINERID=by-hand CNI_NETNS=/run/netns/by-hand CNI_IFNAME=net1 CNI_PATH=/opt/cni/bin
    printf %s "$1" | CNI_COMMAND=ADD /opt/cni/bin/cni-ipoib
    printf %s "$1" | CNI_COMMAND=DEL /opt/cni/bin/cni-ipoib
    ip netns del by-hand
"#;

/// The answer of node-1's agent at `/readyz`, whatever its status.
fn readyz(cluster: &Cluster) -> Result<String, String> {
    let request = r"printf 'GET /readyz HTTP/1.0\r\n\r\n' | nc 127.0.0.1 9471";
    cluster.try_at("node-1", &["sh", "-c", request])
}

#[test]
fn a_node_cut_off_from_the_api_server_serves_its_blocks_and_collects_nothing() {
    let cluster = Cluster::lock();
    let each = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": "each" },
        "spec": { "allocation": "PerAddress", "ranges": [{ "subnet": "10.84.0.0/28", "gateway": "none" }] },
    });
    cluster.apply(&[each, network("each")]);
    becomes(&cluster, "ippool each", "Ready", "True", "Accepted");
    let kept = start(&cluster, "kept", "ib-ipoib", "node-1");
    let failed = || metric(&cluster, "node-1", "rdmanet_watch_errors_total{source=\"pools\"}");
    let before = failed();
    shell(&cluster, "node-1", &format!("ip route add {NO_ROUTE}"));
    let lost = Lost::child(&cluster, "node-1", "lost", &ranges(), OF_A_POD);
    cluster.until(
        "the agent is not ready, and names all that it cannot read",
        || {
            let answer = readyz(&cluster)?;
            let named = ["Node of this node", "pools", "blocks"]
                .iter()
                .all(|source| answer.contains(source));
            if answer.contains(" 503 ") && named {
                Ok(())
            } else {
                Err(answer)
            }
        },
    );
    assert!(failed() > before, "{before:?}");
    let config = |pool: &str| {
        let config = json!({
            "cniVersion": "1.1.0", "name": pool, "type": "cni-ipoib", "master": "ib0",
            "ipam": { "type": "rdma-ipam", "pool": pool },
        });
        config.to_string()
    };
    let add = |pool: &str| cluster.at("node-1", &["sh", "-c", ADD_AND_DEL, "sh", &config(pool)]);
    let added: Value = serde_json::from_str(&add("rail0")).unwrap();
    assert_ne!(added["ips"][0]["address"], Value::Null, "{added}");
    assert_ne!(added["ips"][0]["address"].as_str(), Some(kept.address.as_str()));
    let said = add("each");
    assert!(
        said.contains("\"code\": 119") || said.contains("\"code\":119"),
        "{said}"
    );
    // Twice the time between two observations has passed since the DEL was lost, at least.
    std::thread::sleep(std::time::Duration::from_secs(60));
    assert_eq!(lost.left().unwrap().len(), 2);
    shell(&cluster, "node-1", &format!("ip route del {NO_ROUTE}"));
    cluster.until("the agent is ready", || {
        let answer = readyz(&cluster)?;
        if answer.contains(" 200 ") {
            Ok(())
        } else {
            Err(answer)
        }
    });
    lost.collected_but("");
    agree(&cluster, 1);
    remove(&cluster, "pod/kept");
    remove_pool(&cluster, "each");
    nothing_left(&cluster);
}

#[test]
fn a_node_that_reboots_without_its_agent_waits_for_it() {
    let cluster = Cluster::lock();
    agents_on(&cluster, &json!("none"));
    none_of(&cluster, "rdmanet-agent");
    cluster.power_off("node-2");
    cluster.power_on("node-2");
    // No time service sets the clock of the VM.
    refused(&cluster, "early", "ib-ipoib", "node-2", 11);
    agents_on(&cluster, &Value::Null);
    back(&cluster, "node-2");
    ready(&cluster, "early");
    agree(&cluster, 1);
    remove(&cluster, "pod/early");
    nothing_left(&cluster);
}

#[test]
fn behind_a_refusing_proxy_nodes_serve_their_blocks_and_the_log_names_the_proxy() {
    let cluster = Cluster::lock();
    // It answers CONNECT with an error.
    shell(
        &cluster,
        "node-1",
        "mkdir -p /run/proxy && httpd -p 127.0.0.1:3128 -h /run/proxy",
    );
    cluster.kubectl(
        "-n rdmanet-system set env daemonset/rdmanet-agent --containers=agent HTTPS_PROXY=http://127.0.0.1:3128",
    );
    for (node, cause) in [("node-1", "rejects CONNECT"), ("node-2", "Connection refused")] {
        // The rollout replaces the agents one after the other, and waits for the first.
        cluster.kubectl(&format!(
            "-n rdmanet-system delete pod -l app.kubernetes.io/name=rdmanet-agent --field-selector spec.nodeName={node}"
        ));
        cluster.until(&format!("the agent of {node} names the proxy"), || {
            let log = agent_log(&cluster, node);
            let named = log
                .lines()
                .any(|line| line.contains("http://127.0.0.1:3128") && line.contains(cause));
            if named { Ok(()) } else { Err(log) }
        });
    }
    let kept = start(&cluster, "kept", "ib-ipoib", "node-1");
    println!("did: {kept:?} has an address while the agents reach no API server");
    set_agents(&cluster, "HTTPS_PROXY-");
    shell(&cluster, "node-1", "kill $(pidof httpd); rm -r /run/proxy");
    agree(&cluster, 1);
    remove(&cluster, "pod/kept");
    nothing_left(&cluster);
}
