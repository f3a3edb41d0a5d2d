// SPDX-License-Identifier: Apache-2.0
//! Requests of nodes whose clocks differ.

use super::super::testing::{refusal, registered_node};
use super::*;
use api::IpPool;
use kube::runtime::reflector::store;
use kube::runtime::watcher::Event;
use serde_json::json;
use std::sync::Arc;

/// A node of a pool with one request of another node, made at this time by the clock of that node.
async fn sharing(
    since: &str,
) -> (
    Sharing,
    kube::runtime::reflector::store::Writer<IpPool>,
    tempfile::TempDir,
) {
    let (mut context, _, dir) = registered_node(|_| refusal(404)).await;
    let (pools, mut writer) = store();
    let pool = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": "rail0", "resourceVersion": "7" },
        "spec": { "ranges": [{ "subnet": "10.1.0.0/24" }] },
        "status": { "requests": { "other": { "v4": since } } },
    });
    writer.apply_watcher_event(&Event::Apply(serde_json::from_value(pool).unwrap()));
    Arc::get_mut(&mut context.agent).unwrap().pools = pools;
    (Sharing::new(context), writer, dir)
}

#[tokio::test]
async fn a_request_stands_whatever_the_clock_of_its_node_is() {
    for since in ["2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z"] {
        let (mut sharing, _writer, _dir) = sharing(since).await;
        assert!(sharing.is_requested(Family::V4), "{since}");
        assert!(!sharing.is_requested(Family::V6), "{since}");
        let before = Instant::now().checked_sub(REQUEST_STANDS).unwrap();
        for seen in sharing.seen.values_mut() {
            *seen = before;
        }
        assert!(
            !sharing.is_requested(Family::V4),
            "{since}: it has stood for 20 s"
        );
    }
}
