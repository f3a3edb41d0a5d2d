// SPDX-License-Identifier: Apache-2.0
//! ADD, CHECK and STATUS of a network that describes its master.

use super::*;
use crate::journal::{Intent, Journal};
use crate::model::{Fixture, attachment, ipoib};
use common::cni::dispatch::Plugin as _;
use common::cni::{CniResult, Version};

/// A node with `ib0` and `ib1`.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture
        .node
        .device("mlx5_1", "0000:5e:00.0")
        .port("mlx5_1", 1, "InfiniBand", "4: ACTIVE")
        .netdev("ib1", 5, "0000:5e:00.0")
        .write("class/infiniband/mlx5_1/ports/1/pkeys/0", "0xffff");
    fixture.kernel.set().state.host.push(ipoib(5, "ib1", 0xffff));
    fixture
}

fn any() -> Value {
    json!({"master": {"linkLayer": "InfiniBand"}})
}

/// An attachment of `network` to `master`.
fn attached_before(fixture: &Fixture, network: &str, container: &str, master: &str) {
    let mut entry = Journal::new(fixture.state.path(), network)
        .open(&attachment(container))
        .unwrap();
    let intent = Intent {
        master: master.to_owned(),
        ..fixture.intent()
    };
    entry.begin(intent).unwrap();
}

fn intent(fixture: &Fixture) -> Intent {
    let journal = Journal::new(fixture.state.path(), "fabric");
    journal.peek(&attachment("c1")).unwrap()
}

fn parent_in_pod(fixture: &Fixture) -> Option<u32> {
    fixture.kernel.state().pod[0].parent
}

fn check(fixture: &Fixture, prev: &CniResult, keys: Value) -> Result<(), common::cni::Error> {
    let mut keys = keys;
    keys["prevResult"] = prev.to_json(Version::V1_1_0);
    fixture
        .plugin()
        .check(&fixture.call(&keys), &attachment("c1"), &fixture.pod.path())
}

#[test]
fn the_choice_and_its_reason_are_in_the_journal() {
    let fixture = fixture();
    fixture.add_with("c1", &any()).unwrap();
    assert_eq!(parent_in_pod(&fixture), Some(4));
    let intent = intent(&fixture);
    assert_eq!(intent.master, "ib0");
    assert_eq!(
        intent.why.as_deref(),
        Some(
            "of 2 links that fit {linkLayer: InfiniBand} the least loaded, then the first by name: it has 0 attachments, ib1 has 0 attachments"
        )
    );
    fixture.del("c1").unwrap();
    assert_eq!(fixture.written_down(), [""; 0]);
}

#[test]
fn attachments_of_all_networks_are_the_load() {
    let fixture = fixture();
    attached_before(&fixture, "fabric", "a", "ib0");
    attached_before(&fixture, "other", "b", "ib0");
    attached_before(&fixture, "other", "c", "ib1");
    fixture.add_with("c1", &any()).unwrap();
    assert_eq!(parent_in_pod(&fixture), Some(5));
    let why = intent(&fixture).why.unwrap();
    assert!(
        why.ends_with("it has 1 attachment, ib0 has 2 attachments"),
        "{why}"
    );
}

/// Two networks that describe their ports alike give a pod two ports, also beside a busy port.
#[test]
fn a_second_interface_of_a_pod_gets_another_port() {
    let fixture = fixture();
    attached_before(&fixture, "other", "c1", "ib0");
    for container in ["a", "b", "c"] {
        attached_before(&fixture, "other", container, "ib1");
    }
    fixture.add_with("c1", &any()).unwrap();
    assert_eq!(parent_in_pod(&fixture), Some(5));
}

#[test]
fn a_named_master_has_no_reason_in_the_journal() {
    let fixture = fixture();
    fixture.add_with("c1", &json!({})).unwrap();
    assert_eq!(
        (intent(&fixture).master.as_str(), intent(&fixture).why),
        ("ib0", None)
    );
}

#[test]
fn check_uses_the_chosen_master_and_does_not_choose_again() {
    let fixture = fixture();
    let prev = fixture.add_with("c1", &any()).unwrap();
    for container in ["x", "y"] {
        attached_before(&fixture, "other", container, "ib0");
    }
    check(&fixture, &prev, any()).unwrap();
    std::fs::remove_dir_all(fixture.state.path().join("attachments")).unwrap();
    check(&fixture, &prev, any()).expect("without the file, CHECK uses the parent of the link");
    fixture.kernel.set().state.host.retain(|link| link.name != "ib0");
    let error = check(&fixture, &prev, any()).unwrap_err();
    assert_eq!(
        (error.code.0, error.msg.contains("its parent is not ib1")),
        (104, true),
        "{}",
        error.msg
    );
}

#[test]
fn a_device_plugins_choice_precedes_a_description() {
    let fixture = fixture();
    std::fs::create_dir_all(fixture.node.path().join("bus/pci/devices/0000:5e:00.0/net/ib1")).unwrap();
    let mut keys = any();
    keys["deviceID"] = json!("0000:5e:00.0");
    fixture.add_with("c1", &keys).unwrap();
    assert_eq!((parent_in_pod(&fixture), intent(&fixture).why), (Some(5), None));
}

#[test]
fn a_refusal_changes_nothing_and_lists_every_link() {
    let fixture = fixture();
    let before = fixture.kernel.state();
    let error = fixture
        .add_with("c1", &json!({"master": {"rdmaDevice": "mlx5_7"}}))
        .unwrap_err();
    assert_eq!(
        (error.code.0, error.msg.as_str()),
        (
            7,
            "no link of this node fits master: ib0 (InfiniBand, mlx5_0/1) has mlx5_0, not mlx5_7 (rdmaDevice); \
             ib1 (InfiniBand, mlx5_1/1) has mlx5_1, not mlx5_7 (rdmaDevice)"
        )
    );
    assert_eq!((fixture.kernel.state(), fixture.written_down()), (before, vec![]));
    assert_eq!(fixture.ipam.verbs(), [""; 0]);
}

#[test]
fn status_chooses_as_add_would() {
    let fixture = fixture();
    fixture.status(&any()).unwrap();
    let code = |keys: Value| fixture.status(&keys).unwrap_err().code.0;
    assert_eq!(code(json!({"master": {"rdmaDevice": "mlx5_7"}})), 50);
    for link in &mut fixture.kernel.set().state.host {
        link.up = false;
    }
    assert_eq!(code(any()), 51);
}
