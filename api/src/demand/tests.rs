// SPDX-License-Identifier: Apache-2.0
//! The events that end waits.

use super::*;
use futures::FutureExt;
use serde_json::json;
use std::pin::pin;

fn pool(name: &str, status: &serde_json::Value) -> IpPool {
    serde_json::from_value(json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": name },
        "spec": { "ranges": [{ "subnet": "10.1.0.0/26" }] }, "status": status,
    }))
    .unwrap()
}

fn wanted() -> serde_json::Value {
    json!({ "requests": { "n": { "v4": "2026-01-01T00:00:00Z" } }, "sharing": ["asked"] })
}

fn block(name: &str, state: &str) -> IpBlock {
    serde_json::from_value(json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPBlock", "metadata": { "name": name },
        "spec": {
            "pool": "rail0", "cidr": "10.1.0.0/28", "owner": { "node": "n", "nodeUID": "u" }, "state": state, "epoch": 1,
        },
    }))
    .unwrap()
}

fn has_news(demand: &Demand) -> bool {
    demand.changed().now_or_never().is_some()
}

#[test]
fn an_open_request_and_a_newly_shared_block_wake_the_controller() {
    let (demand, pool_with_request) = (Demand::default(), pool("rail0", &wanted()));
    assert!(!has_news(&demand));
    demand.observe_pool(&pool_with_request);
    assert!(has_news(&demand));
    assert!(!has_news(&demand));
    demand.observe_block(&block("other", "Active"), &pool_with_request);
    assert!(!has_news(&demand));
    demand.observe_block(&block("asked", "Active"), &pool_with_request);
    assert!(has_news(&demand));
    demand.observe_block(&block("other", "Shared"), &pool_with_request);
    assert!(has_news(&demand));
    demand.observe_block(&block("other", "Shared"), &pool("rail0", &json!({})));
    assert!(!has_news(&demand));
}

#[test]
fn a_waiting_plugin_wakes_up_only_once_the_requests_of_a_pool_have_ended() {
    let demand = Demand::default();
    demand.observe_pool(&pool("rail0", &wanted()));
    let mut ends = pin!(demand.ended());
    ends.as_mut().enable();
    demand.observe_pool(&pool("rail0", &wanted()));
    demand.observe_pool(&pool("rail1", &json!({})));
    assert!(ends.as_mut().now_or_never().is_none());
    demand.observe_pool(&pool("rail0", &json!({})));
    assert!(ends.as_mut().now_or_never().is_some());
}
