// SPDX-License-Identifier: Apache-2.0
use super::super::facts::{Lower, ObservedDevice};
use super::*;
use crate::model::ethernet;
use common::rdma::{Device, Guid, Port, PortLayer, PortState};
use glob::Pattern;

/// `eth1`, on the ports of these devices.
fn facts<const N: usize>(mode: NetnsMode, devices: [&str; N]) -> Facts {
    let seen = |name: &str| ObservedDevice {
        index: Some(2),
        netdevs: vec![(1, 6)],
        ..ObservedDevice::from(Device {
            name: name.to_owned(),
            node_guid: Guid(7),
            pci: "0000:3b:00.1".parse().ok(),
            path: None,
            ports: vec![Port {
                number: 1,
                layer: PortLayer::Ethernet,
                state: PortState::Active,
                phys_state: "LinkUp".to_owned(),
                rate_mbps: None,
                lid: 0,
                sm_lid: 0,
                gid: None,
            }],
        })
    };
    Facts {
        mode,
        lowers: vec![Lower {
            link: ethernet(6, "eth1"),
            behind: None,
        }],
        devices: devices.map(seen).into(),
    }
}

fn asking(netns: RdmaNetns, required: bool) -> Rdma {
    Rdma {
        netns,
        required,
        ..Rdma::default()
    }
}

fn decided(asked: Option<&Rdma>, facts: &Facts) -> Result<Option<Sharing>, String> {
    decide(asked, facts, Ok(()))
        .map(|decided| decided.map(|(grant, _)| grant.netns))
        .map_err(|error| error.to_string())
}

use NetnsMode::{Exclusive, Shared};

#[test]
fn the_pod_gets_its_device_by_the_mode_of_the_node() {
    let moved = Sharing::Exclusive { rename: None };
    for (netns, mode, expected) in [
        (RdmaNetns::Auto, Shared, Sharing::Shared),
        (RdmaNetns::Shared, Shared, Sharing::Shared),
        (RdmaNetns::Auto, Exclusive, moved.clone()),
        (RdmaNetns::Exclusive, Exclusive, moved),
    ] {
        for required in [false, true] {
            let asked = asking(netns, required);
            assert_eq!(
                decided(Some(&asked), &facts(mode, ["mlx5_1"])),
                Ok(Some(expected.clone()))
            );
        }
    }
}

#[test]
fn a_request_for_another_mode_is_always_refused() {
    for required in [false, true] {
        let text =
            |netns, mode| decided(Some(&asking(netns, required)), &facts(mode, ["mlx5_1"])).unwrap_err();
        assert!(text(RdmaNetns::Exclusive, Shared).starts_with("rdma.netns is exclusive, but this node"));
        assert!(text(RdmaNetns::Shared, Exclusive).starts_with("rdma.netns is shared, but this node"));
    }
}

#[test]
fn without_the_key_a_device_is_reported_but_never_moved() {
    assert_eq!(
        decided(None, &facts(Shared, ["mlx5_1"])),
        Ok(Some(Sharing::Shared))
    );
    assert_eq!(decided(None, &facts(Exclusive, ["mlx5_1"])), Ok(None));
    assert_eq!(decided(None, &facts(Shared, ["mlx5_1", "rxe0"])), Ok(None));
    assert_eq!(decided(None, &facts(Shared, [])), Ok(None));
}

#[test]
fn the_grant_holds_the_identity_of_the_device() {
    let facts = facts(Exclusive, ["mlx5_1"]);
    let renaming = Rdma {
        rename: Some("rdma0".to_owned()),
        ..Rdma::default()
    };
    let (grant, _) = decide(Some(&renaming), &facts, Ok(())).unwrap().unwrap();
    let netns = Sharing::Exclusive {
        rename: Some("rdma0".to_owned()),
    };
    let expected = crate::model::grant(Some("0000:3b:00.1"), netns);
    assert_eq!(grant, expected);
}

#[test]
fn a_device_without_an_index_never_moves() {
    let mut facts = facts(Exclusive, ["mlx5_1"]);
    facts.devices[0].index = None;
    for required in [false, true] {
        let error = decide(Some(&asking(RdmaNetns::Auto, required)), &facts, Ok(())).unwrap_err();
        assert!(
            matches!(&error, Error::Rdma(RdmaError::Unlisted { device }) if device == "mlx5_1"),
            "{error}"
        );
    }
    assert_eq!(decided(None, &facts), Ok(None));
    facts.mode = Shared;
    assert_eq!(decided(None, &facts), Ok(Some(Sharing::Shared)));
}

#[test]
fn a_missing_device_is_an_error_only_if_required() {
    let none = facts(Shared, []);
    assert_eq!(decided(Some(&asking(RdmaNetns::Auto, false)), &none), Ok(None));
    assert_eq!(
        decided(Some(&asking(RdmaNetns::Auto, true)), &none).unwrap_err(),
        "cannot choose the RDMA device of eth1: the node has no RDMA device for it; if rdma.required is false, the pod gets no RDMA device"
    );
}

#[test]
fn one_of_several_devices_is_selected_by_name() {
    let facts = facts(Shared, ["mlx5_1", "rxe0"]);
    let asked = |device: &str| Rdma {
        device: Some(Pattern::new(device).unwrap()),
        required: true,
        ..Rdma::default()
    };
    let device =
        |pattern: &str| decide(Some(&asked(pattern)), &facts, Ok(())).map(|d| d.unwrap().0.device.name);
    assert_eq!(device("rxe*").unwrap(), "rxe0");
    assert!(
        device("*")
            .unwrap_err()
            .to_string()
            .contains("several devices belong to it (mlx5_1, rxe0)")
    );
    assert!(
        device("bnxt_re0")
            .unwrap_err()
            .to_string()
            .contains("the devices of the link are mlx5_1, rxe0")
    );
}

#[test]
fn a_device_that_cannot_move_is_an_error_only_if_required() {
    let facts = facts(Exclusive, ["mlx5_1"]);
    let reason = || Err("moving it would destroy ib0".to_owned());
    let decided = |required| decide(Some(&asking(RdmaNetns::Auto, required)), &facts, reason());
    assert_eq!(decided(false).unwrap(), None);
    assert_eq!(
        decided(true).unwrap_err().to_string(),
        "RDMA device mlx5_1 is not moved into the pod: moving it would destroy ib0; leave rdma out, move the whole interface instead, or use an RDMA subsystem in shared mode"
    );
}

#[test]
fn renaming_a_shared_device_is_refused() {
    let renaming = Rdma {
        rename: Some("rdma0".to_owned()),
        ..Rdma::default()
    };
    let text = decided(Some(&renaming), &facts(Shared, ["mlx5_1"])).unwrap_err();
    assert!(
        text.starts_with("rdma.rename rdma0 is not supported: this node shares"),
        "{text}"
    );
}
