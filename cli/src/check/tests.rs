// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::cluster::snapshot::WORK;
use crate::testing::{address, block, cluster, pod, pool_with, with};

fn kinds(snapshot: &Snapshot) -> Vec<(Severity, &'static str, String)> {
    problems(snapshot)
        .into_iter()
        .map(|one| (one.level, one.kind, one.subject))
        .collect()
}

#[test]
fn a_healthy_cluster_has_no_problem() {
    let mut cluster = with(&[], &[address("rail0", "10.1.0.100", "a", "q")]);
    cluster.pods = [pod("p", "a", "10.1.0.18"), pod("q", "a", "10.1.0.100")]
        .into_iter()
        .collect();
    assert_eq!(problems(&cluster), []);
    assert_eq!(answer(&cluster, &[]).outcome, Outcome::Fine);
}

#[test]
fn one_address_of_two_pods_is_reported_as_a_duplicate() {
    let mut cluster = cluster();
    cluster.pods = [pod("p", "a", "10.1.0.18"), pod("q", "b", "10.1.0.18")]
        .into_iter()
        .collect();
    let found = kinds(&cluster);
    assert!(
        found.contains(&(Severity::Fail, "duplicate", "10.1.0.18".into())),
        "{found:?}"
    );
    assert!(
        found.contains(&(Severity::Fail, "foreign-block", "10.1.0.18".into())),
        "{found:?}"
    );
}

#[test]
fn a_pod_that_has_ended_holds_no_address() {
    let mut cluster = cluster();
    let ended = PodFacts {
        is_running: false,
        ..pod("q", "b", "10.1.0.18")
    };
    cluster.pods = [pod("p", "a", "10.1.0.18"), ended].into_iter().collect();
    assert_eq!(problems(&cluster), []);
}

#[test]
fn an_unclaimed_and_an_excluded_address_are_different_problems() {
    let mut cluster = cluster();
    cluster.pods = [pod("p", "a", "10.1.0.99"), pod("q", "a", "10.1.0.203")]
        .into_iter()
        .collect();
    let found = kinds(&cluster);
    assert_eq!(
        found,
        [
            (Severity::Fail, "unclaimed", "10.1.0.99".into()),
            (Severity::Info, "excluded", "10.1.0.203".into()),
        ]
    );
}

#[test]
fn an_excluded_address_in_a_block_is_excluded_on_every_node() {
    for owner in ["a", "b"] {
        let mut cluster = with(&[block("rail0", "10.1.0.192/28", owner)], &[]);
        cluster.pods = [pod("p", "a", "10.1.0.203")].into_iter().collect();
        assert_eq!(
            kinds(&cluster),
            [(Severity::Info, "excluded", "10.1.0.203".into())],
            "the block of node {owner}"
        );
    }
}

#[test]
fn an_address_that_the_pool_of_the_block_may_allocate_is_not_excluded() {
    let mut cluster = with(&[block("rail1", "10.1.0.192/28", "b")], &[]);
    let other = crate::testing::pool("rail1", &json!([{ "subnet": "10.1.0.0/24" }]));
    cluster
        .pools
        .push(Pool::of(serde_json::from_value(other).unwrap()));
    cluster.networks.insert("ml/rail0".into(), vec!["rail0".into()]);
    cluster.pods = [pod("p", "a", "10.1.0.203")].into_iter().collect();
    assert_eq!(
        kinds(&cluster),
        [(Severity::Fail, "foreign-block", "10.1.0.203".into())]
    );
}

#[test]
fn an_address_outside_the_pools_of_its_network_is_reported() {
    let mut cluster = cluster();
    cluster.networks.insert("ml/rail0".into(), vec!["rail0".into()]);
    cluster.pods = [pod("p", "a", "172.16.0.1")].into_iter().collect();
    assert_eq!(
        kinds(&cluster),
        [(Severity::Warn, "outside", "172.16.0.1".into())]
    );
}

#[test]
fn an_address_object_of_a_gone_or_replaced_pod_is_a_leak() {
    let mut cluster = with(
        &[],
        &[
            address("rail0", "10.1.0.100", "a", "p"),
            address("rail0", "10.1.0.101", "a", "q"),
        ],
    );
    cluster.pods = [PodFacts {
        uids: vec!["another".into()],
        ..pod("q", "a", "10.1.0.20")
    }]
    .into_iter()
    .collect();
    let found = problems(&cluster);
    let leaks: Vec<&Finding> = found.iter().filter(|one| one.kind == "leak").collect();
    assert_eq!(leaks.len(), 2, "{found:?}");
    assert!(leaks.iter().all(|one| one.level == Severity::Info), "{found:?}");
    assert!(
        leaks[0].text.contains("does not exist") && leaks[1].text.contains("another pod with the same name")
    );
    assert!(leaks[0].remedy.contains("rdmanet release 10.1.0.100"));
    assert!(
        leaks[0].remedy.contains("cooldown of the pool (30 s)"),
        "{found:?}"
    );
    // Nothing frees an address of a node without its agent, or of an earlier registration.
    for change in [
        |cluster: &mut Snapshot| {
            cluster.agents.insert("a".into(), false);
        },
        |cluster: &mut Snapshot| {
            cluster.nodes.insert("a".into(), "another".into());
        },
    ] {
        let mut cluster = with(&[], &[address("rail0", "10.1.0.100", "a", "p")]);
        change(&mut cluster);
        let leak = (Severity::Warn, "leak", "10.1.0.100".into());
        assert!(kinds(&cluster).contains(&leak), "{:?}", kinds(&cluster));
    }
}

#[test]
fn an_orphaned_block_of_a_node_that_was_registered_again_is_left_to_the_agent_of_that_node() {
    let mut orphan = block("rail0", "10.1.0.48/28", "a");
    orphan["spec"]["state"] = json!("Orphaned");
    for used in [0, 3] {
        orphan["status"] = json!({ "used": used, "free": 16 - used });
        let mut cluster = with(&[orphan.clone()], &[]);
        cluster.nodes.insert("a".into(), "another".into());
        let found = |cluster: &Snapshot| {
            let mut all = problems(cluster).into_iter();
            all.find(|one| one.subject.ends_with("0a010030-28")).unwrap()
        };
        let served = found(&cluster);
        assert_eq!(
            (served.level, served.kind),
            (Severity::Info, "orphan"),
            "{served:?}"
        );
        assert!(
            served
                .remedy
                .contains("the node's agent takes the block over or frees it"),
            "{served:?}"
        );
        cluster.agents.insert("a".into(), false);
        let deserted = found(&cluster);
        assert_eq!(
            (deserted.level, deserted.kind),
            (Severity::Warn, "orphan"),
            "{deserted:?}"
        );
        assert!(deserted.remedy.contains("kubectl delete node a"), "{deserted:?}");
    }
}

/// Two pools share a subnet, and the network names both.
#[test]
fn an_address_with_an_object_is_one_of_the_pool_of_that_object() {
    let mut cluster = with(&[], &[address("rail0", "10.1.0.100", "a", "p")]);
    let ranges = json!([{ "subnet": "10.1.0.0/24" }]);
    let other = serde_json::from_value(crate::testing::pool("ml", &ranges)).unwrap();
    cluster.pools.insert(0, Pool::of(other));
    cluster
        .networks
        .insert("ml/rail0".into(), vec!["ml".into(), "rail0".into()]);
    cluster.pods = [pod("p", "a", "10.1.0.100")].into_iter().collect();
    assert_eq!(problems(&cluster), []);
}

#[test]
fn the_remedy_for_a_block_of_a_lost_pool_names_the_process_that_deletes_it() {
    let mut shared = block("gone", "10.2.0.16/28", "a");
    shared["spec"]["state"] = json!("Shared");
    let cluster = with(&[block("gone", "10.2.0.0/28", "a"), shared], &[]);
    let found = problems(&cluster);
    let deleted_by = |who: &str| {
        let blocks = found.iter().filter(|one| one.kind == "homeless");
        blocks.filter(|one| one.remedy.starts_with(who)).count()
    };
    assert_eq!((deleted_by("its agent"), deleted_by("the controller")), (1, 1));
}

#[test]
fn blocks_without_a_node_or_a_pool_are_reported() {
    let mut cluster = with(
        &[
            block("gone", "10.2.0.0/28", "a"),
            block("rail0", "10.1.0.48/28", "c"),
        ],
        &[],
    );
    cluster.nodes.insert("b".into(), "registered anew".into());
    let found = kinds(&cluster);
    assert_eq!(
        found,
        [
            (Severity::Warn, "homeless", "default-4-0a020000-28".into()),
            (Severity::Warn, "orphan", "default-4-0a010020-28".into()),
            (Severity::Warn, "orphan", "default-4-0a010030-28".into()),
        ]
    );
}

#[test]
fn overlapping_blocks_are_reported_once() {
    let cluster = with(&[block("rail0", "10.1.0.0/26", "b")], &[]);
    let found: Vec<Finding> = problems(&cluster)
        .into_iter()
        .filter(|one| one.kind == "overlap")
        .collect();
    assert_eq!(
        found.iter().map(|one| one.subject.as_str()).collect::<Vec<_>>(),
        ["10.1.0.0/26", "10.1.0.0/26"]
    );
}

#[test]
fn a_pool_that_is_not_ready_is_reported_with_its_reason() {
    let mut cluster = cluster();
    let status = cluster.pools[0].object.status.as_mut().unwrap();
    status.conditions[0].status = "False".to_owned();
    status.conditions[0].message = "overlaps pool x".to_owned();
    let found = problems(&cluster);
    assert_eq!(
        (found[0].kind, found[0].subject.as_str()),
        ("pool", "rail0 Ready")
    );
    assert!(found[0].text.contains("overlaps pool x"));
    assert_eq!(answer(&cluster, &found).outcome, Outcome::Found);
}

#[test]
fn a_rail_without_carrier_is_a_warning_and_a_degraded_bond_is_info() {
    let mut cluster = cluster();
    let says = |status: &str, reason: &str| api::requests::NodeCondition {
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: format!("{reason} is the case"),
    };
    cluster.links = [
        ("a", says("True", reason::LINKS_UP)),
        ("b", says("False", reason::LINK_DOWN)),
        ("c", says("True", reason::BOND_DEGRADED)),
        ("d", says("Unknown", reason::NO_LINKS)),
    ]
    .map(|(node, says)| (node.to_owned(), says))
    .into();
    cluster.agents = cluster.links.keys().map(|node| (node.clone(), true)).collect();
    let found: Vec<_> = problems(&cluster)
        .into_iter()
        .filter(|problem| problem.kind == "links")
        .map(|problem| (problem.level, problem.subject, problem.text))
        .collect();
    assert_eq!(
        found,
        [
            (Severity::Warn, "b".to_owned(), "LinkDown is the case".to_owned()),
            (
                Severity::Info,
                "c".to_owned(),
                "BondDegraded is the case".to_owned()
            ),
        ]
    );
}

#[test]
fn a_link_condition_that_no_agent_updates_is_reported() {
    let mut cluster = cluster();
    let up = api::requests::NodeCondition {
        status: "True".to_owned(),
        reason: reason::LINKS_UP.to_owned(),
        message: "ib0 has carrier".to_owned(),
    };
    cluster.links = ["a", "b"].map(|node| (node.to_owned(), up.clone())).into();
    let reported = |cluster: &Snapshot| -> Vec<(Severity, String, String)> {
        let all = problems(cluster).into_iter();
        all.filter(|one| one.kind == "links")
            .map(|one| (one.level, one.subject, one.text))
            .collect()
    };
    assert_eq!(reported(&cluster), []);
    cluster.agents.remove("b");
    assert_eq!(
        reported(&cluster),
        [(
            Severity::Warn,
            "b".to_owned(),
            "LinksReady is True (LinksUp: ib0 has carrier), and no agent is ready on the node to update it"
                .to_owned()
        )]
    );
}

#[test]
fn blocks_of_a_node_without_an_agent_are_reported() {
    let mut snapshot = cluster();
    let deserted = |snapshot: &Snapshot| -> Vec<String> {
        let all = problems(snapshot).into_iter();
        all.filter(|one| one.kind == "deserted")
            .map(|one| one.subject)
            .collect()
    };
    assert!(deserted(&snapshot).is_empty());
    // Its pod is there, and the kubelet restarts it again and again.
    snapshot.agents.insert("b".to_owned(), false);
    assert_eq!(deserted(&snapshot), ["b"]);
    snapshot.agents.remove("b");
    assert_eq!(deserted(&snapshot), ["b"]);
    snapshot.agents.insert("a".to_owned(), false);
    assert_eq!(deserted(&snapshot), ["cluster"]);
    snapshot.agents.remove("a");
    assert_eq!(deserted(&snapshot), ["cluster"]);
}

/// The controller cannot start, and a pool was created or changed meanwhile.
#[test]
fn a_pool_whose_spec_no_controller_has_read_is_reported() {
    let mut snapshot = cluster();
    let reported = |snapshot: &Snapshot| -> Vec<(Severity, String, String)> {
        let all = problems(snapshot).into_iter();
        all.filter(|one| one.kind == "pool")
            .map(|one| (one.level, one.subject, one.text))
            .collect()
    };
    let shown = |snapshot: &Snapshot| {
        let json = crate::pools::pools(snapshot, None).unwrap().json;
        json["pools"][0]["ready"].clone()
    };
    assert_eq!((reported(&snapshot), shown(&snapshot)), (vec![], json!(true)));
    snapshot.pools[0].object.metadata.generation = Some(2);
    let serving = json!({ "type": "Serving", "status": "True", "reason": "Serving", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let conditions = &mut snapshot.pools[0].object.status.as_mut().unwrap().conditions;
    conditions.push(serde_json::from_value(serving).unwrap());
    let text =
        "no controller has read generation 2 of its spec: pods get addresses according to an earlier one";
    assert_eq!(
        reported(&snapshot),
        [(Severity::Warn, "rail0 Ready".to_owned(), text.to_owned())]
    );
    assert_eq!(shown(&snapshot), json!(false));
    // A deletion that waits for pods has a generation of its own.
    let waits = json!({
        "type": "Ready", "status": "False", "reason": "Deleting", "message": "2 pods", "observedGeneration": 2,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let mut deleted = snapshot.clone();
    let conditions = &mut deleted.pools[0].object.status.as_mut().unwrap().conditions;
    conditions[0] = serde_json::from_value(waits).unwrap();
    let texts: Vec<String> = reported(&deleted).into_iter().map(|(_, _, text)| text).collect();
    assert_eq!(texts, ["Deleting: 2 pods"]);
    // The default of the definition: no controller has ever seen the pool.
    let new = json!({ "observedGeneration": -1 });
    snapshot.pools[0].object.metadata.generation = Some(1);
    snapshot.pools[0].object.status = Some(serde_json::from_value(new).unwrap());
    let text = "no controller has read generation 1 of its spec: pods get no address of the pool";
    assert_eq!(
        reported(&snapshot),
        [(Severity::Fail, "rail0 Ready".to_owned(), text.to_owned())]
    );
}

/// A healthy cluster of pool `rail0`: each node has one block and ten pods, and one of the pods has an address object.
fn healthy(nodes: u32) -> Snapshot {
    let ip = |number: u32| std::net::Ipv4Addr::from(0x0a00_0000 + number).to_string();
    let own = |node: u32| block("rail0", &format!("{}/28", ip(16 * node)), &format!("n{node}"));
    let bound = |node: u32| {
        address(
            "rail0",
            &ip(16 * node),
            &format!("n{node}"),
            &format!("p{node}-0"),
        )
    };
    let pool = crate::testing::pool("rail0", &json!([{ "subnet": "10.0.0.0/8" }]));
    let mut cluster = Snapshot::of(
        vec![serde_json::from_value(pool).unwrap()],
        (1..=nodes)
            .map(|node| serde_json::from_value(own(node)).unwrap())
            .collect(),
        (1..=nodes)
            .map(|node| serde_json::from_value(bound(node)).unwrap())
            .collect(),
    );
    let names = (1..=nodes).map(|node| format!("n{node}"));
    cluster.nodes = names.map(|name| (name.clone(), format!("{name}-uid"))).collect();
    cluster.agents = cluster.nodes.keys().map(|node| (node.clone(), true)).collect();
    let of_node = |node: u32| {
        (0..10).map(move |number| {
            pod(
                &format!("p{node}-{number}"),
                &format!("n{node}"),
                &ip(16 * node + number),
            )
        })
    };
    cluster.pods = (1..=nodes).flat_map(of_node).collect();
    cluster
}

/// Each address was looked up among all blocks, each bound address among all pods, and each allocation was compared
/// with all others.
#[test]
fn twice_as_many_nodes_and_addresses_cost_twice_the_work() {
    let visited = |nodes: u32| {
        let cluster = healthy(nodes);
        WORK.set(0);
        assert_eq!(problems(&cluster), []);
        WORK.get()
    };
    let (one, two) = (visited(200), visited(400));
    assert!(one < 40 * 2000, "{one} visits of 200 blocks and 2,000 pods");
    assert!(
        two < one * 5 / 2,
        "{one} visits, and {two} for twice as many objects"
    );
}

/// A measurement: `cargo test -p cli --lib -- --ignored --nocapture ten_thousand_nodes`.
#[test]
#[ignore = "it measures"]
#[allow(clippy::print_stderr, reason = "it reports what it measured")]
fn ten_thousand_nodes_with_a_hundred_thousand_pods_have_no_problem() {
    let cluster = healthy(10_000);
    let start = std::time::Instant::now();
    assert_eq!(problems(&cluster), []);
    eprintln!(
        "did: check of 10,000 nodes and 100,000 pods: {:?}",
        start.elapsed()
    );
}

/// A pool of these ranges, with `fallback`.
fn pool_with_fallback(name: &str, subnet: &str, fallback: &str) -> Pool {
    let pool = pool_with(
        name,
        &json!([{ "subnet": subnet }]),
        &json!({ "fallback": [fallback] }),
    );
    Pool::of(serde_json::from_value(pool).unwrap())
}

#[test]
fn an_address_of_a_fallback_pool_is_that_pools() {
    let mut cluster = cluster();
    cluster
        .pools
        .push(pool_with_fallback("fast", "10.3.0.0/24", "middle"));
    cluster
        .pools
        .push(pool_with_fallback("middle", "10.4.0.0/24", "rail0"));
    cluster.networks.insert("ml/rail0".into(), vec!["fast".into()]);
    cluster.pods = [pod("p", "a", "10.1.0.18")].into_iter().collect();
    assert_eq!(problems(&cluster), []);
    let own = PodFacts {
        interfaces: vec![crate::cluster::pods::Interface {
            name: "ml/direct".into(),
            ips: vec!["10.1.0.18".into()],
            ..Default::default()
        }],
        ..pod("q", "a", "10.1.0.18")
    };
    cluster.networks.insert("ml/direct".into(), vec!["rail0".into()]);
    cluster.pods.push(own);
    assert_eq!(
        kinds(&cluster),
        [(Severity::Fail, "duplicate", "10.1.0.18".into())]
    );
}

/// Nodes allocate from the accepted ranges until the edit is accepted.
#[test]
fn an_edit_that_is_not_accepted_moves_no_address_out_of_its_pool() {
    let mut cluster = cluster();
    let mut edited = cluster.pools[0].object.clone();
    edited.spec.ranges[0].subnet = "10.2.0.0/24".to_owned();
    cluster.pools[0] = Pool::of(edited);
    cluster.networks.insert("ml/rail0".into(), vec!["rail0".into()]);
    cluster.pods = [pod("p", "a", "10.1.0.18")].into_iter().collect();
    assert_eq!(problems(&cluster), []);
    let free = crate::allocations::describe_unallocated(&cluster, "10.1.0.20".parse().unwrap());
    assert!(free.contains("node a allocates it to its pods"), "{free}");
}

/// A shorter range is accepted while pods have addresses beyond it. Their blocks name the pool.
#[test]
fn an_address_that_only_a_block_of_its_pool_has_is_that_pools() {
    let mut cluster = cluster();
    let ranges = json!([{ "subnet": "10.2.0.0/24" }]);
    let shorter = crate::testing::pool("rail0", &ranges);
    cluster.pools[0] = Pool::of(serde_json::from_value(shorter).unwrap());
    cluster.networks.insert("ml/rail0".into(), vec!["rail0".into()]);
    cluster.pods = [pod("p", "a", "10.1.0.18")].into_iter().collect();
    assert_eq!(
        kinds(&cluster),
        [(Severity::Info, "excluded", "10.1.0.18".into())]
    );
}

/// The object of a static pod has another UID than its sandbox.
#[test]
fn the_address_of_a_running_static_pod_is_no_leak() {
    let mut cluster = with(&[], &[address("rail0", "10.1.0.100", "a", "q")]);
    let mut mirror = pod("q", "a", "10.1.0.100");
    mirror.uids = vec!["mirror".to_owned()];
    cluster.pods = [mirror.clone()].into_iter().collect();
    assert_eq!(kinds(&cluster), [(Severity::Info, "leak", "10.1.0.100".into())]);
    mirror.uids.push("q-uid".to_owned());
    cluster.pods = [mirror].into_iter().collect();
    assert_eq!(problems(&cluster), []);
}

/// After a restore of etcd an agent claims a block again, and its machine dies before the first report.
#[test]
fn a_held_block_without_a_report_is_described_without_one() {
    let mut block = block("rail0", "10.1.0.48/28", "gone");
    block["spec"]["state"] = json!("Orphaned");
    block["metadata"]["annotations"] = json!({ "rdmanet.io/in-use": "true" });
    for (status, words) in [
        (json!({ "used": 3, "free": 13 }), "in its last report"),
        (json!(null), "when that node claimed it"),
    ] {
        block["status"] = status;
        let found = problems(&with(&[block.clone()], &[]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].kind, "held");
        assert!(found[0].text.contains(words), "{found:?}");
    }
}
