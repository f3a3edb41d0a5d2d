// SPDX-License-Identifier: Apache-2.0
//! Which event ends which wait.

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

fn has_news(wishes: &Wishes) -> bool {
    wishes.news().now_or_never().is_some()
}

#[test]
fn an_open_request_and_a_newly_shared_block_wake_the_controller() {
    let (wishes, pool_with_wish) = (Wishes::default(), pool("rail0", &wanted()));
    assert!(!has_news(&wishes));
    wishes.hear(&pool_with_wish);
    assert!(has_news(&wishes));
    assert!(!has_news(&wishes));
    wishes.hear_block(&block("other", "Active"), &pool_with_wish);
    assert!(!has_news(&wishes));
    wishes.hear_block(&block("asked", "Active"), &pool_with_wish);
    assert!(has_news(&wishes));
    wishes.hear_block(&block("other", "Shared"), &pool_with_wish);
    assert!(has_news(&wishes));
    wishes.hear_block(&block("other", "Shared"), &pool("rail0", &json!({})));
    assert!(!has_news(&wishes));
}

#[test]
fn a_waiting_plugin_wakes_up_only_once_the_requests_of_a_pool_have_ended() {
    let wishes = Wishes::default();
    wishes.hear(&pool("rail0", &wanted()));
    let mut ends = pin!(wishes.ends());
    ends.as_mut().enable();
    wishes.hear(&pool("rail0", &wanted()));
    wishes.hear(&pool("rail1", &json!({})));
    assert!(ends.as_mut().now_or_never().is_none());
    wishes.hear(&pool("rail0", &json!({})));
    assert!(ends.as_mut().now_or_never().is_some());
}
