// SPDX-License-Identifier: Apache-2.0
//! An address is released only when it is not in use.

use crate::{Run, person, pod_with, rdmanet};
use agents::{Attachment, Member, Site};
use api::BlockState;
use apiserver::identity::join;
use apiserver::install::until;
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const QUARANTINE: Duration = Duration::from_secs(5);

async fn site() -> (Site, Member) {
    // The agent acts late, so that the command is first.
    let flags = ["--observation-interval", "1h", "--quarantine", "5s"];
    let site = Site::with(&flags).await;
    let node = Member::running(&site.server, "a", &flags).await;
    site.pool(
        "rail0",
        json!({
            "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none" }], "blockSize": { "v4": 16 },
            "cooldownSeconds": 0, "reserved": ["10.1.0.250", "10.1.0.251"],
        }),
    )
    .await;
    node.wait_active_blocks("rail0", 1).await;
    (site, node)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_released_once_pod_and_namespace_are_gone() {
    let (site, node) = site().await;
    let file = site.server.kubeconfig();
    let data = node.data();
    let ask = |args: &[&str]| {
        let mut all = vec!["release", "--data-dir", data.to_str().unwrap()];
        all.extend(args);
        rdmanet(Some(&file), &all)
    };
    // A file that replaces a network namespace and can be removed.
    let netns = tempfile::tempdir().unwrap();
    let path: PathBuf = netns.path().join("ns");
    std::fs::write(&path, "").unwrap();
    let of = |name: &str, uid: String| Attachment {
        uid,
        netns: path.clone(),
        ..Attachment::of(name)
    };
    let first = of("p", "uid-p".to_owned());
    let ips = node.add("rail0", &first);
    let uid = pod_with(&site, "q", "a", "default/rail0", &ips).await;

    let refused = ask(&["--yes", &ips[0]]);
    assert_eq!(refused.status, 2);
    assert!(
        refused.err.contains("pod default/q on node a uses 10."),
        "{refused:?}"
    );
    site.remove_pod("q").await;
    let refused = ask(&["--yes", &ips[0]]);
    assert!(refused.err.contains("network namespace"), "{uid}: {refused:?}");
    std::fs::remove_file(&path).unwrap();
    let refused = ask(&[&ips[0]]);
    assert!(
        refused.err.contains("no confirmation is possible; use --yes"),
        "{refused:?}"
    );
    let done = ask(&["--yes", &ips[0]]);
    assert_eq!(done.status, 0, "{done:?}");
    assert!(
        done.out
            .contains("is released: it was leased to net1 of container p (pod default/p)"),
        "{done:?}"
    );
    let again = ask(&["--yes", &ips[0]]);
    assert!(
        again.status == 0 && again.out.starts_with("nothing to release"),
        "{again:?}"
    );
}

/// A pod on `node` with an address that it names.
async fn named(site: &Site, node: &Member, pod: &str, ip: &str) {
    let named = Attachment {
        uid: site.pod(pod, "a").await,
        ..Attachment::of(pod).asking(ip)
    };
    until("the reserved address is given", async || {
        node.call("ADD", "rail0", &named).status.success()
    })
    .await;
}

/// The machine and its Node end. If a cluster has no Node at all, no node counts as gone.
async fn end(site: &Site, node: &Member) {
    join(&site.admin, "bystander").await.unwrap();
    node.kill();
    node.identity.leave(&site.admin).await;
}

/// Whether the command refused because the controller has not marked the address yet, or because the quarantine is not over.
fn is_early(run: &Run) -> bool {
    let early = [
        "in quarantine for",
        "its quarantine has not begun",
        "has just been changed",
    ];
    run.status == 2 && early.iter().any(|text| run.err.contains(text))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_of_a_gone_node_is_released_only_after_the_quarantine() {
    let (site, node) = site().await;
    for (pod, ip) in [("r", "10.1.0.250"), ("s", "10.1.0.251")] {
        named(&site, &node, pod, ip).await;
        site.remove_pod(pod).await;
    }
    let operator = person(&site, "operator", Some("rdmanet-operator")).await;
    let config = operator.path().join("config");
    let begin = Instant::now();
    end(&site, &node).await;
    let is_released = |what: &[&str]| {
        let run = rdmanet(Some(&config), &[&["release", "--yes"], what].concat());
        // The API server's times are whole seconds.
        let is_over = begin.elapsed() + Duration::from_secs(1) >= QUARANTINE;
        assert!(is_early(&run) || run.status == 0 && is_over, "{run:?}");
        run.status == 0
    };
    until("the quarantine is over", async || {
        let [address, node] = [is_released(&["10.1.0.250"]), is_released(&["--node", "a"])];
        address && node
    })
    .await;
    assert_eq!(site.addresses().await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_object_is_released_only_once_its_pod_and_node_are_gone() {
    let (site, node) = site().await;
    let file = site.server.kubeconfig();
    named(&site, &node, "r", "10.1.0.250").await;
    let ask = || rdmanet(Some(&file), &["release", "--yes", "10.1.0.250"]);
    assert!(
        ask().err.contains("bound to pod default/r, which is running"),
        "{:?}",
        ask()
    );
    site.remove_pod("r").await;
    assert!(
        ask().err.contains("allocated on node a, which exists")
            && ask().err.contains("run this command on the node"),
        "{:?}",
        ask()
    );
    assert_eq!(site.addresses().await.len(), 1);
    end(&site, &node).await;
    let reader = person(&site, "reader", Some("rdmanet-reader")).await;
    let config = reader.path().join("config");
    let ask = || rdmanet(Some(&config), &["release", "--yes", "10.1.0.250"]);
    until("the quarantine is over", async || !is_early(&ask())).await;
    let reader = ask();
    assert!(
        reader.status == 2 && reader.err.contains("(403)") && reader.err.contains("rdmanet-operator"),
        "{reader:?}"
    );
    let operator = person(&site, "operator", Some("rdmanet-operator")).await;
    let config = operator.path().join("config");
    let done = rdmanet(Some(&config), &["release", "--yes", "10.1.0.250"]);
    assert_eq!(done.status, 0, "{done:?}");
    assert!(done.out.contains("on node a, which is gone"), "{done:?}");
    assert_eq!(site.addresses().await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_releases_the_used_blocks_of_a_dead_node() {
    let flags = ["--quarantine", "4s"];
    let site = Site::with(&flags).await;
    let node = Member::running(&site.server, "dead", &flags).await;
    site.simple("rail0", "10.1.0.0/28").await;
    node.wait_active("rail0").await;
    node.add("rail0", &Attachment::of("one"));
    until("the address is reported", async || {
        let block = site.blocks("rail0").await.remove(0);
        block.status.is_some_and(|status| status.used == 1)
    })
    .await;
    let operator = person(&site, "operator", Some("rdmanet-operator")).await;
    let config = operator.path().join("config");
    let ask = || rdmanet(Some(&config), &["release", "--yes", "--node", "dead"]);
    let refused = ask();
    assert!(
        refused.status == 2 && refused.err.contains("node dead is registered"),
        "{refused:?}"
    );
    // If a cluster has no Node at all, no node counts as gone.
    join(&site.admin, "bystander").await.unwrap();
    node.kill();
    node.identity.leave(&site.admin).await;
    until("the block is orphaned", async || {
        let block = site.blocks("rail0").await.remove(0);
        block.spec.state == BlockState::Orphaned
    })
    .await;
    until("the quarantine is over", async || {
        let answer = ask();
        assert!(
            answer.status == 0
                || answer.err.contains("in quarantine for")
                || answer.err.contains("just been changed"),
            "{answer:?}"
        );
        answer.out.contains("block 10.1.0.0/28 had 1 addresses in use")
    })
    .await;
    assert_eq!(site.blocks("rail0").await.len(), 0);
    assert!(ask().out.starts_with("nothing to release"), "{:?}", ask());
}
