// SPDX-License-Identifier: Apache-2.0
//! The errors that a runtime gets without an address, each case with its own code.

use agents::pools::simple;
use agents::{Attachment, Member, Site};
use api::IpBlock;
use apiserver::identity::join;
use apiserver::install::until;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;

#[tokio::test(flavor = "multi_thread")]
async fn each_refusal_names_the_pool_and_the_remedy() {
    let (site, node) = Site::with_node().await;
    until("the agent listens", async || node.socket().exists()).await;
    node.refused(
        "nowhere",
        &Attachment::of("one"),
        &[115],
        &["IPPool nowhere", "kubectl get ippools"],
    );
    let mut spec = simple("10.1.0.0/28");
    spec["nodeSelector"] = json!({ "matchLabels": { "rail": "7" } });
    site.pool("elsewhere", spec).await;
    site.wait_condition("elsewhere", "Ready", "True").await;
    node.refused(
        "elsewhere",
        &Attachment::of("one"),
        &[116],
        &["elsewhere", "nodeSelector"],
    );
    assert!(
        !node.data().join("pools/elsewhere").exists(),
        "the node has a directory of a pool that does not select it"
    );
    the_fallback_of_a_pool_for_other_nodes_is_used(&site, &node).await;
    let mut spec = simple("10.2.0.0/28");
    spec["namespaceSelector"] = json!({ "matchLabels": { "team": "ml" } });
    site.pool("team", spec).await;
    node.wait_active("team").await;
    node.refused(
        "team",
        &Attachment::of("one"),
        &[117],
        &["pool team", "namespace default"],
    );
    let mut spec = simple("10.3.0.0/28");
    spec["cooldownSeconds"] = json!(600);
    site.pool("cooling", spec).await;
    node.wait_active("cooling").await;
    for i in 0..14 {
        let attachment = Attachment::of(&format!("p{i}"));
        node.add("cooling", &attachment);
        node.del("cooling", &attachment);
    }
    node.refused("cooling", &Attachment::of("one"), &[11, 118], &["cooling"]);
    site.simple("full", "10.4.0.0/29").await;
    node.wait_active("full").await;
    (0..6).for_each(|i| drop(node.add("full", &Attachment::of(&format!("p{i}")))));
    node.refused("full", &Attachment::of("one"), &[110], &["pool full", "6"]);
    an_exhausted_pool_serves_a_pod_as_soon_as_a_block_is_free(&site, &node).await;
}

/// The node has no file of such a pool.
async fn the_fallback_of_a_pool_for_other_nodes_is_used(site: &Site, node: &Member) {
    site.simple("spare", "10.6.0.0/28").await;
    node.wait_active("spare").await;
    let mut spec = simple("10.7.0.0/28");
    spec["nodeSelector"] = json!({ "matchLabels": { "rail": "7" } });
    spec["fallback"] = json!(["spare"]);
    site.pool("other-rail", spec).await;
    site.wait_condition("other-rail", "Ready", "True").await;
    let pod = Attachment::of("one");
    assert!(node.add_soon("other-rail", &pod).await.starts_with("10.6.0."));
    node.del("other-rail", &pod);
    assert!(!node.data().join("pools/other-rail").exists());
}

/// Pods of a pool with a fallback do not wait for a shared block, so the pool counts as exhausted for their node.
async fn an_exhausted_pool_serves_a_pod_as_soon_as_a_block_is_free(site: &Site, node: &Member) {
    let other = join(&site.admin, "other").await.unwrap();
    site.crowd("short", Ipv4Addr::new(10, 5, 0, 0), 1, |_| other.clone())
        .await;
    let mut spec = simple("10.5.0.0/28");
    spec["fallback"] = json!(["full"]);
    site.pool("short", spec).await;
    let pod = Attachment::of("one");
    until("the pool is exhausted", async || {
        node.error("short", &pod)["code"] == 110
    })
    .await;
    let block = site.blocks("short").await.remove(0);
    let blocks: Api<IpBlock> = Api::all(site.admin.clone());
    let now = DeleteParams::default();
    blocks.delete(&block.name_any(), &now).await.unwrap();
    assert!(node.add("short", &pod)[0].starts_with("10.5.0."));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_api_server_is_reported_differently_from_a_full_pool() {
    let (site, node) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active("rail0").await;
    site.server.kill();
    let error = (0..64).find_map(|i| {
        let answer = node.call("ADD", "rail0", &Attachment::of(&format!("p{i}")));
        (!answer.status.success()).then_some(answer.stdout)
    });
    let error: Value = serde_json::from_str(&error.unwrap()).unwrap();
    assert!([11, 119].contains(&error["code"].as_u64().unwrap()), "{error}");
    assert!(error["msg"].as_str().unwrap().contains("rail0"), "{error}");
    site.server.start_again();
    until("addresses are allocated again", async || {
        node.call("ADD", "rail0", &Attachment::of("later"))
            .status
            .success()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_answers_garbage_and_recreates_a_removed_plugin_socket() {
    let (site, node) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active("rail0").await;
    let silent: Vec<UnixStream> = (0..50)
        .map(|_| UnixStream::connect(node.socket()).unwrap())
        .collect();
    let mut stream = UnixStream::connect(node.socket()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["answer"], "refused", "{answer}");
    assert!(
        answer["msg"].as_str().unwrap().contains("of one version"),
        "{answer}"
    );
    let given: Vec<Vec<String>> = (0..20)
        .map(|i| node.add("rail0", &Attachment::of(&format!("p{i}"))))
        .collect();
    assert_eq!(given.len(), 20);
    drop(silent);
    // `remove_file` treats the socket as a file.
    std::fs::remove_file(node.socket()).unwrap();
    until("the agent listens and answers again", async || {
        node.error("nowhere", &Attachment::of("one"))["code"] == 115
    })
    .await;
}
