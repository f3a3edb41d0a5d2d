// SPDX-License-Identifier: Apache-2.0
use crate::intent::{Grant, Sharing};
use crate::journal::Intent;
use crate::kernel::Side;
use crate::model::Rig;
use crate::rdma::transfer::hand_over;
use common::netlink::NetnsMode;

fn grant() -> Grant {
    crate::model::grant(
        None,
        Sharing::Exclusive {
            rename: Some("rdma0".to_owned()),
        },
    )
}

/// A pod that has `mlx5_1` as `rdma0`, though ADD was killed before it made a link.
fn rig() -> Rig {
    let rig = Rig::new();
    {
        let mut model = rig.kernel.set();
        model.state.rdma.mode = NetnsMode::Exclusive;
        model.state.rdma.device(2, "mlx5_1", 7, None);
    }
    give(&rig, "c1", rig.pod.id());
    rig
}

fn give(rig: &Rig, container: &str, netns_id: (u64, u64)) {
    let intent = Intent {
        netns: rig.pod.path(),
        netns_id,
        master: "eth1".to_owned(),
        why: None,
        ipam: None,
        device_info: None,
        rdma: Some(grant()),
        device: None,
        made: Vec::new(),
    };
    rig.entry(container).begin(intent).unwrap();
    hand_over(&mut rig.kernel.clone(), &grant()).unwrap();
}

fn on_host(rig: &Rig) -> Vec<String> {
    let rdma = rig.kernel.state().rdma;
    rdma.names(Side::Host).into_iter().map(str::to_owned).collect()
}

#[test]
fn del_returns_the_device_from_the_pod() {
    let rig = rig();
    assert_eq!(on_host(&rig), ["mlx5_0"]);
    rig.del("c1").unwrap();
    assert_eq!(on_host(&rig), ["mlx5_0", "mlx5_1"]);
    assert!(rig.written_down().is_empty());
    rig.del("c1").unwrap();
}

#[test]
fn del_without_netns_finds_the_pod_by_the_journal() {
    let rig = rig();
    rig.del_without_netns("c1").unwrap();
    assert_eq!(on_host(&rig), ["mlx5_0", "mlx5_1"]);
}

#[test]
fn gc_returns_the_device_of_an_invalid_pod() {
    let rig = rig();
    rig.gc(&["c1"]).unwrap();
    assert_eq!(on_host(&rig), ["mlx5_0"]);
    rig.gc(&[]).unwrap();
    assert_eq!(on_host(&rig), ["mlx5_0", "mlx5_1"]);
}

#[test]
fn del_restores_the_device_name_of_a_dead_pod() {
    let rig = rig();
    rig.kernel.set().state.pod_dies();
    assert_eq!(on_host(&rig), ["mlx5_0", "rdma0"]);
    rig.del_without_netns("c1").unwrap();
    assert_eq!(on_host(&rig), ["mlx5_0", "mlx5_1"]);
}

#[test]
fn del_does_not_take_a_device_from_another_pod() {
    let rig = rig();
    // The pod of c1 died, and c2 got the device.
    let mut dead = rig.entry("c1");
    let intent = dead.intent.clone().unwrap();
    dead.begin(Intent {
        netns_id: (1, 1),
        ..intent.clone()
    })
    .unwrap();
    drop(dead);
    rig.entry("c2").begin(intent).unwrap();
    rig.del_without_netns("c1").unwrap();
    assert_eq!(on_host(&rig), ["mlx5_0"]);
    rig.del("c2").unwrap();
    assert_eq!(on_host(&rig), ["mlx5_0", "mlx5_1"]);
}

#[test]
fn a_device_that_cannot_be_returned_keeps_only_the_journal_entry() {
    let rig = Rig::new();
    rig.add("c1").unwrap();
    let done = rig.entry("c1").intent.clone().unwrap();
    rig.kernel.set().state.rdma.mode = NetnsMode::Exclusive;
    rig.kernel.set().state.rdma.device(2, "mlx5_1", 7, None);
    let intent = Intent {
        rdma: Some(grant()),
        ..done
    };
    rig.entry("c1").begin(intent).unwrap();
    hand_over(&mut rig.kernel.clone(), &grant()).unwrap();
    rig.kernel.fail(crate::model::Fault::Every("move RDMA device"));
    let error = rig.del("c1").unwrap_err();
    assert_eq!(error.msg, "cannot move RDMA device mlx5_1 back to the host");
    assert!(rig.kernel.state().pod.is_empty());
    assert_eq!(rig.ipam.verbs(), ["ADD", "DEL"]);
    assert_eq!(rig.written_down(), ["c1"]);
    rig.kernel.fail(crate::model::Fault::None);
    rig.del("c1").unwrap();
    assert_eq!(on_host(&rig), ["mlx5_0", "mlx5_1"]);
}
