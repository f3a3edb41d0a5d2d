// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::testing::{address, cluster, pod, with};

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
