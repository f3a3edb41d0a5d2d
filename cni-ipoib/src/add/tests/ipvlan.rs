// SPDX-License-Identifier: Apache-2.0
//! The kernel has one mode for all ipvlan children of a parent.

use super::*;
use crate::device::fixture::{WAYS, fixture};
use common::netlink::{IpvlanMode, LinkInfo};
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
