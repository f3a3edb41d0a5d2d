// SPDX-License-Identifier: Apache-2.0
//! What the commands print about a cluster with running agents and plugins.

use crate::{pod_with, rdmanet};
use agents::{Attachment, Member, Site};
use apiserver::install::until;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn the_addresses_command_finds_a_holder_by_pod_status_lease_or_object() {
    let site = Site::new().await;
    let file = site.server.kubeconfig();
    let node = Member::running(&site.server, "a", &[]).await;
    site.pool(
        "rail0",
        json!({
            "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none" }], "blockSize": { "v4": 16 },
            "cooldownSeconds": 0, "reserved": ["10.1.0.250"],
        }),
    )
    .await;
    node.wait_active_blocks("rail0", 1).await;
    let ask = |args: &[&str]| rdmanet(Some(&file), args);

    let uid = site.pod("p", "a").await;
    let attachment = Attachment {
        uid,
        ..Attachment::of("p")
    };
    let ips = node.add("rail0", &attachment);
    let address = ips[0].as_str();
    // So far only the node itself has this fact.
    let elsewhere = ask(&["addresses", address]);
    assert!(
        elsewhere
            .out
            .contains("node a allocates it to its pods (pool rail0"),
        "{elsewhere:?}"
    );
    let data = node.data();
    let on_node = ask(&[
        "-o",
        "json",
        "addresses",
        address,
        "--data-dir",
        data.to_str().unwrap(),
    ])
    .json();
    let reported = &on_node["addresses"][0];
    assert_eq!(
        (&reported["pod"], &reported["interface"], &reported["containerID"]),
        (&json!("default/p"), &json!("net1"), &json!("p"))
    );
    assert_eq!(
        (&reported["pool"], &reported["reportedBy"]),
        (&json!("rail0"), &json!(["lease"]))
    );
    assert!(
        reported["since"].as_str().unwrap().starts_with("20"),
        "{reported}"
    );

    site.remove_pod("p").await;
    pod_with(&site, "q", "a", "default/rail0", &ips).await;
    let run = ask(&["addresses", address]);
    assert_eq!(run.status, 0);
    let line = run.out.lines().nth(1).unwrap();
    for piece in [
        address,
        "rail0",
        " a ",
        "default/q",
        "net1",
        "default/rail0",
        "network-status",
    ] {
        assert!(line.contains(piece), "{piece}: {}", run.out);
    }
    assert_eq!(ask(&["addresses", "q"]).out, run.out);
    assert_eq!(ask(&["addresses", "default/q"]).out, run.out);
    assert!(
        ask(&["addresses", "nobody"])
            .out
            .contains("no pod nobody has an address")
    );
    assert!(
        ask(&["addresses", "192.0.2.1"])
            .out
            .contains("192.0.2.1 is in no pool")
    );
    assert!(ask(&["addresses", "10.1.0.250"]).out.contains("spec.reserved"));

    let named = Attachment::of("r").asking("10.1.0.250");
    until("the reserved address is given", async || {
        node.call("ADD", "rail0", &named).status.success()
    })
    .await;
    let run = ask(&["-o", "json", "addresses", "--pool", "rail0"]).json();
    let object = run["addresses"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["address"] == "10.1.0.250")
        .unwrap();
    assert_eq!(
        (&object["pod"], &object["node"], &object["reportedBy"]),
        (&json!("default/r"), &json!("a"), &json!(["object"]))
    );
}

/// Reports the agent's pod of `node` as ready, as its kubelet does.
async fn report_ready(site: &Site, node: &str) {
    let pods: Api<Pod> = Api::namespaced(site.admin.clone(), "rdmanet-system");
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    let name = format!("rdmanet-agent-{node}");
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(ready))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_report_pools_blocks_and_a_duplicate_address() {
    let site = Site::new().await;
    let file = site.server.kubeconfig();
    let ask = |args: &[&str]| rdmanet(Some(&file), args);
    assert!(ask(&["pools"]).out.contains("there is no pool"));
    let node = Member::running(&site.server, "a", &[]).await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active_blocks("rail0", 1).await;
    let ips = node.add("rail0", &Attachment::of("p"));
    pod_with(&site, "p", "a", "default/rail0", &ips).await;
    until("the usage is reported", async || {
        let pools = ask(&["-o", "json", "pools"]).json();
        pools["pools"][0]["counters"]["used"] == 1
    })
    .await;

    let pools = ask(&["pools"]);
    let row: Vec<&str> = pools.out.lines().nth(1).unwrap().split_whitespace().collect();
    let expected = [
        "rail0",
        "default",
        "10.1.0.0/24",
        "254",
        "1",
        "253",
        "1",
        "yes",
        "-",
    ];
    assert_eq!(row, expected, "{}", pools.out);
    let one = ask(&["pools", "rail0"]);
    assert!(
        one.out.contains("no gateway") && one.out.contains("Ready") && one.out.contains("/28"),
        "{}",
        one.out
    );
    let missing = ask(&["pools", "rail9"]);
    assert_eq!(
        (missing.status, missing.err.as_str()),
        (2, "rdmanet: the cluster has no pool rail9; its pools are rail0\n")
    );
    let blocks = ask(&["-o", "json", "blocks", "--node", "a"]).json();
    assert_eq!(blocks["blocks"][0]["spec"]["owner"]["node"], "a");
    assert!(
        ask(&["blocks", "--node", "b"])
            .out
            .contains("no block is claimed")
    );

    let map = ask(&["map", "rail0"]);
    assert!(
        map.out.contains("a     a     16         1") || map.out.contains("a  a     16         1"),
        "{}",
        map.out
    );
    let drawing = tempfile::NamedTempFile::new().unwrap();
    let drawn = ask(&["map", "rail0", "--svg", drawing.path().to_str().unwrap()]);
    assert_eq!(drawn.status, 0);
    assert!(
        std::fs::read_to_string(drawing.path())
            .unwrap()
            .contains("a (Active)")
    );

    let starting = ask(&["check", "--pause", "0"]);
    assert!(
        starting.status == 1 && starting.out.contains("deserted cluster"),
        "{starting:?}"
    );
    report_ready(&site, "a").await;
    let well = ask(&["check", "--pause", "0"]);
    assert_eq!(well.status, 0, "{well:?}");
    assert!(
        well.out.starts_with("no problem found: 1 pools, 1 blocks"),
        "{}",
        well.out
    );
    // Another pod reports the same address, on a node that does not own the block.
    Member::new(&site.server, "b", &[]).await;
    pod_with(&site, "q", "b", "default/rail0", &ips).await;
    let wrong = ask(&["-o", "json", "check", "--pause", "1"]);
    assert_eq!(wrong.status, 1);
    let problems = wrong.json()["problems"].clone();
    let kinds: Vec<&Value> = problems
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["kind"])
        .collect();
    assert_eq!(kinds, ["duplicate", "foreign-block"], "{problems}");
    assert!(
        problems[0]["text"].as_str().unwrap().contains("default/p")
            && problems[0]["text"].as_str().unwrap().contains("default/q")
    );
    // The remedy names this command, which shows both pods.
    let both = ask(&["addresses", &ips[0]]);
    for pod in ["default/p", "default/q"] {
        assert!(both.out.contains(pod), "{pod}: {}", both.out);
    }
}
