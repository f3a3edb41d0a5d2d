// SPDX-License-Identifier: Apache-2.0
//! A node with many rails and small blocks: an HTTP/2 connection to the API server has 100 streams, and each watch is one.

use agents::pools::simple;
use agents::{Attachment, Member, Site};
use api::IpBlock;
use apiserver::install::until;
use apiserver::objects::create;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

/// Eight rails, as on a typical node with GPUs.
const RAILS: u8 = 8;

/// Blocks of one address that the agent claims ahead for each rail: 120 blocks on one node.
const WARM: usize = 15;

/// Gives a namespace the label that the pools of these tests select.
pub(crate) async fn label(site: &Site, namespace: &str) {
    let namespaces: Api<Namespace> = Api::all(site.admin.clone());
    let team = json!({ "metadata": { "labels": { "team": "ml" } } });
    namespaces
        .patch(namespace, &PatchParams::default(), &Patch::Merge(team))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_120_blocks_can_still_send_requests_to_the_api_server() {
    let site = Site::new().await;
    label(&site, "default").await;
    let node = Member::running(&site.server, "a", &["--idle", "1h", "--log", "info"]).await;
    let rails: Vec<String> = (0..RAILS).map(|rail| format!("rail{rail}")).collect();
    for (i, rail) in rails.iter().enumerate() {
        let mut spec = simple(&format!("10.{i}.0.0/24"));
        spec["blockSize"] = json!({ "v4": 1 });
        spec["warmBlocks"] = json!(WARM);
        spec["namespaceSelector"] = json!({ "matchLabels": { "team": "ml" } });
        site.pool(rail, spec).await;
    }
    for rail in &rails {
        until(&format!("{rail} has its blocks"), async || {
            node.blocks(rail, "active").len() >= WARM
        })
        .await;
    }
    the_deletion_of_the_last_block_is_noticed(&site).await;
    // More addresses than the node's blocks have, so each of these ADDs causes requests.
    for (i, rail) in rails.iter().enumerate() {
        for pod in 0..2 {
            let asking = Attachment::of(&format!("p{i}-{pod}")).asking(&format!("10.{i}.0.{}", 200 + pod));
            node.add(rail, &asking);
        }
    }
    assert!(
        node.get("/readyz").starts_with("HTTP/1.1 200"),
        "{}",
        node.get("/readyz")
    );
}

/// The agent lists its blocks every ten minutes, so it learns of the deletion from the watch of the block.
async fn the_deletion_of_the_last_block_is_noticed(site: &Site) {
    let blocks: Api<IpBlock> = Api::all(site.admin.clone());
    let last = site.blocks("rail7").await.pop().unwrap();
    let deleted = blocks.delete(&last.name_any(), &DeleteParams::default()).await;
    let kept = deleted.unwrap().left();
    assert!(
        kept.is_some(),
        "the finalizer keeps the block until its agent returns it"
    );
    until("the agent returns the deleted block", async || {
        let there = site.blocks("rail7").await;
        there.iter().all(|block| block.uid() != last.uid())
    })
    .await;
}

/// The API server watches namespaces itself, so the test counts the watches before the pools exist.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_selector_costs_one_watch_of_namespaces() {
    let site = Site::new().await;
    label(&site, "default").await;
    let node = Member::running(&site.server, "a", &[]).await;
    let watches = async || site.server.watches("namespaces").await;
    let before = watches().await;
    assert!(before > 0, "the API server counts no watch at all");
    let rails = ["rail0", "rail1", "rail2"];
    for (i, rail) in rails.iter().enumerate() {
        let mut spec = simple(&format!("10.{i}.0.0/24"));
        spec["namespaceSelector"] = json!({ "matchLabels": { "team": "ml" } });
        site.pool(rail, spec).await;
    }
    for rail in rails {
        node.wait_active(rail).await;
        node.add(rail, &Attachment::of(rail));
    }
    until("three pools cost one watch", async || {
        let now = watches().await;
        println!("{before} watches before, {now} now");
        now == before + 1
    })
    .await;
    until("five seconds cost no request", async || {
        let mark = site.server.mark();
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        let mut asked = site.server.requests_since(mark).into_iter();
        !asked.any(|request| request.node() == Some("a") && request.uri.contains("/namespaces"))
    })
    .await;
    a_namespace_that_was_just_made_is_admitted_at_once(&site, &node).await;
    a_namespace_that_loses_its_label_is_refused(&site, &node).await;
}

async fn a_namespace_that_was_just_made_is_admitted_at_once(site: &Site, node: &Member) {
    let namespaces: Api<Namespace> = Api::all(site.admin.clone());
    let team = json!({ "metadata": { "name": "new", "labels": { "team": "ml" } } });
    create(&namespaces, team).await;
    let mut pod = Attachment::of("of-new");
    "new/one".clone_into(&mut pod.pod);
    node.add("rail0", &pod);
}

async fn a_namespace_that_loses_its_label_is_refused(site: &Site, node: &Member) {
    let namespaces: Api<Namespace> = Api::all(site.admin.clone());
    let unlabelled = json!({ "metadata": { "labels": { "team": null } } });
    namespaces
        .patch("default", &PatchParams::default(), &Patch::Merge(unlabelled))
        .await
        .unwrap();
    // Each ADD is for another pod: a repeated ADD returns the address that the pod has.
    let mut pods = 0;
    until("pods of the namespace are refused", async || {
        pods += 1;
        let answer = node.call("ADD", "rail1", &Attachment::of(&format!("late-{pods}")));
        // ADD may still succeed, and then prints a result without a code.
        let answer: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
        answer["code"] == 117
    })
    .await;
}
