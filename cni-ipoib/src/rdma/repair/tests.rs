// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::intent::{Grant, Sharing};
use crate::model::{Fixture, ethernet};
use common::rdma::Sysfs;

/// `mlx5_1` on the function of `eth1`.
fn grant(fixture: &Fixture) -> Grant {
    let rename = Some("rdma0".to_owned());
    let grant = crate::model::grant(None, Sharing::Exclusive { rename });
    fixture.node.netdev("eth1", 21, "0000:3b:00.1");
    let behind = fixture.node.sysfs().behind(&ethernet(21, "eth1")).unwrap();
    Grant {
        device: Identity {
            path: Some(behind.path),
            ..grant.device
        },
        ..grant
    }
}

/// A node on which the pod of `c1` has `mlx5_1` as `rdma0`.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture.grant_rdma(&grant(&fixture));
    fixture
}

/// Restores names for a link on the function of `mlx5_1`, or for one on another function.
fn restore(fixture: &Fixture, asked: Option<&Rdma>, own: bool) -> bool {
    let sysfs: Sysfs = fixture.node.sysfs();
    let mut kernel = fixture.kernel.clone();
    let from = &mut Sources {
        kernel: &mut kernel,
        sysfs: &sysfs,
        state: fixture.state.path(),
    };
    fixture.node.netdev("eth2", 22, "0000:3b:00.2");
    let link = if own {
        ethernet(21, "eth1")
    } else {
        ethernet(22, "eth2")
    };
    restore_names(from, asked, &link).unwrap()
}

fn renaming(name: &str) -> Rdma {
    Rdma {
        rename: Some(name.to_owned()),
        ..Rdma::default()
    }
}

#[test]
fn the_device_of_a_living_pod_keeps_its_name() {
    let fixture = fixture();
    assert!(!restore(&fixture, Some(&renaming("rdma0")), true));
    assert_eq!(fixture.rdma_names(Side::Host), ["mlx5_0"]);
}

#[test]
fn a_returned_device_gets_its_name_back_only_for_its_link_or_its_name() {
    for (asked, own, restored) in [
        (None, true, true),
        (None, false, false),
        (Some(renaming("rdma1")), false, false),
        (Some(renaming("rdma0")), false, true),
    ] {
        let fixture = fixture();
        fixture.kill_pod("c1");
        assert_eq!(
            restore(&fixture, asked.as_ref(), own),
            restored,
            "{asked:?} {own}"
        );
        let name = if restored { "mlx5_1" } else { "rdma0" };
        assert_eq!(
            fixture.rdma_names(Side::Host),
            ["mlx5_0", name],
            "{asked:?} {own}"
        );
        assert!(
            !restore(&fixture, asked.as_ref(), own),
            "a second time nothing changes"
        );
    }
}
