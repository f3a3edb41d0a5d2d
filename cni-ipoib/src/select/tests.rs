// SPDX-License-Identifier: Apache-2.0
#![expect(
    clippy::needless_pass_by_value,
    reason = "a table reads better without a reference before each value"
)]

mod a100;
mod add;
mod node;

use super::*;
use crate::config::{Config, Master};
use crate::model::call;
use serde_json::{Value, json};

/// `master`, parsed as in a configuration.
fn preferences(master: Value) -> Preferences {
    preferences_of(json!({"master": master}))
}

fn preferences_of(keys: Value) -> Preferences {
    match Config::read(&call(keys)).unwrap().master {
        Master::Preferred(preferences) => preferences,
        other @ Master::Resolved(_) => panic!("{other:?} leaves no choice"),
    }
}

/// `ibN` on `mlx5_N`: 200 Gbit/s, active, no child, NUMA node N.
fn ib(number: u32) -> Candidate {
    Candidate {
        name: format!("ib{number}"),
        altnames: vec![format!("ibp{number}s0")],
        layer: LinkLayer::Infiniband,
        port: Some(RdmaPort {
            device: format!("mlx5_{number}"),
            number: 1,
            rate_mbps: Some(200_000),
            subnet_prefix: Some(0xfe80_0000_0000_0000),
            pkeys: vec![Pkey(0xffff), Pkey(0x8001)],
        }),
        pci: format!("0000:{number}b:00.0").parse().ok(),
        numa_node: Some(number),
        problem: None,
        aside: None,
        load: Load::default(),
    }
}

fn loaded(all: usize, candidate: Candidate) -> Candidate {
    let load = Load { all, own: 0 };
    Candidate { load, ..candidate }
}

fn down(candidate: Candidate) -> Candidate {
    Candidate {
        problem: Some("has no carrier".to_owned()),
        ..candidate
    }
}

fn chosen(master: Value, candidates: &[Candidate]) -> String {
    let choice = choose(&preferences(master.clone()), candidates);
    choice
        .unwrap_or_else(|passed| panic!("{master}: {}", list_passed_over(&passed)))
        .name
}

/// The error of a selection without a result.
fn refused(master: Value, candidates: &[Candidate]) -> String {
    list_passed_over(&choose(&preferences(master.clone()), candidates).expect_err(&master.to_string()))
}

#[test]
fn the_least_loaded_link_wins_then_the_first_by_name() {
    let mut candidates = vec![loaded(1, ib(0)), ib(1), ib(2), down(ib(3))];
    for _ in 0..candidates.len() {
        candidates.rotate_left(1);
        assert_eq!(chosen(json!({}), &candidates), "ib1");
        let mut back = candidates.clone();
        back.reverse();
        assert_eq!(
            choose(&preferences(json!({})), &back),
            choose(&preferences(json!({})), &candidates)
        );
    }
}

#[test]
fn a_link_without_an_interface_of_the_pod_precedes_a_less_loaded_one() {
    let own = Candidate {
        load: Load { all: 1, own: 1 },
        ..ib(0)
    };
    let candidates = [own, loaded(5, ib(1)), down(ib(2))];
    assert_eq!(
        chosen(json!({}), &candidates),
        "ib1",
        "a link without traffic comes last"
    );
    let why = choose(&preferences(json!({})), &candidates).unwrap().why;
    assert!(
        why.contains("it has 5 attachments, ib0 has 1 attachment (1 of this pod)"),
        "{why}"
    );
}

#[test]
fn a_list_is_tried_in_its_order() {
    let candidates = [ib(0), loaded(9, ib(1)), down(ib(2))];
    assert_eq!(chosen(json!(["ib1", "ib0"]), &candidates), "ib1");
    assert_eq!(
        chosen(json!(["ib2", "ib1"]), &candidates),
        "ib1",
        "ib2 carries nothing"
    );
    assert_eq!(chosen(json!(["ib7", {"numaNode": 1}, {}]), &candidates), "ib1");
    assert_eq!(chosen(json!(["ibp1s0"]), &candidates), "ib1", "by altname");
}

#[test]
fn every_requirement_counts_and_errors_name_it() {
    let other = Candidate {
        layer: LinkLayer::Ethernet,
        port: Some(RdmaPort {
            device: "rocep0".to_owned(),
            number: 1,
            rate_mbps: Some(2_500),
            subnet_prefix: Some(1),
            pkeys: Vec::new(),
        }),
        pci: None,
        numa_node: None,
        ..ib(5)
    };
    let cases = [
        (
            json!({"linkLayer": "infiniband"}),
            "is Ethernet, not InfiniBand (linkLayer)",
        ),
        (json!({"rateMin": 200}), "runs at 2.5 Gbit/s, not 200 (rateMin)"),
        (
            json!({"rdmaDevice": "mlx5_?"}),
            "has rocep0, not mlx5_? (rdmaDevice)",
        ),
        (
            json!({"pciAddress": "0000:1b:*"}),
            "is no PCI device (pciAddress 0000:1b:*)",
        ),
        (json!({"ifName": "ib[0-4]"}), "is not called ib[0-4] (ifName)"),
        (json!({"pkey": "0x8001"}), "is not in partition 0x8001 (pkey)"),
        (
            json!({"subnetPrefix": "fe80::"}),
            "is in subnet 0000:0000:0000:0001, not fe80:0000:0000:0000 (subnetPrefix)",
        ),
        (json!({"numaNode": 1}), "is on NUMA node none, not 1 (numaNode)"),
    ];
    for (master, reason) in cases {
        assert_eq!(chosen(master.clone(), &[other.clone(), ib(1)]), "ib1", "{master}");
        let layer = layer(other.layer);
        let expected = format!("ib5 ({layer}, rocep0/1) {reason}");
        assert_eq!(refused(master, std::slice::from_ref(&other)), expected);
    }
    assert_eq!(
        refused(json!({"pciAddress": "0000:2b:*"}), &[ib(1)]),
        "ib1 (InfiniBand, mlx5_1/1) is at 0000:1b:00.0, not 0000:2b:* (pciAddress)"
    );
    assert_eq!(
        chosen(json!({"ifName": "ibp1*"}), &[ib(0), ib(1)]),
        "ib1",
        "an altname counts"
    );
}

#[test]
fn a_link_without_traffic_is_skipped_unless_any_state_will_do() {
    let candidates = [down(ib(0)), loaded(5, ib(1))];
    assert_eq!(chosen(json!({}), &candidates), "ib1");
    assert_eq!(
        chosen(json!({"state": "any"}), &candidates),
        "ib1",
        "a link with traffic is preferred"
    );
    assert_eq!(chosen(json!({"state": "any", "numaNode": 0}), &candidates), "ib0");
    let passed = choose(&preferences(json!({"numaNode": 0})), &candidates).unwrap_err();
    let reasons: Vec<(&str, bool)> = passed.iter().map(|one| (one.why.as_str(), one.down)).collect();
    assert_eq!(
        reasons,
        [
            ("has no carrier", true),
            ("is on NUMA node 1, not 0 (numaNode)", false)
        ]
    );
}

#[test]
fn the_other_keys_of_the_configuration_are_requirements_too() {
    let ethernet = Candidate {
        layer: LinkLayer::Ethernet,
        ..loaded(9, ib(5))
    };
    let candidates = [ib(0), ethernet];
    let of = |keys| choose(&preferences_of(keys), &candidates).map(|choice| choice.name);
    assert_eq!(of(json!({"master": {}, "mode": "macvlan"})).unwrap(), "ib5");
    assert_eq!(
        of(json!({"master": ["ib5", "ib0"], "ipoibMode": "connected"})).unwrap(),
        "ib0"
    );
    assert_eq!(
        of(json!({"master": {}, "pkey": "0x0001"})).unwrap(),
        "ib0",
        "a limited member's key"
    );
    let passed = of(json!({"master": {}, "pkey": "0x8003"})).unwrap_err();
    assert_eq!(
        list_passed_over(&passed),
        "ib0 (InfiniBand, mlx5_0/1) is not in partition 0x8003 (pkey); ib5 (Ethernet, mlx5_5/1) is Ethernet, not InfiniBand (mode)"
    );
}

#[test]
fn a_withheld_link_can_be_named_if_it_can_be_a_parent() {
    let aside = |aside| Candidate {
        aside: Some(aside),
        ..ib(0)
    };
    let unasked = [aside(Aside::Unasked(
        "carries the node's default route".to_owned(),
    ))];
    assert_eq!(
        refused(json!({}), &unasked),
        "ib0 (InfiniBand, mlx5_0/1) carries the node's default route"
    );
    assert_eq!(chosen(json!(["ib0"]), &unasked), "ib0");
    let always = [aside(Aside::Always("is a port of bond0".to_owned()))];
    for master in [json!({}), json!(["ib0"])] {
        assert_eq!(
            refused(master, &always),
            "ib0 (InfiniBand, mlx5_0/1) is a port of bond0"
        );
    }
    let no_rdma = [Candidate { port: None, ..ib(0) }];
    assert_eq!(refused(json!({}), &no_rdma), "", "no entry means it");
    assert_eq!(chosen(json!(["ib0"]), &no_rdma), "ib0");
}

#[test]
fn a_refusal_lists_each_link_for_each_entry() {
    let candidates = [down(ib(0)), ib(1)];
    assert_eq!(
        refused(
            json!(["ib0", "ib9", {"numaNode": 3}, {"rateMin": 400, "linkLayer": "InfiniBand"}]),
            &candidates
        ),
        "ib0 (InfiniBand, mlx5_0/1) has no carrier; ib9 does not exist on this node; \
         ib0 (InfiniBand, mlx5_0/1) is on NUMA node 0, not 3 (numaNode), asked for {numaNode: 3}; \
         ib1 (InfiniBand, mlx5_1/1) is on NUMA node 1, not 3 (numaNode), asked for {numaNode: 3}; \
         ib0 (InfiniBand, mlx5_0/1) runs at 200 Gbit/s, not 400 (rateMin), asked for {linkLayer: InfiniBand, rateMin: 400}; \
         ib1 (InfiniBand, mlx5_1/1) runs at 200 Gbit/s, not 400 (rateMin), asked for {linkLayer: InfiniBand, rateMin: 400}"
    );
}

#[test]
fn a_choice_says_why() {
    let why = |master, candidates: &[Candidate]| choose(&preferences(master), candidates).unwrap().why;
    assert_eq!(
        why(json!({"numaNode": 1}), &[ib(0), ib(1)]),
        "the only link that fits {numaNode: 1}; passed over: ib0 (InfiniBand, mlx5_0/1) is on NUMA node 0, not 1 (numaNode)"
    );
    assert_eq!(
        why(
            json!({"linkLayer": "InfiniBand"}),
            &[loaded(3, ib(0)), loaded(2, ib(1)), loaded(2, ib(2))]
        ),
        "of 3 links that fit {linkLayer: InfiniBand} the least loaded, then the first by name: it has 2 attachments, ib0 has 3 attachments, ib2 has 2 attachments"
    );
    assert_eq!(
        why(json!(["ib7", "ib0"]), &[ib(0)]),
        "the first of the list that can be used: ib0; passed over: ib7 does not exist on this node"
    );
}
