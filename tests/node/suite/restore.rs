// SPDX-License-Identifier: Apache-2.0
//! A restore of etcd with the steps of docs/operate.md, under pods that have addresses which the snapshot does not know.

use crate::cluster::{Cluster, NODES, repository, run};
use crate::pools::{pool, remove_pool};
use crate::steps::{NO_ROUTE, becomes, cable, refused, shell};
use crate::witnesses::{Addresses, agree, links, nothing_left, stores};
use crate::workload::{deployment, network, ready, remove, start};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Pods that the snapshot has without an address. Their blocks have four addresses each.
const WAITING: usize = 6;
/// A Node without a machine, which is to Kubernetes like a machine that is off: no agent ever runs there.
const OFF: &str = "off";
/// The commands of step 3 that replace controller and agents, and the command of step 4 that shows the agents.
const REPLACE: [&str; 2] = [
    "-n rdmanet-system delete pod -l app.kubernetes.io/name=rdmanet-controller --wait=false",
    "-n rdmanet-system delete pod -l app.kubernetes.io/name=rdmanet-agent --wait=false",
];
const SHOW: &str = "-n rdmanet-system get pods -l app.kubernetes.io/name=rdmanet-agent -o 'custom-columns=NODE:.spec.nodeName,CREATED:.metadata.creationTimestamp,DELETED:.metadata.deletionTimestamp,READY:.status.containerStatuses[*].ready'";

/// Runs a kubectl command that is on the page.
fn of_the_page(cluster: &Cluster, words: &str) -> String {
    let page = include_str!("../../../docs/operate.md");
    assert!(page.contains(&format!("kubectl {words}\n")), "{words}");
    cluster.kubectl(&words.replace('\'', ""))
}

/// Waits until the `DaemonSet` of the agents counts this many nodes.
fn agents_for(cluster: &Cluster, nodes: usize) {
    cluster.until(&format!("agents are for {nodes} nodes"), || {
        let status = cluster.get("-n rdmanet-system daemonset rdmanet-agent")["status"].clone();
        if status["desiredNumberScheduled"] == nodes {
            Ok(())
        } else {
            Err(status.to_string())
        }
    });
}

/// Waits until each node that runs has a ready agent of this time or later, as step 4 describes it.
fn agents_since(cluster: &Cluster, time: &str) {
    let running = BTreeSet::from(NODES);
    cluster.until("each node has an agent younger than the restore", || {
        let table = of_the_page(cluster, SHOW);
        let young = table.lines().filter_map(|line| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            match cells[..] {
                [node, created, "<none>", "true,true"] if created >= time => Some(node),
                _ => None,
            }
        });
        if young.collect::<BTreeSet<_>>() == running {
            Ok(())
        } else {
            Err(table)
        }
    });
}

/// A program of `tests/go`, with the directory of the API server as its current directory.
fn etcd_tool(cluster: &Cluster, name: &str, args: &[&str]) {
    let tools = run(Command::new(repository().join("tests/go/build")).args(["--group", "etcd"]));
    let mut command = Command::new(Path::new(&tools).join(name));
    println!(
        "did: {}",
        run(command.args(args).current_dir(cluster.directory())).replace('\n', "; ")
    );
}

/// Ends a program of the control plane. Returns its command line.
fn end(cluster: &Cluster, program: &str) -> Vec<String> {
    let file = cluster.directory().join(program).with_extension("pid");
    let pid = fs::read_to_string(file).unwrap();
    let process = Path::new("/proc").join(pid.trim());
    let line = fs::read_to_string(process.join("cmdline")).unwrap();
    run(Command::new("kill").arg(pid.trim()));
    cluster.until(&format!("{program} has ended"), || {
        if process.join("exe").exists() {
            Err(pid.clone())
        } else {
            Ok(())
        }
    });
    line.split_terminator('\0').map(str::to_owned).collect()
}

/// Starts a program of the control plane with its earlier command line.
fn begin(cluster: &Cluster, program: &str, line: &[String]) {
    let script = r#"setsid "${@:3}" </dev/null >>"$1" 2>&1 & echo $! >"$2""#;
    let files = ["log", "pid"].map(|kind| cluster.directory().join(program).with_extension(kind));
    run(Command::new("bash")
        .args(["-c", script, "bash"])
        .args(files)
        .args(line));
}

/// Ends the control plane, and starts it with the data of the snapshot.
fn restore(cluster: &Cluster) {
    let directory = cluster.directory();
    // These two read the API server through caches. With the caches of another history they can wait for an event that
    // the restored API server never sends.
    let clients =
        ["kube-controller-manager", "kube-scheduler"].map(|program| (program, end(cluster, program)));
    for program in ["kube-apiserver", "etcd"] {
        end(cluster, program);
    }
    fs::remove_dir_all(directory.join("etcd")).unwrap();
    let peer = format!("unix://{}", directory.join("p").display());
    let member = format!("tests={peer}");
    let args = [
        "snapshot",
        "restore",
        "--bump-revision",
        "1000000000",
        "--mark-compacted",
        "snapshot.db",
        "--data-dir",
        "etcd",
        "--name",
        "tests",
        "--initial-advertise-peer-urls",
        &peer,
        "--initial-cluster",
        &member,
    ];
    etcd_tool(cluster, "etcdutl", &args);
    let up = repository().join("tests/apiserver/up");
    run(&mut cluster.command(&up, &[directory.to_str().unwrap()]));
    for (program, line) in clients {
        begin(cluster, program, &line);
    }
}

/// Adds or deletes the route that keeps the agents and kubelets of both nodes away from the API server.
fn keep_away(cluster: &Cluster, verb: &str) {
    for node in NODES {
        shell(cluster, node, &format!("ip route {verb} {NO_ROUTE}"));
    }
}

/// Sets or removes the `nodeSelector` of step 3 in each pool.
fn select(cluster: &Cluster, selector: &str) {
    for pool in ["rail0", "few"] {
        let patch = format!(r#"{{"spec":{{"nodeSelector":{selector}}}}}"#);
        cluster.kubectl(&format!("patch ippool {pool} --type merge -p {patch}"));
    }
}

/// The blocks as `NAME of NODE`.
fn blocks(cluster: &Cluster) -> BTreeSet<String> {
    let list = cluster.get("ipblocks");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = list["items"].as_array().unwrap().iter();
    all.map(|block| {
        format!(
            "{} of {}",
            text(&block["metadata"]["name"]),
            text(&block["spec"]["owner"]["node"])
        )
    })
    .collect()
}

/// Starts pods of the pool `few`, and takes a snapshot before those of node-2 have addresses. Returns the addresses of all, and the
/// blocks that the snapshot lacks.
fn pods_that_the_snapshot_lacks(cluster: &Cluster) -> (Addresses, BTreeSet<String>) {
    let few = pool("few", "10.85.0.0/26", &json!({}));
    cluster.apply(&[few, network("few")]);
    becomes(cluster, "ippool few", "Ready", "True", "Accepted");
    start(cluster, "known", "few", "node-1");
    cable(cluster, "0");
    cluster.apply(&[deployment("waiting", "few", WAITING, Some("node-2"))]);
    cluster.until("each pod waits for the cable", || {
        let said = cluster.kubectl("describe pods --show-events -l app=waiting");
        let refused = said.matches("rdmanet error 102").count();
        if refused >= WAITING {
            Ok(())
        } else {
            Err(format!("{refused}"))
        }
    });
    let socket = format!("unix://{}", cluster.directory().join("c").display());
    etcd_tool(
        cluster,
        "etcdctl",
        &["--endpoints", &socket, "snapshot", "save", "snapshot.db"],
    );
    let before = blocks(cluster);
    cable(cluster, "1");
    cluster.rolled_out("default", "deployment/waiting");
    let claimed: BTreeSet<String> = blocks(cluster).difference(&before).cloned().collect();
    println!("did: the snapshot lacks {claimed:?}");
    assert!(!claimed.is_empty(), "{before:?}");
    agree(cluster, 1 + WAITING);
    (links(cluster).unwrap(), claimed)
}

/// Steps 1 to 4 of the page.
fn steps_1_to_4(cluster: &Cluster, lacking: &BTreeSet<String>) {
    keep_away(cluster, "add");
    restore(cluster);
    let time = run(Command::new("date").args(["-u", "+%FT%TZ"]));
    let restored = blocks(cluster);
    assert!(restored.is_disjoint(lacking), "{restored:?}");
    cluster.apply(&[json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": OFF, "labels": { "kubernetes.io/os": "linux" } },
    })]);
    select(cluster, r#"{"matchLabels":{"rdmanet.io/restored":"yes"}}"#);
    keep_away(cluster, "del");
    agents_for(cluster, NODES.len() + 1);
    for words in REPLACE {
        of_the_page(cluster, words);
    }
    agents_since(cluster, &time);
    cluster.kubectl(&format!("delete node {OFF}"));
    agents_for(cluster, NODES.len());
    for owner in ["deployment/rdmanet-controller", "daemonset/rdmanet-agent"] {
        cluster.rolled_out("rdmanet-system", owner);
    }
}

#[test]
fn after_a_restore_of_etcd_each_node_claims_the_blocks_of_its_pods_again() {
    let cluster = Cluster::lock();
    let (before, lacking) = pods_that_the_snapshot_lacks(&cluster);
    steps_1_to_4(&cluster, &lacking);
    let now = blocks(&cluster);
    assert!(
        now.is_superset(&lacking),
        "ready agents have claimed the blocks of their pods again: {now:?}"
    );
    // The snapshot has no annotation of Multus for these pods, and Multus writes it at ADD only.
    let on_nodes = |expected: &Addresses| {
        let (stores, links) = (stores(&cluster)?, links(&cluster)?);
        if stores == links && links == *expected {
            Ok(())
        } else {
            Err(format!(
                "stores {stores:?}; links {links:?}; expected {expected:?}"
            ))
        }
    };
    cluster.until("the pods have the addresses of before", || on_nodes(&before));
    refused(&cluster, "new", "few", "node-1", 116);

    // Step 5.
    cluster.until("`rdmanet check` finds nothing", || {
        let said = cluster.rdmanet("check");
        if said.contains("no problem found") {
            Ok(())
        } else {
            Err(said)
        }
    });
    select(&cluster, "null");
    let new = ready(&cluster, "new");
    let mut all = before.clone();
    all.get_mut(&new.node).unwrap().insert(new.address);
    cluster.until("the new pod has an address of its own", || on_nodes(&all));
    for object in ["pod/new", "pod/known", "deployment/waiting"] {
        remove(&cluster, object);
    }
    remove_pool(&cluster, "few");
    nothing_left(&cluster);
}
