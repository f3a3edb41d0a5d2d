// SPDX-License-Identifier: Apache-2.0

use super::*;
use api::metrics::Served;
use serde_json::json;

fn pool() -> IpPool {
    serde_json::from_value(json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": "rail0" },
        "spec": { "ranges": [{ "subnet": "10.1.0.0/24" }] },
        "status": {
            "counters": { "size": 254, "used": 250, "free": 4, "unclaimed": 0, "blocks": 16 },
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Accepted", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    }))
    .unwrap()
}

#[test]
fn the_size_and_the_free_addresses_of_a_pool_are_served_while_it_exists() {
    let metrics = Metrics::default();
    let served = Served::new("controller", |all| metrics.register(all));
    metrics.set_pool(&pool());
    let text = served.text();
    for line in [
        "rdmanet_pool_addresses{pool=\"rail0\"} 254",
        "rdmanet_pool_addresses_used{pool=\"rail0\"} 250",
        "rdmanet_pool_addresses_free{pool=\"rail0\"} 4",
        "rdmanet_pool_blocks{pool=\"rail0\"} 16",
        "rdmanet_pool_condition{pool=\"rail0\",condition=\"Ready\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    metrics.clear_pools();
    assert!(!served.text().contains("rail0"));
    metrics.set_pool(&pool());
    metrics.remove_pool(&pool());
    let text = served.text();
    assert!(!text.contains("rail0"), "{text}");
    assert!(text.contains("rdmanet_build_info{version="), "{text}");
}
