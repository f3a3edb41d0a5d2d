// SPDX-License-Identifier: Apache-2.0
//! Runs with the software HCAs of `tests/fabric` in exclusive mode. `route/tests/fabric.rs` contains the command.

use super::super::super::{Creator, NetnsMode, Rdma, Route, Socket};
use crate::netns::{Netns, tests::fresh};
use crate::rdma::{PortState, Sysfs};
use nix::errno::Errno;

fn index_of(socket: &mut Socket<Rdma>, name: &str) -> Option<u32> {
    socket
        .devices()
        .unwrap()
        .into_iter()
        .find(|device| device.name == name)
        .map(|device| device.index)
}

#[test]
#[ignore = "needs the InfiniBand fabric"]
fn netlink_and_sysfs_report_the_same_devices() {
    let mut socket = Socket::<Rdma>::open().unwrap();
    let devices = socket.devices().unwrap();
    let shown = Sysfs::host().devices().unwrap();
    assert!(!shown.is_empty());
    for device in &shown {
        let same = devices.iter().find(|other| other.name == device.name).unwrap();
        assert_eq!(same.node_guid, device.node_guid);
        assert_eq!(same.protocol.as_deref(), Some("ib"));
        let ports = socket.ports(same.index).unwrap();
        assert_eq!(ports.len(), device.ports.len());
        for (port, shown) in ports.iter().zip(&device.ports) {
            assert_eq!((port.number, port.state), (shown.number, shown.state));
            assert_eq!(port.phys_state, shown.phys_state);
            assert_eq!(port.lid, Some(u32::from(shown.lid)));
            assert_eq!(port.subnet_prefix, shown.subnet_prefix());
            assert_eq!(port.state, PortState::Active);
        }
    }
    assert_eq!(socket.ports(4711).unwrap_err().errno(), Some(Errno::EINVAL));
}

#[test]
#[ignore = "needs the InfiniBand fabric"]
fn the_queue_pairs_of_an_idle_device_are_those_of_kernel_modules() {
    let mut socket = Socket::<Rdma>::open().unwrap();
    for device in socket.devices().unwrap() {
        let pairs = socket.queue_pairs(device.index).unwrap();
        let has = |name: &str| {
            let module = Creator::Module(name.to_owned());
            pairs.iter().any(|pair| pair.creator == module)
        };
        assert!(has("ib_core"), "{}: {pairs:?}", device.name);
        let of_programs = pairs
            .iter()
            .filter(|pair| matches!(pair.creator, Creator::Program(_)));
        assert_eq!(of_programs.count(), 0, "{}: {pairs:?}", device.name);
    }
    assert_eq!(socket.queue_pairs(4711).unwrap_err().errno(), Some(Errno::EINVAL));
}

#[test]
#[ignore = "needs the InfiniBand fabric in exclusive mode"]
fn a_device_moves_to_a_pod_and_back() {
    let (host, pod) = (Netns::current().unwrap(), fresh());
    let mut outside = Socket::<Rdma>::open().unwrap();
    let mut inside = Socket::<Rdma>::open_in(&pod).unwrap();
    assert_eq!(outside.netns_mode().unwrap(), NetnsMode::Exclusive);
    let index = index_of(&mut outside, "softib2")
        .expect("the fabric has a third HCA, of which no other test needs the links");
    outside.move_device(index, &host, &pod).unwrap();
    assert_eq!(index_of(&mut outside, "softib2"), None);
    assert_eq!(index_of(&mut inside, "softib2"), Some(index));
    let error = inside.move_device(index, &host, &pod).unwrap_err();
    assert_eq!(
        error.errno(),
        Some(Errno::ENODEV),
        "it is not in the host's namespace"
    );
    inside.move_device(index, &pod, &host).unwrap();
    assert_eq!(index_of(&mut outside, "softib2"), Some(index));
    assert!(
        Socket::<Route>::open().unwrap().links().unwrap().len() >= 3,
        "lo and two IPoIB links"
    );
}

#[test]
#[ignore = "needs the InfiniBand fabric in exclusive mode"]
fn the_mode_cannot_change_while_pods_exist() {
    let pod = fresh();
    let error = Socket::<Rdma>::open()
        .unwrap()
        .set_netns_mode(NetnsMode::Shared)
        .unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EBUSY));
    drop(pod);
}

#[test]
#[ignore = "needs the InfiniBand fabric"]
fn a_device_is_renamed_unless_the_name_is_taken() {
    let mut socket = Socket::<Rdma>::open().unwrap();
    let index = index_of(&mut socket, "softib0").unwrap();
    socket.rename_device(index, "rail0").unwrap();
    assert_eq!(index_of(&mut socket, "rail0"), Some(index));
    assert_eq!(
        socket.rename_device(index, "softib1").unwrap_err().errno(),
        Some(Errno::EEXIST)
    );
    socket.rename_device(index, "softib0").unwrap();
}
