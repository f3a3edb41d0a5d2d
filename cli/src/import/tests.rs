// SPDX-License-Identifier: Apache-2.0
//! Tests the parser of foreign objects and the conversion. `cli/tests/cluster/import.rs` imports whole pools.

mod damaged;
mod files;
mod grace;

use super::plan::{PlanOptions, annotation, plan};
use super::source::{Group, Network, SourceData};
use super::step::{Action, Step};
use super::{host_local, nv_ipam, whereabouts};
use crate::cluster::pods::PodFacts;
use crate::cluster::snapshot::Snapshot;
use crate::testing::pod;
use api::IpPool;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

fn network(name: &str, ipam: &Value) -> Network {
    let config = json!({ "name": name, "type": "macvlan", "ipam": ipam });
    Network::of(object(name, &json!({ "config": config.to_string() }))).unwrap()
}

fn object(name: &str, spec: &Value) -> DynamicObject {
    serde_json::from_value(json!({ "metadata": { "name": name, "namespace": "default" }, "spec": spec }))
        .unwrap()
}

fn of_whereabouts(ipams: &[Value], pools: &[DynamicObject]) -> SourceData {
    let networks = ipams
        .iter()
        .enumerate()
        .map(|(i, ipam)| network(&format!("net{i}"), ipam));
    whereabouts::interpret(networks.collect(), pools, &[])
}

fn only(reading: &SourceData) -> &Group {
    assert_eq!((reading.groups.len(), &reading.refused), (1, &vec![]));
    &reading.groups[0]
}

const OPTIONS: PlanOptions = PlanOptions {
    source: "whereabouts",
    grace: Duration::ZERO,
    now: Timestamp::UNIX_EPOCH,
    switch: false,
};

fn steps(reading: &SourceData, snapshot: &Snapshot) -> Vec<Step> {
    let (steps, refused) = plan(reading, snapshot, &OPTIONS);
    assert_eq!(refused, []);
    steps
}

/// The pool of a step as it is after that step, accepted by the controller.
fn accepted(step: &Step) -> IpPool {
    let mut pool = IpPool::new(&step.pool, step.spec.clone());
    let (key, record) = annotation(&step.record);
    pool.annotations_mut().insert(key, record);
    let status = json!({ "accepted": step.spec, "conditions": [condition("True", "Accepted", "")] });
    pool.status = Some(serde_json::from_value(status).unwrap());
    pool
}

fn condition(status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": "Ready", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

fn range(range: &str) -> Value {
    json!({ "type": "whereabouts", "range": range })
}

#[test]
fn a_range_of_whereabouts_keeps_its_bounds() {
    for (ipam, subnet, start, end) in [
        // The parser clears host bits: this range starts at .129.
        (
            json!({ "range": "192.168.5.152/27" }),
            "192.168.5.128/27",
            None,
            None,
        ),
        (
            json!({ "range": "10.0.0.5-10.0.0.9/24" }),
            "10.0.0.0/24",
            Some("10.0.0.5"),
            Some("10.0.0.9"),
        ),
        (
            json!({ "range": "10.0.0.0/24", "range_end": "10.0.0.99" }),
            "10.0.0.0/24",
            None,
            Some("10.0.0.99"),
        ),
        (
            json!({ "ipRanges": [{ "range": "fd00::/64", "range_start": "fd00::10" }] }),
            "fd00::/64",
            Some("fd00::10"),
            None,
        ),
    ] {
        let mut ipam = ipam;
        ipam["type"] = json!("whereabouts");
        let reading = of_whereabouts(&[ipam], &[]);
        let range = &only(&reading).ranges[0];
        assert_eq!(
            (
                range.subnet.as_str(),
                range.start.as_deref(),
                range.end.as_deref()
            ),
            (subnet, start, end)
        );
        assert_eq!(
            range.gateway.as_deref(),
            Some("none"),
            "whereabouts reserves no gateway by default"
        );
    }
}

#[test]
fn two_address_families_become_one_pool_with_the_gateway_in_its_range() {
    let ipam = json!({
        "type": "whereabouts", "gateway": "10.0.0.1", "network_name": "blue",
        "ipRanges": [{ "range": "10.0.0.0/24" }, { "range": "fd00::/64" }], "routes": [{ "dst": "10.0.0.0/8" }],
    });
    let reading = of_whereabouts(&[ipam], &[]);
    let group = only(&reading);
    assert_eq!(group.keys, ["blue-10.0.0.0-24", "blue-fd00---64"]);
    let gateways: Vec<Option<&str>> = group
        .ranges
        .iter()
        .map(|range| range.gateway.as_deref())
        .collect();
    assert_eq!(
        (gateways, group.space.as_deref(), group.routes.len()),
        (vec![Some("10.0.0.1"), Some("none")], Some("blue"), 1)
    );
}

#[test]
fn an_unsupported_ipam_option_is_rejected_with_network_and_reason() {
    for (ipam, reason) in [
        (
            json!({ "range": "10.0.0.0/24", "node_slice_size": "/28" }),
            "node_slice_size",
        ),
        (
            json!({ "range": "10.0.0.0/24", "addresses": [{ "address": "10.0.0.1/24" }] }),
            "ipam.addresses",
        ),
        (
            json!({ "ipRanges": [{ "range": "10.0.0.0/24" }, { "range": "10.0.1.0/24" }] }),
            "several addresses of one IP family",
        ),
        (json!({}), "names no range"),
        (
            json!({ "range": "10.0.0.0/33" }),
            "\"10.0.0.0/33\" is not a range",
        ),
        (
            json!({ "range": "10.0.0.0/24", "range_start": "10.0.9.1" }),
            "10.0.9.1 lies outside 10.0.0.0/24",
        ),
        (
            json!({ "range": "10.0.0.0/24", "exclude": ["all"] }),
            "exclude \"all\"",
        ),
    ] {
        let mut ipam = ipam;
        ipam["type"] = json!("whereabouts");
        let reading = of_whereabouts(&[ipam], &[]);
        assert!(reading.groups.is_empty());
        assert!(
            reading.refused[0].to_string().contains(reason),
            "{}",
            reading.refused[0]
        );
        assert!(reading.refused[0].subject.contains("default/net0"));
    }
}

#[test]
fn networks_with_different_parts_of_one_range_are_rejected() {
    let of = |start: &str| json!({ "type": "whereabouts", "range": "10.0.0.0/24", "range_start": start });
    let reading = of_whereabouts(&[of("10.0.0.9"), of("10.0.0.99")], &[]);
    assert!(
        reading.groups.is_empty() && reading.refused.len() == 1,
        "{:?}",
        reading.refused
    );
    assert!(
        reading.refused[0]
            .subject
            .contains("default/net0 and default/net1")
    );
    let same = of_whereabouts(&[of("10.0.0.9"), of("10.0.0.9")], &[]);
    assert_eq!(only(&same).networks.len(), 2);
    let both = json!({ "type": "whereabouts", "ipRanges": [{ "range": "10.0.0.0/24", "range_start": "10.0.0.9" }, { "range": "fd00::/64" }] });
    let mixed = of_whereabouts(&[of("10.0.0.9"), both], &[]);
    assert!(
        mixed.groups.is_empty() && mixed.refused.len() == 2,
        "{:?}",
        mixed.refused
    );
}

#[test]
fn networks_whose_ranges_overlap_are_rejected_with_both_names_and_ranges() {
    let reading = of_whereabouts(
        &[range("10.0.0.0/16"), range("10.0.1.0/24"), range("10.1.0.0/16")],
        &[],
    );
    let (planned, refused) = plan(&reading, &Snapshot::default(), &OPTIONS);
    assert_eq!(planned.len(), 1, "only the third range is one of its own");
    let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
    assert_eq!(refused.len(), 2, "{refused:?}");
    for one in refused {
        for part in [
            "default/net0",
            "10.0.0.0/16",
            "default/net1",
            "10.0.1.0/24",
            "one pool must have both",
        ] {
            assert!(one.contains(part), "{one} lacks {part}");
        }
    }
    let mut other = range("10.0.1.0/24");
    other["network_name"] = json!("blue");
    let apart = of_whereabouts(&[range("10.0.0.0/16"), other], &[]);
    assert_eq!((apart.groups.len(), apart.refused), (2, vec![]));
}

#[test]
fn a_pool_stays_closed_while_a_network_of_the_old_plugin_overlaps_it() {
    let whole = of_whereabouts(&[range("10.0.0.0/16")], &[]);
    let pool = accepted(&steps(&whole, &Snapshot::default())[0]);
    let snapshot = Snapshot::of(vec![pool], vec![], vec![]);
    assert_eq!(steps(&SourceData::default(), &snapshot)[0].state(), "open");

    // net0 is switched. A network with a part of its range is not.
    let part = whereabouts::interpret(vec![network("part", &range("10.0.1.0/24"))], &[], &[]);
    let (planned, refused) = plan(&part, &snapshot, &OPTIONS);
    assert!(planned.is_empty(), "{planned:?}");
    let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
    assert!(
        refused
            .iter()
            .any(|one| one.contains("pool net0") && one.contains("of network default/part")),
        "{refused:?}"
    );
    assert!(
        refused
            .iter()
            .any(|one| one.starts_with("network default/part") && one.contains("of pool net0")),
        "{refused:?}"
    );
}

/// Addresses of host-local are of one node, so networks that have nothing to do with the import may share a subnet.
#[test]
fn networks_that_overlap_each_other_keep_no_other_pool_closed() {
    let rail0 = of_whereabouts(&[range("10.20.0.0/16")], &[]);
    let pool = accepted(&steps(&rail0, &Snapshot::default())[0]);
    let snapshot = Snapshot::of(vec![pool], vec![], vec![]);
    let others = of_whereabouts(&[range("10.10.0.0/24"), range("10.10.0.0/25")], &[]);
    let (planned, refused) = plan(&others, &snapshot, &OPTIONS);
    assert_eq!((planned[0].state(), refused.len()), ("open", 2), "{refused:?}");
}

#[test]
fn a_network_that_overlaps_an_open_pool_is_a_conflict_and_its_addresses_are_excluded() {
    let whole = of_whereabouts(&[range("10.0.0.0/16")], &[]);
    let pool = accepted(&steps(&whole, &Snapshot::default())[0]);
    let closed = Snapshot::of(vec![pool], vec![], vec![]);
    let open = accepted(&steps(&SourceData::default(), &closed)[0]);
    let mut snapshot = Snapshot::of(vec![open], vec![], vec![]);
    snapshot.pods.push(PodFacts {
        name: "ml/p".to_owned(),
        is_running: true,
        ..PodFacts::default()
    });
    let part = whereabouts::interpret(
        vec![network("part", &range("10.0.1.0/24"))],
        &[],
        &[object("10.0.1.5", &json!({ "podref": "ml/p" }))],
    );
    let (planned, _) = plan(&part, &snapshot, &OPTIONS);
    assert_eq!(planned[0].state(), "conflict");
    assert!(planned[0].describe(false).contains("of network default/part"));
    let excluded = &planned[0].spec.ranges[0].exclude;
    assert!(
        excluded.iter().any(|one| one.contains("10.0.1.5")),
        "{excluded:?}"
    );
}

#[test]
fn two_imported_pools_that_overlap_stay_closed() {
    let pools = ["10.0.0.0/16", "10.0.1.0/24"].map(|text| {
        let reading = whereabouts::interpret(
            vec![network(
                &format!("of-{}", &text[7..]).replace('/', "-"),
                &range(text),
            )],
            &[],
            &[],
        );
        accepted(&steps(&reading, &Snapshot::default())[0])
    });
    let snapshot = Snapshot::of(pools.into(), vec![], vec![]);
    let (planned, refused) = plan(&SourceData::default(), &snapshot, &OPTIONS);
    assert!(
        planned.is_empty() && refused.len() == 2,
        "{planned:?} {refused:?}"
    );
}

#[test]
fn an_address_that_is_only_reserved_is_excluded_when_the_pool_opens() {
    let mut blue = range("10.0.0.0/24");
    blue["network_name"] = json!("blue");
    let reading = of_whereabouts(&[range("10.0.0.0/24"), blue], &[]);
    let pools: Vec<IpPool> = steps(&reading, &Snapshot::default())
        .iter()
        .map(accepted)
        .collect();
    let mut snapshot = Snapshot::of(pools, vec![], vec![]);
    for name in ["p", "q", "r"] {
        snapshot.pods.push(PodFacts {
            name: format!("ml/{name}"),
            is_running: true,
            ..PodFacts::default()
        });
    }

    let reserved = |name: &str, pod: &str| object(name, &json!({ "podref": pod }));
    let reserved = [
        reserved("10.0.0.5", "ml/p"),
        reserved("blue-10.0.0.6", "ml/q"),
        reserved("10.0.0.7", "ml/gone"),
        reserved("blue-fd00--8", "ml/r"),
        reserved("dc1-fd00--8", "ml/r"),
    ];
    let switched = whereabouts::interpret(vec![], &[], &reserved);
    for space in ["blue", "dc1"] {
        let found = &switched.reserved[space];
        assert_eq!(found.last().unwrap().address.to_string(), "fd00::8", "{space}");
    }
    let opened = steps(&switched, &snapshot);
    let excluded: Vec<&[String]> = opened
        .iter()
        .map(|step| &step.spec.ranges[0].exclude[..])
        .collect();
    assert_eq!(excluded, [["10.0.0.5"], ["10.0.0.6"]]);
}

#[test]
fn a_late_allocation_of_the_old_plugin_is_reported_and_excluded() {
    let reading = of_whereabouts(&[range("10.0.0.0/24")], &[]);
    let closed = accepted(&steps(&reading, &Snapshot::default())[0]);
    let next = |pool: IpPool, data: &SourceData| {
        let mut snapshot = Snapshot::of(vec![pool], vec![], vec![]);
        snapshot.pods.push(pod("late", "a", "10.0.0.9"));
        // Its name is in an allocation of an earlier pod, and it has its address from the pool.
        snapshot.pods.push(pod("web-0", "a", "10.0.0.20"));
        steps(data, &snapshot).remove(0)
    };
    let mut opened = steps(
        &SourceData::default(),
        &Snapshot::of(vec![closed], vec![], vec![]),
    )
    .remove(0);
    opened.spec.node_selector = None;
    let open = accepted(&opened);

    let entry = |pod: &str| json!({ "id": "c", "podref": pod });
    let allocations = json!({ "9": entry("ml/late"), "10": entry("ml/gone"), "11": entry("ml/web-0") });
    let records = object(
        "10.0.0.0-24",
        &json!({ "range": "10.0.0.0/24", "allocations": allocations }),
    );
    let data = of_whereabouts(&[], &[records]);
    let found = next(open, &data);
    assert_eq!((found.state(), found.is_unfinished()), ("conflict", true));
    let text = found.describe(false);
    assert!(
        text.contains("allocated 10.0.0.9 for ml/late") && text.contains("rdmanet check"),
        "{text}"
    );
    assert!(!text.contains("is left") && !text.contains("10.0.0.10"), "{text}");
    assert_eq!(found.spec.ranges[0].exclude, ["10.0.0.9"]);

    let later = next(accepted(&found), &data);
    assert_eq!((later.state(), later.is_unfinished()), ("open", false));
    assert!(
        later.describe(false).contains("when these pods have ended"),
        "{}",
        later.describe(false)
    );
}

#[test]
fn a_pool_is_open_only_if_the_controller_has_accepted_it() {
    let reading = of_whereabouts(&[range("10.0.0.0/24")], &[]);
    let mut pool = accepted(&steps(&reading, &Snapshot::default())[0]);
    let step = |pool: &IpPool| {
        let snapshot = Snapshot::of(vec![pool.clone()], vec![], vec![]);
        steps(&SourceData::default(), &snapshot).remove(0)
    };
    let opened = step(&pool);
    assert_eq!((opened.state(), opened.is_unfinished()), ("open", false));
    let ready = pool.status.clone();
    let why = condition("False", "Conflict", "rail9 has 10.0.0.1");
    pool.status = Some(serde_json::from_value(json!({ "conditions": [why] })).unwrap());
    let kept = step(&pool);
    assert_eq!((kept.state(), kept.is_unfinished()), ("closed", true));
    assert!(
        kept.describe(false).contains("Conflict): rail9 has 10.0.0.1"),
        "{}",
        kept.describe(false)
    );

    pool.spec = opened.spec;
    let open = step(&pool);
    assert_eq!((open.state(), open.is_unfinished()), ("not ready", true));
    assert!(
        !open.describe(false).contains("is left"),
        "{}",
        open.describe(false)
    );
    // The condition describes an earlier spec.
    pool.status = ready;
    pool.metadata.generation = Some(2);
    assert_eq!(step(&pool).state(), "not ready");
}

#[test]
fn many_addresses_in_use_are_excluded_with_few_entries() {
    let ipam = json!({ "type": "whereabouts", "range": "10.0.0.0/24" });
    let given = |n: u32| (n.to_string(), json!({ "id": "c", "podref": "ml/p" }));
    let allocations: BTreeMap<String, Value> = (0..100).map(|i| given(2 * i + 1)).collect();
    let pool = object(
        "10.0.0.0-24",
        &json!({ "range": "10.0.0.0/24", "allocations": allocations }),
    );
    let reading = of_whereabouts(&[ipam], &[pool]);
    let mut snapshot = Snapshot::default();
    snapshot.pods.push(pod("p", "a", "10.0.0.1"));
    let step = &steps(&reading, &snapshot)[0];
    assert_eq!((step.in_use.len(), step.ended.len()), (100, 0));
    let exclude = &step.spec.ranges[0].exclude;
    assert_eq!(exclude.len(), 32);
    let covered = |n: u128| {
        exclude
            .iter()
            .filter_map(|entry| crate::interval::parse(entry))
            .any(|(_, at)| at.contains(n))
    };
    assert!((0..100).all(|i| covered(u128::from(0x0a00_0001_u32 + 2 * i))));
    assert!(
        step.rounded > 0 && step.describe(false).contains("more addresses are excluded"),
        "{}",
        step.describe(false)
    );
}

/// An administrator excludes an address that a pod still has, for a host that gets it afterwards.
#[test]
fn an_exclusion_of_the_source_stays_after_the_pod_with_that_address_has_ended() {
    let ipam = json!({ "type": "whereabouts", "range": "10.0.0.0/24", "exclude": ["10.0.0.5"] });
    let allocations = json!({ "5": { "id": "c", "podref": "ml/p" } });
    let pool = object(
        "10.0.0.0-24",
        &json!({ "range": "10.0.0.0/24", "allocations": allocations }),
    );
    let reading = of_whereabouts(&[ipam], &[pool]);
    let mut snapshot = Snapshot::default();
    snapshot.pods.push(pod("p", "a", "10.0.0.5"));
    let created = accepted(&steps(&reading, &snapshot)[0]);
    // Step after step, with the pod and without it.
    let mut pool = created;
    for has_pod in [true, true, false, false] {
        let mut snapshot = Snapshot::of(vec![pool], vec![], vec![]);
        if has_pod {
            snapshot.pods.push(pod("p", "a", "10.0.0.5"));
        }
        pool = accepted(&steps(&reading, &snapshot)[0]);
        let exclude = &pool.spec.ranges[0].exclude;
        assert!(exclude.contains(&"10.0.0.5".to_owned()), "{has_pod}: {exclude:?}");
    }
}

/// Otherwise the plan would promise a pool that the API server refuses.
#[test]
fn a_range_with_more_exclusions_than_a_pool_has_is_refused_without_a_pod_too() {
    let exclude: Vec<String> = (0..33).map(|n| format!("10.0.0.{}", 2 * n + 2)).collect();
    let reading = of_whereabouts(
        &[json!({ "type": "whereabouts", "range": "10.0.0.0/24", "exclude": exclude })],
        &[],
    );
    let (steps, refused) = plan(&reading, &Snapshot::default(), &OPTIONS);
    assert!(
        steps.is_empty() && refused[0].reason.contains("33 exclusions"),
        "{refused:?}"
    );
}

#[test]
fn networks_of_one_name_in_two_namespaces_become_two_pools() {
    let mut reading = of_whereabouts(
        &[
            json!({ "type": "whereabouts", "range": "10.0.0.0/24" }),
            json!({ "type": "whereabouts", "range": "10.0.1.0/24" }),
        ],
        &[],
    );
    for (group, namespace) in reading.groups.iter_mut().zip(["dev", "ml"]) {
        group.networks[0].name = format!("{namespace}/rail0");
    }
    let first = steps(&reading, &Snapshot::default());
    let names: Vec<&str> = first.iter().map(|step| step.pool.as_str()).collect();
    assert_eq!(names, ["rail0", "whereabouts-10-0-1-0-24"]);
    // The second network was created when the first one had been imported.
    let snapshot = Snapshot::of(vec![accepted(&first[0])], vec![], vec![]);
    let later = steps(&reading, &snapshot);
    let names: Vec<&str> = later.iter().map(|step| step.pool.as_str()).collect();
    assert_eq!(names, ["rail0", "whereabouts-10-0-1-0-24"]);
}

#[test]
fn an_imported_pool_has_a_block_for_each_node_or_no_blocks() {
    let block = |range: &str, nodes: usize| {
        let reading = of_whereabouts(&[json!({ "type": "whereabouts", "range": range })], &[]);
        let mut snapshot = Snapshot::default();
        snapshot.nodes = (0..nodes).map(|n| (n.to_string(), n.to_string())).collect();
        let spec = steps(&reading, &snapshot)[0].spec.clone();
        (format!("{:?}", spec.allocation), spec.block_size.v4)
    };
    assert_eq!(block("10.0.0.0/16", 10), ("Blocks".to_owned(), 64));
    assert_eq!(block("10.0.0.0/24", 10).1, 8);
    assert_eq!(block("10.0.0.0/27", 10).0, "PerAddress");
}

#[test]
fn an_import_does_not_change_an_unrelated_pool_of_the_same_name() {
    let reading = of_whereabouts(&[json!({ "type": "whereabouts", "range": "10.0.0.0/24" })], &[]);
    let object = crate::testing::pool("net0", &json!([{ "subnet": "10.9.0.0/24" }]));
    let snapshot = Snapshot::of(vec![serde_json::from_value(object).unwrap()], vec![], vec![]);
    let (steps, refused) = plan(&reading, &snapshot, &OPTIONS);
    assert!(
        steps.is_empty() && refused[0].reason.contains("a pool net0 exists"),
        "{refused:?}"
    );
}

#[test]
fn unsupported_pools_of_nv_ipam_are_rejected() {
    for (spec, reason) in [
        (json!({ "subnet": "x" }), "is not a network"),
        (
            json!({ "subnet": "10.0.0.0/24", "perNodeExclusions": [{ "startIndex": 0, "endIndex": 1 }] }),
            "perNodeExclusions",
        ),
        (
            json!({ "subnet": "10.0.0.0/24", "nodeSelector": { "nodeSelectorTerms": [{}, {}] } }),
            "several terms",
        ),
        (
            json!({ "subnet": "10.0.0.0/24", "nodeSelector": { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "a", "operator": "Gt", "values": ["1"] }] }] } }),
            "operator Gt",
        ),
    ] {
        let networks = vec![network("n", &json!({ "type": "nv-ipam", "poolName": "p" }))];
        let reading = nv_ipam::interpret(networks, &[object("p", &spec)], BTreeMap::new());
        assert!(
            reading.refused[0].reason.contains(reason),
            "{:?}",
            reading.refused
        );
    }
    let networks = vec![network("n", &json!({ "type": "nv-ipam", "poolName": "p" }))];
    let reading = nv_ipam::interpret(networks, &[], BTreeMap::new());
    assert!(reading.refused[0].reason.contains("p does not exist"));
}

#[test]
fn an_imported_host_local_range_keeps_its_default_gateway() {
    let networks = vec![network(
        "n",
        &json!({ "type": "host-local", "ranges": [[{ "subnet": "10.0.0.0/24" }], [{ "subnet": "fd00::/64" }]] }),
    )];
    let reading = host_local::interpret(networks, BTreeMap::new());
    let group = only(&reading);
    assert_eq!(group.keys, ["n"]);
    assert_eq!((group.ranges.len(), &group.ranges[0].gateway), (2, &None));
}

#[test]
fn a_network_of_an_operator_is_not_switched_and_its_owner_is_named() {
    let controlled = json!({ "ownerReferences": [{
        "apiVersion": "mellanox.com/v1alpha1", "kind": "MacvlanNetwork", "name": "rail0", "uid": "u", "controller": true,
    }] });
    let unmarked = json!({ "ownerReferences": [{
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovIBNetwork", "name": "rail0", "uid": "u",
    }] });
    let annotation = "SriovNetwork.sriovnetwork.openshift.io/sriov/rail0";
    let annotated = json!({ "annotations": { "sriovnetwork.openshift.io/owner-ref": annotation } });
    let switch = PlanOptions {
        switch: true,
        ..OPTIONS
    };
    for (metadata, owner) in [
        (controlled, "belongs to MacvlanNetwork rail0,"),
        (unmarked, "belongs to SriovIBNetwork rail0,"),
        (annotated, "belongs to SriovNetwork sriov/rail0,"),
    ] {
        let mut owned = network("rail0", &range("10.0.0.0/24"));
        let mut object = serde_json::to_value(&owned.object).unwrap();
        for (key, value) in metadata.as_object().unwrap() {
            object["metadata"][key] = value.clone();
        }
        owned.object = serde_json::from_value(object).unwrap();
        let networks = vec![owned.clone(), network("own", &range("10.0.0.0/24"))];
        let reading = whereabouts::interpret(networks, &[], &[]);
        let first = plan(&reading, &Snapshot::default(), &switch).0.remove(0);
        let snapshot = Snapshot::of(vec![accepted(&first)], vec![], vec![]);
        for step in [first, plan(&reading, &snapshot, &switch).0.remove(0)] {
            assert!(!step.switch && step.is_unfinished(), "{step:?}");
            let text = step.describe(false);
            assert!(
                text.contains(owner) && text.contains(r#"{"type": "rdma-ipam""#),
                "{text}"
            );
            assert!(
                text.contains("give network default/own the") && !text.contains("or with"),
                "{text}"
            );
        }
        // A reference that names no controller and no operator that restores its objects is no obstacle.
        owned.object.metadata.annotations = None;
        owned.object.metadata.owner_references = serde_json::from_value(json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "release", "uid": "u",
        }]))
        .unwrap();
        let reading = whereabouts::interpret(vec![owned], &[], &[]);
        assert!(plan(&reading, &Snapshot::default(), &switch).0[0].switch);
    }
}

#[test]
fn a_switched_network_configuration_keeps_its_other_settings() {
    let before = json!({ "name": "n", "plugins": [
        { "type": "macvlan", "master": "eth0", "ipam": { "type": "whereabouts", "range": "10.0.0.0/24", "dns": { "nameservers": ["10.0.0.1"] } } },
        { "type": "tuning", "mtu": 9000 },
    ] });
    let after = super::apply::switched(&before.to_string(), "p", "whereabouts").unwrap();
    let after: Value = serde_json::from_str(&after).unwrap();
    assert_eq!(
        after["plugins"][0]["ipam"],
        json!({ "type": "rdma-ipam", "pool": "p", "dns": { "nameservers": ["10.0.0.1"] } })
    );
    assert_eq!(
        (&after["plugins"][0]["master"], &after["plugins"][1]["mtu"]),
        (&json!("eth0"), &json!(9000))
    );
    assert_eq!(super::apply::switched(&before.to_string(), "p", "nv-ipam"), None);
}

/// A route of a pool has a destination and a gateway only.
#[test]
fn a_switched_network_keeps_the_settings_that_a_pool_cannot_have() {
    let switched = |ipam: &Value| {
        let config = json!({ "type": "bridge", "ipam": ipam }).to_string();
        let text = super::apply::switched(&config, "p", "host-local").unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["ipam"].clone()
    };
    let plain = json!({ "dst": "10.8.0.0/16", "gw": "10.0.0.1" });
    let own = json!({ "dst": "10.9.0.0/16", "mtu": 1400 });
    assert_eq!(
        switched(&json!({ "type": "host-local", "resolvConf": "/etc/pods.conf", "routes": [plain.clone()] })),
        json!({ "type": "rdma-ipam", "pool": "p", "resolvConf": "/etc/pods.conf" })
    );
    assert_eq!(
        switched(&json!({ "type": "host-local", "routes": [plain.clone(), own.clone()] })),
        json!({ "type": "rdma-ipam", "pool": "p", "routes": [plain, own] })
    );
}

#[test]
fn the_json_of_a_dry_run_reports_no_change_as_done() {
    use crate::args::{Args, ClusterCommand, Command};
    use clap::Parser;
    let reading = of_whereabouts(&[range("10.0.0.0/16")], &[]);
    let (planned, _) = plan(&reading, &Snapshot::default(), &OPTIONS);
    let messages = [true, false].map(|dry_run| {
        let flag = dry_run.then_some("--dry-run");
        let all = ["rdmanet", "import", "whereabouts"].into_iter().chain(flag);
        let Command::Cluster(ClusterCommand::Import(options)) = Args::parse_from(all).command else {
            panic!("the command is import");
        };
        let answer = crate::import::answer(&reading, &planned, &options);
        answer.json["pools"][0]["message"].as_str().unwrap().to_owned()
    });
    assert_eq!(
        messages,
        [true, false].map(|dry_run| planned[0].describe(dry_run))
    );
    assert_ne!(messages[0], messages[1]);
}
