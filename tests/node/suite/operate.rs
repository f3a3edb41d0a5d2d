// SPDX-License-Identifier: Apache-2.0
//! What docs/operate.md says of a cluster at work: conditions of nodes and pools, what continues while a part does not run, and what an
//! administrator does then.
//!
//! Invariant: each test ends with the cluster as it was before.

use crate::cluster::{Cluster, NODES, repository};
use crate::pools::{gone, remove_pool, small_pool};
use crate::steps::{
    Events, agent_log, agent_of, agents_on, becomes, cable, conditions, links_become, none_of, refused,
    set_agents, shell,
};
use crate::witnesses::{agree, nothing_left};
use crate::workload::{network, one_on_each, ping, ready, remove, remove_trainers, start, trainers};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[test]
fn the_condition_of_a_node_follows_its_cable_and_its_administrator() {
    let cluster = Cluster::lock();
    links_become(&cluster, "node-2", "True", "LinksUp");
    let events = Events::of_node_from_now(&cluster, "node-2");
    cable(&cluster, "0");
    links_become(&cluster, "node-2", "False", "LinkDown");
    events.wait(&cluster, "LinkDown", "Warning");
    let check = cluster.rdmanet("check");
    assert!(check.contains("node-2"), "{check}");
    refused(&cluster, "cut", "ib-ipoib", "node-2", 102);
    let events = Events::of_node_from_now(&cluster, "node-2");
    cable(&cluster, "1");
    links_become(&cluster, "node-2", "True", "LinksUp");
    events.wait(&cluster, "LinkUp", "Normal");
    ready(&cluster, "cut");
    remove(&cluster, "pod/cut");

    cluster.at("node-2", &["ip", "link", "set", "ib1", "down"]);
    links_become(&cluster, "node-2", "Unknown", "NoLinks");
    cluster.at("node-2", &["ip", "link", "set", "ib1", "up"]);
    links_become(&cluster, "node-2", "True", "LinksUp");
    nothing_left(&cluster);
}

#[test]
fn a_cable_that_flaps_costs_one_write_in_ten_seconds() {
    let cluster = Cluster::lock();
    links_become(&cluster, "node-2", "True", "LinksUp");
    let writes = || {
        let log = std::fs::read_to_string(cluster.directory().join("audit.log")).unwrap();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let is = |entry: &Value| {
            let of = &entry["objectRef"];
            let by = entry["user"]["username"].as_str().unwrap_or_default();
            by.ends_with(":rdmanet-agent") && of["name"] == "node-2" && of["subresource"] == "status"
        };
        lines.filter(is).count()
    };
    let (before, begun) = (writes(), Instant::now());
    for _ in 0..20 {
        cable(&cluster, "0");
        std::thread::sleep(Duration::from_secs(1));
        cable(&cluster, "1");
        std::thread::sleep(Duration::from_secs(1));
    }
    links_become(&cluster, "node-2", "True", "LinksUp");
    let (made, took) = (writes() - before, begun.elapsed().as_secs());
    println!("did: 20 flaps in {took} s cost {made} writes");
    assert!(made > 1, "the agent has reported no flap");
    assert!(made as u64 <= took / 10 + 2, "{made} writes in {took} s");
    nothing_left(&cluster);
}

#[test]
fn the_agent_of_each_node_serves_health_and_metrics() {
    let cluster = Cluster::lock();
    trainers(&cluster);
    for node in NODES {
        let read = |path: &str| {
            let url = format!("http://127.0.0.1:9471{path}");
            cluster.try_at(node, &["wget", "-qO-", &url])
        };
        read("/healthz").unwrap();
        cluster.until("the agent is ready", || read("/readyz"));
        cluster.until("the metrics count two addresses and one link", || {
            let metrics = read("/metrics")?;
            let used = metrics.contains("rdmanet_addresses_used{pool=\"rail0\"} 2\n");
            let link = metrics
                .lines()
                .any(|line| line.starts_with("rdmanet_link_up{") && line.ends_with(" 1"));
            if used && link { Ok(()) } else { Err(metrics) }
        });
    }
    remove_trainers(&cluster);
}

/// What the controller's pods serve at this path, each with the name of its pod.
fn of_controllers(cluster: &Cluster, path: &str) -> Result<Vec<(String, String)>, String> {
    let pods = cluster.get("-n rdmanet-system pods -l app.kubernetes.io/name=rdmanet-controller");
    let pods = pods["items"].as_array().unwrap().iter();
    pods.map(|pod| {
        let address = pod["status"]["podIP"].as_str().ok_or_else(|| pod.to_string())?;
        let url = format!("http://{address}:9472{path}");
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        Ok((name, cluster.try_at("node-1", &["wget", "-qO-", &url])?))
    })
    .collect()
}

#[test]
fn both_controllers_serve_health_and_metrics_and_one_leads() {
    let cluster = Cluster::lock();
    for path in ["/healthz", "/readyz"] {
        let answers = cluster.until("both controllers answer", || of_controllers(&cluster, path));
        assert_eq!(answers.len(), 2, "{answers:?}");
    }
    cluster.until(
        "the holder of the Lease says that it leads, and the other does not",
        || {
            let holder = cluster
                .kubectl("-n rdmanet-system get lease rdmanet-controller -o jsonpath={.spec.holderIdentity}");
            let metrics = of_controllers(&cluster, "/metrics")?;
            let leads = |text: &str| text.contains("\nrdmanet_controller_leader 1\n");
            let right = metrics
                .iter()
                .all(|(name, text)| leads(text) == (*name == holder));
            let pool = |(_, text): &(String, String)| {
                text.contains("rdmanet_pool_addresses{pool=\"rail0\"} 65279\n")
            };
            if right && metrics.iter().any(pool) {
                Ok(())
            } else {
                Err(format!("{holder}: {metrics:?}"))
            }
        },
    );
}

/// The names in the first column of the table "Metrics" of docs/operate.md.
fn documented_metrics() -> Vec<String> {
    let page = std::fs::read_to_string(repository().join("docs/operate.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `rdmanet_"));
    rows.filter_map(|row| row.split('`').next())
        .map(|name| format!("rdmanet_{name}"))
        .collect()
}

#[test]
fn every_metric_that_is_served_is_documented() {
    let cluster = Cluster::lock();
    let names = documented_metrics();
    let agent = cluster.at("node-1", &["wget", "-qO-", "http://127.0.0.1:9471/metrics"]);
    let controllers = cluster.until("both controllers answer", || of_controllers(&cluster, "/metrics"));
    let served: Vec<&str> = agent
        .lines()
        .chain(controllers.iter().flat_map(|(_, text)| text.lines()))
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    for name in ["rdmanet_build", "rdmanet_blocks", "rdmanet_pool_addresses"] {
        assert!(served.contains(&name), "{name} is not in {served:?}");
    }
    let unknown: Vec<&&str> = served
        .iter()
        .filter(|name| !names.iter().any(|known| known == **name))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?} are not in {names:?}");
}

#[test]
fn a_port_in_a_pod_does_not_count_as_a_link_of_the_node() {
    let cluster = Cluster::lock();
    let config = json!({
        "cniVersion": "1.1.0", "name": "whole", "type": "cni-ipoib", "mode": "device", "master": "ib1",
        "keepLast": false, "ipam": {"type": "rdma-ipam", "pool": "rail0"},
    });
    let mut whole = network("whole");
    whole["spec"]["config"] = config.to_string().into();
    cluster.apply(&[whole]);
    links_become(&cluster, "node-2", "True", "LinksUp");
    start(&cluster, "whole", "whole", "node-2");
    links_become(&cluster, "node-2", "Unknown", "NoLinks");
    remove(&cluster, "pod/whole");
    links_become(&cluster, "node-2", "True", "LinksUp");
    cluster.kubectl("delete network-attachment-definitions whole");
    nothing_left(&cluster);
}

#[test]
fn the_flag_links_names_the_links_that_count() {
    let cluster = Cluster::lock();
    set_agents(&cluster, "RDMANET_LINKS=none");
    for node in NODES {
        cluster.until(&format!("{node} has no condition of its links"), || {
            let conditions = conditions(&cluster.get(&format!("node {node}")));
            let is = |one: &Value| one["type"] == "rdmanet.io/LinksReady";
            if conditions.iter().any(is) {
                Err(format!("{conditions:?}"))
            } else {
                Ok(())
            }
        });
    }
    set_agents(&cluster, "RDMANET_LINKS=ib*");
    links_become(&cluster, "node-2", "True", "LinksUp");
    // A link that the flag names counts although an administrator has set it down.
    cluster.at("node-2", &["ip", "link", "set", "ib1", "down"]);
    links_become(&cluster, "node-2", "False", "LinkDown");
    cluster.at("node-2", &["ip", "link", "set", "ib1", "up"]);
    links_become(&cluster, "node-2", "True", "LinksUp");
    set_agents(&cluster, "RDMANET_LINKS-");
    links_become(&cluster, "node-1", "True", "LinksUp");
    nothing_left(&cluster);
}

#[test]
fn another_node_reads_the_metrics_of_an_agent_that_listens_on_every_address() {
    let cluster = Cluster::lock();
    let read = || {
        let script = "wget -qO- http://10.0.2.16:9471/metrics";
        cluster.try_at("node-2", &["sh", "-c", script])
    };
    read().expect_err("the agent of node-1 listens on every address");
    set_agents(&cluster, "RDMANET_LISTEN=[::]:9471");
    let metrics = cluster.until("node-2 reads the metrics of node-1", read);
    assert!(metrics.contains("rdmanet_build_info"), "{metrics}");
    set_agents(&cluster, "RDMANET_LISTEN-");
    read().expect_err("the agent of node-1 still listens on every address");
}

#[test]
fn an_agent_whose_port_another_process_has_serves_plugins_until_the_port_is_free() {
    let cluster = Cluster::lock();
    let on = |script: &str| shell(&cluster, "node-1", script);
    agents_on(&cluster, &json!("none"));
    none_of(&cluster, "rdmanet-agent");
    // It answers each probe with 404.
    on("mkdir -p /run/other && httpd -p 127.0.0.1:9471 -h /run/other");
    agents_on(&cluster, &Value::Null);
    cluster.until("the agent says which address it lacks", || {
        let log = agent_log(&cluster, "node-1");
        let line = log
            .lines()
            .find(|line| line.contains("serving metrics and health failed"));
        match line {
            Some(line) if line.contains("127.0.0.1:9471") => Ok(()),
            _ => Err(log),
        }
    });
    start(&cluster, "meanwhile", "ib-ipoib", "node-1");
    cluster.until("the kubelet starts the agent again", || {
        let agent = agent_of(&cluster, "node-1")?;
        let containers = agent["status"]["containerStatuses"].as_array();
        let restarts = containers.and_then(|all| all.iter().find(|one| one["name"] == "agent"));
        match restarts {
            Some(agent) if agent["restartCount"].as_u64() > Some(0) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    // Answered with 200, the probes let it run.
    on("touch /run/other/healthz /run/other/readyz");
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
    on("kill $(pidof httpd); rm -r /run/other");
    cluster.until("the agent serves its metrics", || {
        cluster.try_at("node-1", &["wget", "-qO-", "http://127.0.0.1:9471/metrics"])
    });
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
    remove(&cluster, "pod/meanwhile");
    nothing_left(&cluster);
}

#[test]
fn without_agents_pods_start_and_end_in_the_blocks_of_their_nodes() {
    let cluster = Cluster::lock();
    agents_on(&cluster, &json!("none"));
    none_of(&cluster, "rdmanet-agent");
    let before = trainers(&cluster);
    let [here, there] = one_on_each(&before);
    ping(&cluster, here, there);
    // A pod of a StatefulSet's name needs the agent for an address that stays with it.
    cluster.kubectl("apply -f conf/pools/stateful.yaml");
    cluster.apply(&[network("databases")]);
    becomes(&cluster, "ippool databases", "Ready", "True", "Accepted");
    refused(&cluster, "db-0", "databases", "node-1", 11);
    remove(&cluster, "pod/db-0");
    let check = cluster.rdmanet("check");
    assert!(
        check.contains("2 nodes have blocks, and the cluster has no agent"),
        "{check}"
    );
    remove_trainers(&cluster);
    agents_on(&cluster, &Value::Null);
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
    start(&cluster, "db-0", "databases", "node-1");
    remove(&cluster, "pod/db-0");
    remove_pool(&cluster, "databases");
}

#[test]
fn without_a_controller_pods_start_and_a_new_pool_waits_for_one() {
    let cluster = Cluster::lock();
    cluster.kubectl("-n rdmanet-system scale deployment rdmanet-controller --replicas=0");
    none_of(&cluster, "rdmanet-controller");
    cluster.apply(&[network("small"), small_pool(&json!({}))]);
    let before = trainers(&cluster);
    agree(&cluster, before.len());
    let pool = cluster.get("ippool small");
    assert_eq!(pool["status"]["observedGeneration"], -1, "{pool}");
    refused(&cluster, "early", "small", "node-1", 11);
    cluster.kubectl("-n rdmanet-system scale deployment rdmanet-controller --replicas=2");
    becomes(&cluster, "ippool small", "Ready", "True", "Accepted");
    ready(&cluster, "early");
    remove(&cluster, "pod/early");
    remove_trainers(&cluster);
    remove_pool(&cluster, "small");
}

#[test]
fn a_lost_pool_file_is_written_again_and_a_damaged_one_waits_for_its_removal() {
    let cluster = Cluster::lock();
    let file = "/var/lib/cni/rdma-ipam/pools/rail0/pool.json";
    let kept = start(&cluster, "kept", "ib-ipoib", "node-1");
    let write = format!("echo damaged >{file}");
    cluster.at("node-1", &["sh", "-c", &write]);
    refused(&cluster, "later", "ib-ipoib", "node-1", 114);
    cluster.at("node-1", &["rm", file]);
    let later = ready(&cluster, "later");
    assert_ne!(kept.address, later.address);
    agree(&cluster, 2);
    remove(&cluster, "pod/kept");
    remove(&cluster, "pod/later");
    nothing_left(&cluster);
}

#[test]
fn a_block_that_a_person_deletes_goes_with_its_last_pod() {
    let cluster = Cluster::lock();
    let kept = start(&cluster, "kept", "ib-ipoib", "node-1");
    cluster.kubectl("delete ipblocks --all --wait=false");
    let later = start(&cluster, "later", "ib-ipoib", "node-1");
    assert_ne!(kept.address, later.address);
    agree(&cluster, 2);
    ping(&cluster, &later, &kept);
    remove(&cluster, "pod/kept");
    cluster.until("no block that a person has deleted is left", || {
        let blocks = cluster.get("ipblocks");
        let deleted = |block: &&Value| !block["metadata"]["deletionTimestamp"].is_null();
        let left: Vec<&Value> = blocks["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(deleted)
            .collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    });
    agree(&cluster, 1);
    remove(&cluster, "pod/later");
    nothing_left(&cluster);
}

#[test]
fn the_conditions_of_a_pool_say_what_an_edit_waits_for() {
    let cluster = Cluster::lock();
    let edit = |spec: Value| cluster.apply(&[small_pool(&spec)]);
    let small_becomes =
        |kind: &str, status: &str, reason: &str| becomes(&cluster, "ippool small", kind, status, reason);
    cluster.apply(&[network("small")]);
    edit(json!({ "fallback": ["nowhere"] }));
    small_becomes("FallbackMissing", "True", "NoSuchPool");
    edit(json!({ "fallback": [] }));
    small_becomes("FallbackMissing", "False", "None");

    let kept = start(&cluster, "kept", "small", "node-1");
    edit(json!({ "ranges": [{ "subnet": "10.79.0.0/28", "gateway": "none", "exclude": [kept.address] }] }));
    small_becomes("ExclusionOverLive", "True", "InUse");
    edit(json!({ "ranges": [{ "subnet": "10.79.1.0/28", "gateway": "none" }] }));
    small_becomes("ShrinkPending", "True", "BlocksInUse");
    edit(json!({}));
    small_becomes("ShrinkPending", "False", "None");

    cluster.kubectl("delete ippools.rdmanet.io small --wait=false");
    small_becomes("Ready", "False", "Deleting");
    let table = cluster.rdmanet("addresses --pool small");
    assert!(table.contains("kept"), "{table}");
    refused(&cluster, "late", "small", "node-1", 116);
    let check = cluster.rdmanet("check");
    assert!(check.contains("pool small Ready: Deleting"), "{check}");
    remove(&cluster, "pod/late");
    remove(&cluster, "pod/kept");
    gone(&cluster, "small");
    cluster.kubectl("delete network-attachment-definitions small");
    nothing_left(&cluster);
}
