// SPDX-License-Identifier: Apache-2.0
//! The command `rdmanet` of one version with a cluster of the other.

use crate::cluster::{BOTH, KEEPS_BLOCKS, node_of, site_of};
use agents::{Attachment, Site};
use apiserver::install::until;
use std::process::{Command, Output};
use tests::{Value, Version};

/// Runs the command as an administrator.
pub(crate) fn rdmanet(version: Version, site: &Site, args: &[&str]) -> Output {
    let mut command = Command::new(version.program("rdmanet"));
    command
        .env_clear()
        .env("RDMANET_DATA_DIR", "/nonexistent")
        .env("KUBECONFIG", site.server.kubeconfig())
        .args(args);
    command.output().unwrap()
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_of_each_version_shows_pools_blocks_and_addresses_of_the_other() {
    for cluster in BOTH {
        let site = site_of(cluster, &[]).await;
        let node = node_of(cluster, &site.server, "a", &KEEPS_BLOCKS).await;
        shows(cluster.other(), cluster, &site, &node).await;
    }
}

/// What the command shows of a pool with two pods of the node `a`.
pub(crate) async fn shows(command: Version, cluster: Version, site: &Site, node: &agents::Member) {
    let mut spec = agents::pools::simple("10.1.0.0/24");
    spec["reserved"] = tests::json!(["10.1.0.250"]);
    site.pool("rail0", spec).await;
    node.wait_active("rail0").await;
    let ip = node
        .call_of(cluster, "ADD", "rail0", &Attachment::of("one"))
        .addresses()
        .remove(0);
    let named = Attachment::of("two").asking("10.1.0.250");
    node.call_of(cluster, "ADD", "rail0", &named).addresses();
    until("the status counts both pods", async || {
        site.counters("rail0").await.used == 2
    })
    .await;
    let ask = |args: &[&str]| out(&rdmanet(command, site, args));
    let pools: Value = serde_json::from_str(&ask(&["-o", "json", "pools"])).unwrap();
    let counters = site.counters("rail0").await;
    let pool = &pools["pools"][0];
    assert_eq!(pool["name"], "rail0", "{command:?}: {pools}");
    assert_eq!(pool["counters"]["used"], counters.used, "{command:?}: {pools}");
    assert_eq!(pool["counters"]["free"], counters.free, "{command:?}: {pools}");
    assert_eq!(pool["ready"], true, "{command:?}: {pools}");
    let blocks: Value = serde_json::from_str(&ask(&["-o", "json", "blocks"])).unwrap();
    let block = &blocks["blocks"][0];
    assert_eq!(block["spec"]["owner"]["node"], "a", "{command:?}: {blocks}");
    // The block may contain the requested address too.
    let status = site.blocks("rail0").await.remove(0).status.unwrap();
    assert_eq!(block["status"]["used"], status.used, "{command:?}: {blocks}");
    // A block's report and the object of the requested address.
    assert!(ask(&["addresses", &ip]).contains("rail0"), "{command:?}");
    let named = ask(&["addresses", "10.1.0.250"]);
    assert!(named.contains("default/two"), "{command:?}: {named}");
    for args in [&["pools"][..], &["blocks"], &["addresses"]] {
        assert!(ask(args).contains("rail0"), "{command:?}: {args:?}");
    }
    let check = rdmanet(command, site, &["check"]);
    let report = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(check.stderr.is_empty(), "{command:?}: {check:?}");
    // It has counted all objects. It finds the requested address, because this test has no object of the pod.
    for piece in [
        "1 pools, 1 blocks, 1 address objects",
        "10.1.0.250: is bound to pod default/two",
    ] {
        assert!(report.contains(piece), "{command:?}: {report}");
    }
}
