// SPDX-License-Identifier: Apache-2.0
use crate::intent::{Grant, Identity, Sharing};
use crate::journal::Intent;
use crate::kernel::{RdmaSubsystem, Side};
use crate::model::Fixture;
use crate::rdma::transfer::hand_over;
use common::netlink::NetnsMode;
use common::rdma::Guid;

fn grant() -> Grant {
    crate::model::grant(
        None,
        Sharing::Exclusive {
            rename: Some("rdma0".to_owned()),
        },
    )
}

/// A pod with `mlx5_1` as `rdma0`, after a kill of ADD before it created a link.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture.grant_rdma(&grant());
    fixture
}

fn on_host(fixture: &Fixture) -> Vec<String> {
    fixture.rdma_names(Side::Host)
}

#[test]
fn del_returns_the_device_from_the_pod() {
    let fixture = fixture();
    assert_eq!(on_host(&fixture), ["mlx5_0"]);
    fixture.del("c1").unwrap();
    assert_eq!(on_host(&fixture), ["mlx5_0", "mlx5_1"]);
    assert!(fixture.written_down().is_empty());
    fixture.del("c1").unwrap();
}

#[test]
fn del_without_netns_finds_the_pod_by_the_journal() {
    let fixture = fixture();
    fixture.del_without_netns("c1").unwrap();
    assert_eq!(on_host(&fixture), ["mlx5_0", "mlx5_1"]);
}

#[test]
fn gc_returns_the_device_of_an_invalid_pod() {
    let fixture = fixture();
    fixture.gc(&["c1"]).unwrap();
    assert_eq!(on_host(&fixture), ["mlx5_0"]);
    fixture.gc(&[]).unwrap();
    assert_eq!(on_host(&fixture), ["mlx5_0", "mlx5_1"]);
}

#[test]
fn del_restores_the_device_name_of_a_dead_pod() {
    let fixture = fixture();
    fixture.kernel.set().state.pod_dies();
    assert_eq!(on_host(&fixture), ["mlx5_0", "rdma0"]);
    fixture.del_without_netns("c1").unwrap();
    assert_eq!(on_host(&fixture), ["mlx5_0", "mlx5_1"]);
}

#[test]
fn del_does_not_take_a_device_from_another_pod() {
    let fixture = fixture();
    // The pod of c1 died, and c2 got the device.
    let intent = fixture.entry("c1").intent.clone().unwrap();
    fixture.amend_intent("c1", |intent| intent.netns_id = (1, 1));
    fixture.entry("c2").begin(intent).unwrap();
    fixture.del_without_netns("c1").unwrap();
    assert_eq!(on_host(&fixture), ["mlx5_0"]);
    fixture.del("c2").unwrap();
    assert_eq!(on_host(&fixture), ["mlx5_0", "mlx5_1"]);
}

/// A fixture whose attachment `c2` has `mlx5_2`, with the name of the device of `c1`.
fn fixture_with_another_name() -> Fixture {
    let fixture = fixture();
    fixture.kernel.set().state.rdma.device(3, "mlx5_2", 8, None);
    let mut other = crate::model::grant(None, Sharing::Exclusive { rename: None });
    other.device = Identity {
        name: "mlx5_2".to_owned(),
        index: 3,
        node_guid: Guid(8),
        ..other.device
    };
    let intent = Intent {
        rdma: Some(other.clone()),
        ..fixture.entry("c1").intent.clone().unwrap()
    };
    fixture.entry("c2").begin(intent).unwrap();
    let mut kernel = fixture.kernel.clone();
    hand_over(&mut kernel, fixture.state.path(), &other).unwrap();
    kernel.rename_rdma_device(Side::Pod, 3, "mlx5_1").unwrap();
    fixture
}

#[test]
fn a_device_returns_under_its_name_though_a_pod_gave_that_name_to_another() {
    let fixture = fixture_with_another_name();
    fixture.del("c1").unwrap();
    assert_eq!(on_host(&fixture), ["mlx5_0", "mlx5_1"]);
    assert_eq!(fixture.rdma_names(Side::Pod).len(), 1);
    fixture.del("c2").unwrap();
    assert_eq!(on_host(&fixture), ["mlx5_0", "mlx5_1", "mlx5_2"]);
}

#[test]
fn devices_of_dead_pods_get_their_names_though_a_pod_had_changed_them() {
    let fixture = fixture_with_another_name();
    fixture.kernel.set().state.pod_dies();
    assert_eq!(on_host(&fixture), ["mlx5_0", "rdma0", "mlx5_1"]);
    fixture.del_without_netns("c1").unwrap();
    fixture.del_without_netns("c2").unwrap();
    assert_eq!(on_host(&fixture), ["mlx5_0", "mlx5_1", "mlx5_2"]);
}

#[test]
fn a_device_that_cannot_be_returned_keeps_only_the_journal_entry() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    let done = fixture.entry("c1").intent.clone().unwrap();
    fixture.kernel.set().state.rdma.mode = NetnsMode::Exclusive;
    fixture.kernel.set().state.rdma.device(2, "mlx5_1", 7, None);
    let intent = Intent {
        rdma: Some(grant()),
        ..done
    };
    fixture.entry("c1").begin(intent).unwrap();
    hand_over(&mut fixture.kernel.clone(), fixture.state.path(), &grant()).unwrap();
    fixture
        .kernel
        .fail(crate::model::Fault::Every("move RDMA device"));
    let error = fixture.del("c1").unwrap_err();
    assert_eq!(error.msg, "cannot move RDMA device mlx5_1 back to the host");
    assert!(fixture.kernel.state().pod.is_empty());
    assert_eq!(fixture.ipam.verbs(), ["ADD", "DEL"]);
    assert_eq!(fixture.written_down(), ["c1"]);
    fixture.kernel.fail(crate::model::Fault::None);
    fixture.del("c1").unwrap();
    assert_eq!(on_host(&fixture), ["mlx5_0", "mlx5_1"]);
}
