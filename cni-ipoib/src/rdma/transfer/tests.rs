// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::kernel::RdmaSubsystem;
use crate::model::{Fault, ModelKernel, Node, ipoib};
use common::netlink::NetnsMode;

/// `mlx5_1`, index 2, in exclusive mode.
fn kernel() -> ModelKernel {
    let kernel = ModelKernel::new(Vec::new());
    let rdma = &mut kernel.set().state.rdma;
    rdma.mode = NetnsMode::Exclusive;
    rdma.device(1, "mlx5_0", 6, None);
    rdma.device(2, "mlx5_1", 7, None);
    kernel.clone()
}

fn grant(rename: Option<&str>) -> Grant {
    crate::model::grant(
        None,
        Sharing::Exclusive {
            rename: rename.map(str::to_owned),
        },
    )
}

/// [`hand_over`] on a node of which no other call holds the lock.
fn give(kernel: &mut ModelKernel, grant: &Grant) -> Result<(), Error> {
    let state = tempfile::tempdir().unwrap();
    kernel.set().locked = Some(state.path().to_owned());
    hand_over(kernel, state.path(), grant)
}

/// As [`give`], the way back.
fn give_back(kernel: &mut ModelKernel, identity: &Identity) -> Result<bool, Error> {
    let state = tempfile::tempdir().unwrap();
    kernel.set().locked = Some(state.path().to_owned());
    bring_back(kernel, state.path(), identity)
}

/// The names on the host and in the pod.
fn places(kernel: &ModelKernel) -> (Vec<String>, Vec<String>) {
    let rdma = kernel.state().rdma;
    let names = |side| rdma.names(side).into_iter().map(str::to_owned).collect();
    (names(Side::Host), names(Side::Pod))
}

fn at(host: &[&str], pod: &[&str]) -> (Vec<String>, Vec<String>) {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    (owned(host), owned(pod))
}

#[test]
fn a_device_moves_to_the_pod_and_returns_unchanged() {
    for (rename, there) in [(None, "mlx5_1"), (Some("rdma0"), "rdma0")] {
        let mut kernel = kernel();
        let before = kernel.state();
        give(&mut kernel, &grant(rename)).unwrap();
        assert_eq!(places(&kernel), at(&["mlx5_0"], &[there]));
        assert!(give_back(&mut kernel, &grant(None).device).unwrap());
        assert_eq!(kernel.state(), before);
        assert!(
            !give_back(&mut kernel, &grant(None).device).unwrap(),
            "the link has returned already"
        );
    }
}

#[test]
fn a_device_that_udev_has_renamed_is_moved_by_its_index_and_guid() {
    let mut kernel = kernel();
    let renamed = Identity {
        name: "mlx5_9".to_owned(),
        ..grant(None).device
    };
    let grant = Grant {
        device: renamed,
        ..grant(None)
    };
    give(&mut kernel, &grant).unwrap();
    assert_eq!(devices(&mut kernel, Side::Pod).unwrap().len(), 1);
}

#[test]
fn a_device_of_another_guid_or_index_is_not_moved() {
    for other in [
        Identity {
            node_guid: Guid(8),
            ..grant(None).device
        },
        Identity {
            index: 1,
            ..grant(None).device
        },
    ] {
        let mut kernel = kernel();
        let before = kernel.state();
        let device = other.clone();
        let error = give(
            &mut kernel,
            &Grant {
                device,
                ..grant(None)
            },
        )
        .unwrap_err();
        assert!(
            matches!(error, Error::Rdma(RdmaError::Unlisted { .. })),
            "{error}"
        );
        assert_eq!(kernel.state(), before, "{other:?}");
    }
}

#[test]
fn a_device_with_another_file_since_its_move_is_reported_with_both_files() {
    let file = |number: u32| Some(format!("uverbs{number}"));
    let warning = renumbered("mlx5_5", file(5), file(2)).unwrap();
    for part in [
        "mlx5_5",
        "/dev/infiniband/uverbs5",
        "/dev/infiniband/uverbs2",
        "delete the pod",
    ] {
        assert!(warning.contains(part), "{warning}");
    }
    for (before, after) in [(file(5), file(5)), (None, file(2)), (file(5), None)] {
        assert_eq!(renumbered("mlx5_5", before, after), None);
    }
}

#[test]
fn in_shared_mode_nothing_moves() {
    let mut kernel = kernel();
    let shared = Grant {
        netns: Sharing::Shared,
        ..grant(None)
    };
    give(&mut kernel, &shared).unwrap();
    assert_eq!(kernel.get().log, Vec::<String>::new());
}

#[test]
fn whatever_request_fails_the_undo_finds_the_device() {
    for number in 0.. {
        for fault in [Fault::Refused(number), Fault::AnswerLost(number)] {
            let mut kernel = kernel();
            let before = kernel.state();
            kernel.fail(fault);
            let outcome = give(&mut kernel, &grant(Some("rdma0")));
            let asked = kernel.get().log.len();
            kernel.fail(Fault::None);
            give_back(&mut kernel, &grant(None).device).unwrap();
            assert_eq!(kernel.state(), before, "{fault:?}");
            if asked <= number {
                outcome.unwrap();
                return;
            }
            outcome.unwrap_err();
        }
    }
}

#[test]
fn a_device_that_the_pod_renamed_returns_under_its_own_name() {
    let mut kernel = kernel();
    give(&mut kernel, &grant(None)).unwrap();
    kernel.rename_rdma_device(Side::Pod, 2, "mine").unwrap();
    assert!(give_back(&mut kernel, &grant(None).device).unwrap());
    assert_eq!(places(&kernel), at(&["mlx5_0", "mlx5_1"], &[]));
}

#[test]
fn a_pod_is_removed_though_its_device_name_is_in_use() {
    let mut kernel = kernel();
    give(&mut kernel, &grant(Some("rdma0"))).unwrap();
    kernel.rename_rdma_device(Side::Host, 1, "mlx5_1").unwrap();
    assert!(give_back(&mut kernel, &grant(None).device).unwrap());
    assert_eq!(places(&kernel), at(&["mlx5_1", "rdma0"], &[]));
}

#[test]
fn a_new_device_name_in_use_is_refused_with_the_reason() {
    let mut kernel = kernel();
    let error = give(&mut kernel, &grant(Some("mlx5_0"))).unwrap_err().to_string();
    let expected = "cannot rename RDMA device mlx5_1 to mlx5_0 in the pod (names are unique on a node, whatever the namespace)";
    assert_eq!(error, expected);
}

#[test]
fn a_driver_that_cannot_release_its_users_is_reported() {
    let mut kernel = kernel();
    kernel.set().state.rdma.clings = true;
    let before = kernel.state();
    let error = give(&mut kernel, &grant(None)).unwrap_err().to_string();
    assert!(
        error.contains("mlx5_1") && error.contains("its driver cannot disassociate it from its users"),
        "{error}"
    );
    assert_eq!(kernel.state(), before);
}

#[test]
fn a_dead_pods_device_gets_its_name_back() {
    let mut kernel = kernel();
    let before = kernel.state();
    give(&mut kernel, &grant(Some("rdma0"))).unwrap();
    kernel.set().state.pod_dies();
    assert_eq!(places(&kernel), at(&["mlx5_0", "rdma0"], &[]));
    assert!(restore_name(&mut kernel, &Node::bare().sysfs(), &grant(None).device).unwrap());
    assert_eq!(kernel.state(), before);
}

#[test]
fn a_device_of_another_function_is_not_renamed() {
    let mut kernel = kernel();
    kernel.rename_rdma_device(Side::Host, 2, "other").unwrap();
    let node = Node::bare();
    node.device("other", "0000:af:00.0");
    let elsewhere = Identity {
        pci: "0000:3b:00.1".parse().ok(),
        path: Some(node.path().join("devices/pci0000:3a/0000:3b:00.1")),
        ..grant(None).device
    };
    assert!(!restore_name(&mut kernel, &node.sysfs(), &elsewhere).unwrap());
    assert_eq!(places(&kernel), at(&["mlx5_0", "other"], &[]));
}

#[test]
fn del_does_not_wait_for_an_unplugged_device() {
    let mut kernel = kernel();
    kernel.set().state.rdma.devices.pop();
    let gone = Identity {
        path: Some("/sys/devices/pci0000:3a/gone".into()),
        ..grant(None).device
    };
    await_return(&mut kernel, &Node::bare().sysfs(), &gone).unwrap();
}

#[test]
fn a_device_that_is_missing_though_plugged_in_is_retried() {
    let mut kernel = kernel();
    kernel.set().state.rdma.devices.pop();
    let node = Node::bare();
    let class = node.path().join("infiniband");
    std::fs::create_dir(&class).unwrap();
    let there = Identity {
        path: Some(node.path().to_owned()),
        ..grant(None).device
    };
    let error = await_return_within(&mut kernel, &node.sysfs(), &there, POLL).unwrap_err();
    assert!(matches!(error, Error::Rdma(RdmaError::Lost { .. })), "{error}");
    // Its driver was unloaded.
    std::fs::remove_dir(&class).unwrap();
    await_return_within(&mut kernel, &node.sysfs(), &there, POLL).unwrap();
}

#[test]
fn the_ipoib_link_of_a_moved_port_is_found_in_either_namespace() {
    let port = Guid(0x248a_0703_00b4_0c5e);
    let child = Link {
        parent: Some(4),
        ..ipoib(5, "ib0.8001", 0x8001)
    };
    for side in [Side::Host, Side::Pod] {
        let mut kernel = kernel();
        let links = vec![child.clone(), ipoib(6, "ib3", 0xffff)];
        match side {
            Side::Host => kernel.set().state.host = links,
            Side::Pod => kernel.set().state.pod = links,
        }
        let (found, link) = reappeared(&mut kernel, port).unwrap().unwrap();
        assert_eq!((found, link.name.as_str()), (side, "ib3"));
    }
    assert_eq!(reappeared(&mut kernel(), port).unwrap(), None);
}
