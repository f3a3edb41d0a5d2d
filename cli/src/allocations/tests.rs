// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::testing::{address, block, cluster, pod, pool_with, with};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn the_status_of_a_pod_shows_the_holder_of_an_address_in_a_block() {
    let mut cluster = cluster();
    cluster.pods.push(pod("p", "a", "10.1.0.18"));
    let all = allocations(&cluster, &[], None);
    assert_eq!(all.len(), 1);
    assert_eq!(
        (all[0].address, all[0].pool.as_deref(), all[0].node.as_deref()),
        (ip("10.1.0.18"), Some("rail0"), Some("a"))
    );
    assert_eq!(all[0].since.as_deref(), Some("2026-01-01T00:30:00Z"));
    assert_eq!(all[0].reported_by, [Evidence::NetworkStatus]);
}

#[test]
fn two_sources_of_one_attachment_are_reported_as_one_holder() {
    let mut cluster = with(&[], &[address("rail0", "10.1.0.100", "a", "p")]);
    cluster.pods.push(pod("p", "a", "10.1.0.100"));
    let all = allocations(&cluster, &[], None);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0].reported_by, [Evidence::Object, Evidence::NetworkStatus]);
    assert_eq!(
        all[0].since.as_deref(),
        Some("2026-01-01T01:00:00Z"),
        "the attachment's, not the pod's"
    );
}

#[test]
fn two_pods_with_one_address_are_two_holders() {
    let mut cluster = with(&[], &[address("rail0", "10.1.0.100", "a", "p")]);
    cluster.pods.push(pod("q", "a", "10.1.0.100"));
    assert_eq!(allocations(&cluster, &[], None).len(), 2);
}

#[test]
fn addresses_of_other_networks_are_ignored() {
    let mut cluster = cluster();
    cluster.pods.push(pod("p", "a", "172.16.0.1"));
    assert_eq!(allocations(&cluster, &[], None), []);
    cluster.networks.insert("ml/rail0".into(), vec!["rail0".into()]);
    assert_eq!(
        allocations(&cluster, &[], None).len(),
        1,
        "its network says that it is ours"
    );
}

#[test]
fn the_network_selects_the_pool_of_an_address_in_two_address_spaces() {
    let mut cluster = cluster();
    let other = crate::testing::pool("other", &serde_json::json!([{ "subnet": "10.1.0.0/24" }]));
    let mut other: api::IpPool = serde_json::from_value(other).unwrap();
    other.spec.address_space = "lab".to_owned();
    cluster.pools.push(crate::cluster::snapshot::Pool::of(other));
    let pool = |cluster: &Snapshot, address: &str, node: &str| {
        cluster
            .pool_of(ip(address), "ml/rail0", Some(node))
            .map(|pool| pool.name().to_owned())
    };
    assert_eq!(
        pool(&cluster, "10.1.0.18", "a").as_deref(),
        Some("rail0"),
        "by the node's block"
    );
    assert_eq!(
        pool(&cluster, "10.1.0.99", "a"),
        None,
        "the address is outside the node's blocks"
    );
    cluster.networks.insert("ml/rail0".into(), vec!["other".into()]);
    assert_eq!(pool(&cluster, "10.1.0.18", "a").as_deref(), Some("other"));
}

#[test]
fn an_unallocated_address_is_explained() {
    let cluster = cluster();
    for (address, sentence) in [
        ("10.9.9.9", "10.9.9.9 is in no pool"),
        (
            "10.1.0.0",
            "pool rail0 never allocates 10.1.0.0: it is the network address",
        ),
        ("10.1.0.1", "never allocates 10.1.0.1: it is "),
        ("10.1.0.205", "never allocates 10.1.0.205: it is "),
        (
            "10.1.0.20",
            "node a allocates it to its pods (pool rail0, block 10.1.0.16/28)",
        ),
        (
            "10.1.0.99",
            "free in pool rail0: no node has claimed a block with it",
        ),
    ] {
        let text = describe_unallocated(&cluster, ip(address));
        assert!(text.contains(sentence), "{text}");
    }
}

#[test]
fn the_state_of_a_block_decides_what_its_unallocated_addresses_are() {
    for (state, sentence) in [
        (
            "Draining",
            "node gone returns its block when no pod has an address of it",
        ),
        ("Shared", "every node allocates it, because its block is shared"),
        ("Orphaned", "node gone, which had its block, is gone"),
        ("Orphaned", "if the machine is off: rdmanet release --node gone"),
    ] {
        let mut block = block("rail0", "10.1.0.48/28", "gone");
        block["spec"]["state"] = state.into();
        let text = describe_unallocated(&with(&[block], &[]), ip("10.1.0.50"));
        assert!(text.contains(sentence), "{state}: {text}");
        assert!(!text.contains("allocates it to its pods"), "{state}: {text}");
        assert_eq!(text.contains("is free according"), state != "Orphaned", "{text}");
    }
}

#[test]
fn a_reserved_address_of_a_sticky_pool_is_also_for_the_pods_of_a_stateful_set() {
    for (sticky, is_named) in [("Never", false), ("StatefulSet", true)] {
        let more = serde_json::json!({ "reserved": ["10.1.0.128/28"], "sticky": sticky });
        let pool = pool_with("rail0", &serde_json::json!([{ "subnet": "10.1.0.0/24" }]), &more);
        let pools = vec![serde_json::from_value(pool).unwrap()];
        let text = describe_unallocated(&Snapshot::of(pools, vec![], vec![]), ip("10.1.0.130"));
        assert!(text.contains("only to a pod that requests it"), "{text}");
        assert_eq!(text.contains("StatefulSets"), is_named, "{text}");
    }
}
