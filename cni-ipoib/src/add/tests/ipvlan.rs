// SPDX-License-Identifier: Apache-2.0
//! The kernel has one mode for all ipvlan children of a parent.

use super::*;
use crate::device::fixture::{WAYS, fixture};
use common::netlink::{IpvlanMode, Link, LinkInfo, MacvlanMode};
use serde_json::Value;

fn ipvlan(mode: &str) -> Value {
    json!({"master": "ens1", "mode": "ipvlan", "ipvlanMode": mode})
}

/// A node on which the pod of `c1` has an ipvlan child of `ens1` in mode L2. The model has one namespace for pods, so
/// the child has another name than those of later ADDs.
fn with_l2() -> Fixture {
    let fixture = fixture(WAYS[0]);
    fixture.add_with("c1", &ipvlan("l2")).unwrap();
    fixture.kernel.set().state.pod[0].name = "other".to_owned();
    fixture
}

#[test]
fn an_ipvlan_add_in_another_mode_leaves_the_children_of_living_pods_unchanged() {
    let fixture = with_l2();
    let before = fixture.kernel.state();
    let refused = fixture.add_with("c2", &ipvlan("l3"));
    assert_eq!(fixture.kernel.state(), before, "{refused:?}");
    let error = refused.unwrap_err();
    assert_eq!(
        (error.code, error.msg.as_str()),
        (
            Code::INVALID_CONFIG,
            "ipvlanMode is l3, want l2, the mode of the ipvlan children of ens1 (such as that of fabric/net1 of \
             container c1), because the kernel has one mode for all ipvlan children of a link; or name another master"
        )
    );
    assert_eq!(fixture.ipam.verbs(), ["ADD"]);
    assert_eq!(fixture.written_down(), ["c1"]);
}

#[test]
fn ipvlan_children_of_other_links_and_of_dead_pods_may_have_another_mode() {
    let fixture = with_l2();
    let mut other = ipvlan("l3");
    other["master"] = json!("ens2");
    fixture.add_with("c2", &other).unwrap();
    fixture.kernel.set().state.pod[1].name = "another".to_owned();
    fixture.kill_pod("c1");
    fixture.add_with("c3", &ipvlan("l3s")).unwrap();
    let info = fixture.kernel.state().pod.last().unwrap().info.clone();
    assert_eq!(
        info,
        LinkInfo::Ipvlan {
            mode: IpvlanMode::L3s
        }
    );
}

#[test]
fn a_choice_passes_over_a_link_whose_ipvlan_children_have_another_mode() {
    let fixture = with_l2();
    let mut keys = ipvlan("l3");
    keys["master"] = json!(["ens1", "ens2"]);
    fixture.add_with("c2", &keys).unwrap();
    assert_eq!(fixture.entry("c2").intent.as_ref().unwrap().master, "ens2");
}

/// A node whose own link `own0` is a child of `ens1`.
fn with_own(kind: &str, info: LinkInfo) -> Fixture {
    let fixture = fixture(WAYS[0]);
    let own = Link {
        parent: Some(6),
        info,
        ..of_kind(kind, ethernet(30, "own0"))
    };
    fixture.kernel.set().state.host.push(own);
    fixture
}

fn with_own_l2() -> Fixture {
    let mode = IpvlanMode::L2;
    with_own("ipvlan", LinkInfo::Ipvlan { mode })
}

fn master_of(fixture: &Fixture, container: &str) -> String {
    fixture.entry(container).intent.clone().unwrap().master
}

#[test]
fn an_ipvlan_add_in_another_mode_leaves_the_ipvlan_links_of_the_node_unchanged() {
    let fixture = with_own_l2();
    let before = fixture.kernel.state();
    // The kernel creates a child of an ipvlan link on the parent of that link.
    for master in ["ens1", "own0"] {
        let mut keys = ipvlan("l3");
        keys["master"] = json!(master);
        let refused = fixture.add_with("c1", &keys);
        assert_eq!(fixture.kernel.state(), before, "{master}: {refused:?}");
        let error = refused.unwrap_err();
        assert_eq!(
            (error.code, error.msg.as_str()),
            (
                Code::INVALID_CONFIG,
                "ipvlanMode is l3, want l2, the mode of the ipvlan children of ens1 (such as own0 of this node), \
                 because the kernel has one mode for all ipvlan children of a link; or name another master"
            )
        );
    }
    let mut keys = ipvlan("l3");
    keys["master"] = json!(["own0", "ens1", "ens2"]);
    fixture.add_with("c1", &keys).unwrap();
    assert_eq!(master_of(&fixture, "c1"), "ens2");
    assert_eq!(fixture.kernel.state().host, before.host);
}

#[test]
fn an_ipvlan_add_in_the_mode_of_the_nodes_own_links_succeeds() {
    for master in ["ens1", "own0"] {
        let fixture = with_own_l2();
        let before = fixture.kernel.state();
        let mut keys = ipvlan("l2");
        keys["master"] = json!(master);
        fixture.add_with("c1", &keys).unwrap();
        let state = fixture.kernel.state();
        assert_eq!(
            (state.pod[0].parent, state.host),
            (Some(6), before.host),
            "{master}"
        );
    }
}

#[test]
fn a_child_of_an_ipvlan_link_has_the_mode_of_its_siblings_in_pods() {
    let fixture = with_own_l2();
    fixture.add_with("c1", &ipvlan("l2")).unwrap();
    fixture.kernel.set().state.pod[0].name = "other".to_owned();
    let own = |state: &mut Vec<Link>| state.last_mut().unwrap().info = LinkInfo::Other;
    own(&mut fixture.kernel.set().state.host);
    let mut keys = ipvlan("l3");
    keys["master"] = json!("own0");
    refused_beside_c1(&fixture, &keys);
}

/// ADD of `c2` is refused, because `ens1` is the parent of the child of `c1`.
fn refused_beside_c1(fixture: &Fixture, keys: &Value) {
    let error = fixture.add_with("c2", keys).unwrap_err();
    assert!(
        error
            .msg
            .contains("ens1 (such as that of fabric/net1 of container c1)"),
        "{}",
        error.msg
    );
}

#[test]
fn a_child_of_an_ipvlan_link_keeps_its_mode_after_the_end_of_that_link() {
    let fixture = with_own_l2();
    let mut keys = ipvlan("l2");
    keys["master"] = json!("own0");
    fixture.add_with("c1", &keys).unwrap();
    {
        let state = &mut fixture.kernel.set().state;
        state.host.retain(|link| link.name != "own0");
        state.pod[0].name = "other".to_owned();
    }
    refused_beside_c1(&fixture, &ipvlan("l3"));
}

#[test]
fn a_child_of_another_kind_than_the_nodes_own_link_is_refused() {
    let mode = MacvlanMode::Bridge;
    let fixture = with_own("macvlan", LinkInfo::Macvlan { mode });
    let error = fixture.add_with("c1", &ipvlan("l2")).unwrap_err();
    assert!(
        error.msg.contains(
            "ens1 cannot have an ipvlan child: it has macvlan children (such as own0 of this node)"
        ),
        "{}",
        error.msg
    );
    drop(fixture);
    let fixture = with_own_l2();
    fixture
        .add_with("c1", &json!({"master": ["ens1", "ens2"], "mode": "macvlan"}))
        .unwrap();
    assert_eq!(master_of(&fixture, "c1"), "ens2");
}

/// The links of the node are not listed for it, because it cannot change another child.
#[test]
fn a_macvlan_child_beside_an_ipvlan_link_of_the_node_is_refused_by_the_kernel() {
    let fixture = with_own_l2();
    let before = fixture.kernel.state();
    let keys = json!({"master": "ens1", "mode": "macvlan"});
    let error = fixture.add_with("c1", &keys).unwrap_err();
    assert_eq!(error.code, Code::KERNEL);
    assert_clean(&fixture, &before, &error.msg);
    let lists = |log: &[String]| log.iter().filter(|asked| *asked == "list links in Host").count();
    assert_eq!(lists(&fixture.kernel.get().log), 0);
}
