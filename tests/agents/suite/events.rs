// SPDX-License-Identifier: Apache-2.0
//! Events on the pod and on the pool, where administrators look first.

use agents::pools::simple;
use agents::{Attachment, Member, Site};
use apiserver::install::until;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

/// The type and note of the Events with this reason on one object.
pub(crate) async fn events(site: &Site, kind: &str, name: &str, reason: &str) -> Vec<(String, String)> {
    let all: Api<Event> = Api::all(site.admin.clone());
    let all = all.list(&ListParams::default()).await.unwrap().items;
    let reporter = match kind {
        "IPPool" => "rdmanet-controller",
        _ => "rdmanet-agent",
    };
    let about = |event: &Event| {
        let regarding = event.regarding.clone().unwrap_or_default();
        regarding.kind.as_deref() == Some(kind)
            && regarding.name.as_deref() == Some(name)
            && event.reason.as_deref() == Some(reason)
            && event.reporting_controller.as_deref() == Some(reporter)
    };
    all.into_iter()
        .filter(about)
        .map(|event| (event.type_.unwrap_or_default(), event.note.unwrap_or_default()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_event_of_a_refused_pod_repeats_the_error_that_the_runtime_gets() {
    let (site, node) = Site::with_node().await;
    let mut spec = simple("10.1.0.0/24");
    spec["namespaceSelector"] = json!({ "matchLabels": { "team": "ml" } });
    site.pool("team", spec).await;
    node.wait_active("team").await;
    let mut pod = Attachment::of("one");
    pod.uid = site.pod("one", "a").await;
    let refused = node.refused("team", &pod, &[117], &[]);
    until("the pod has the Event", async || {
        !events(&site, "Pod", "one", "NoAddress").await.is_empty()
    })
    .await;
    let (kind, sentence) = events(&site, "Pod", "one", "NoAddress").await.remove(0);
    assert_eq!(kind, "Warning");
    assert!(refused.contains(&sentence), "{sentence}: {refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_gets_an_event_for_each_condition_that_becomes_true() {
    let site = Site::new().await;
    let _node = Member::running(&site.server, "a", &[]).await;
    site.simple("rail0", "10.1.0.0/24").await;
    until("it is accepted", async || {
        !events(&site, "IPPool", "rail0", "Accepted").await.is_empty()
    })
    .await;
    assert_eq!(events(&site, "IPPool", "rail0", "Accepted").await[0].0, "Normal");
    let wrong = json!({ "spec": { "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none", "exclude": ["10.1.0.0/24"] }] } });
    site.edit("rail0", wrong).await;
    until("it is refused", async || {
        !events(&site, "IPPool", "rail0", "InvalidSpec").await.is_empty()
    })
    .await;
    let (kind, note) = events(&site, "IPPool", "rail0", "InvalidSpec").await.remove(0);
    assert_eq!(kind, "Warning");
    assert!(
        note.starts_with("Degraded: ") && note.contains("no address is left"),
        "{note}"
    );
}
