// SPDX-License-Identifier: Apache-2.0
//! Tests of IPoIB, ipvlan and dummy, which this machine's kernel may lack, with the software HCAs of
//! `tests/fabric`: `tests/fabric/run --hcas 3 --netns-mode exclusive TEST-BINARY --include-ignored
//! --test-threads 1`. One thread, because the tests share the HCAs and the first namespace.

use super::super::super::{
    AddrGenMode, AddressOptions, BondMode, FailOverMac, HwAddress, IpoibMode, IpvlanMode, Link, LinkChange,
    LinkInfo, LinkLayer, NewLink, NewLinkKind, Route, Socket,
};
use super::{bring_up, new, socket};
use crate::announce;
use crate::netns::{Netns, tests::fresh};
use crate::probe;
use crate::rdma::{Pkey, Sysfs};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, sockopt::ReceiveTimeout,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

const IPOIB: NewLinkKind<'_> = NewLinkKind::Ipoib {
    pkey: None,
    mode: None,
    umcast: None,
};

/// The first IPoIB link, with carrier.
fn parent(host: &mut Socket<Route>) -> Link {
    let link = host.link("ib0").unwrap().expect("the fabric has an ib0");
    bring_up(host, link.index);
    assert!(
        host.wait_for_carrier(link.index, Duration::from_secs(10))
            .unwrap(),
        "ib0 joins its broadcast group"
    );
    host.link("ib0").unwrap().unwrap()
}

#[test]
#[ignore = "needs the InfiniBand fabric"]
fn an_ipoib_child_is_created_in_the_pod_and_gets_carrier() {
    let mut host = Socket::<Route>::open().unwrap();
    let parent = parent(&mut host);
    assert_eq!(
        (parent.layer, parent.address.len(), parent.parent),
        (LinkLayer::Infiniband, 20, None)
    );
    let pod = fresh();
    let kind = NewLinkKind::Ipoib {
        pkey: Some(Pkey(0x7fff)),
        mode: Some(IpoibMode::Connected),
        umcast: Some(true),
    };
    host.add_link(&NewLink {
        parent: parent.index,
        netns: Some(pod.as_fd()),
        ..new("net1", kind)
    })
    .unwrap();
    let mut inside = socket(&pod);
    let child = inside.link("net1").unwrap().unwrap();
    let info = LinkInfo::Ipoib {
        pkey: Pkey::DEFAULT,
        mode: IpoibMode::Connected,
        umcast: true,
    };
    assert_eq!((child.kind.as_deref(), &child.info), (Some("ipoib"), &info));
    // The driver does not report the parent's namespace, and the kernel omits a parent index equal to the
    // child's own.
    assert_eq!(
        child.parent,
        (child.index != parent.index).then_some(parent.index)
    );
    assert_eq!(child.parent_netnsid, None);
    assert_eq!(child.address.port_guid(), parent.address.port_guid());
    let silent = LinkChange {
        addr_gen_mode: Some(AddrGenMode::None),
        ..LinkChange::default()
    };
    inside.change_link(child.index, &silent).unwrap();
    bring_up(&mut inside, child.index);
    assert!(
        inside
            .wait_for_carrier(child.index, Duration::from_secs(10))
            .unwrap()
    );
    let child = inside.link_by_index(child.index).unwrap().unwrap();
    assert_eq!(child.addr_gen_mode, Some(AddrGenMode::None));
    assert_eq!(inside.addresses(child.index).unwrap(), []);
    assert!(inside.delete_link(child.index).unwrap());
}

/// A pod with a child of `parent` that has carrier.
fn pod_on(host: &mut Socket<Route>, parent: &str) -> (Netns, Link) {
    let parent = host.link(parent).unwrap().unwrap();
    bring_up(host, parent.index);
    let pod = fresh();
    host.add_link(&NewLink {
        parent: parent.index,
        netns: Some(pod.as_fd()),
        ..new("net1", IPOIB)
    })
    .unwrap();
    let mut inside = socket(&pod);
    let index = inside.link("net1").unwrap().unwrap().index;
    bring_up(&mut inside, index);
    assert!(inside.wait_for_carrier(index, Duration::from_secs(10)).unwrap());
    let child = inside.link_by_index(index).unwrap().unwrap();
    (pod, child)
}

#[test]
#[ignore = "needs the InfiniBand fabric"]
fn announcements_arrive_in_a_pod_on_another_hca() {
    let mut host = Socket::<Route>::open().unwrap();
    let (sender, link) = pod_on(&mut host, "ib0");
    let (receiver, other) = pod_on(&mut host, "ib1");
    let frames = announce::frames(
        &link,
        &["10.1.0.2".parse().unwrap(), "fd00:1::2".parse().unwrap()],
    );
    assert_eq!(frames.len(), 3);
    let listener = receiver.run(|| listener().unwrap()).unwrap();
    let mut buffer = [0; 4096];
    for frame in &frames {
        // The first packets to a multicast group may be lost while the port joins it, so each is sent until
        // it arrives.
        let arrived = (0..20).any(|_| {
            sender
                .run(|| announce::send(link.index, std::slice::from_ref(frame)))
                .unwrap()
                .unwrap();
            std::iter::from_fn(|| {
                recv(listener.as_raw_fd(), &mut buffer, MsgFlags::empty())
                    .ok()
                    .map(|n| buffer[..n].to_vec())
            })
            .any(|bytes| bytes == frame.bytes)
        });
        assert!(arrived, "{frame:?} did not arrive");
    }
    socket(&sender).delete_link(link.index).unwrap();
    socket(&receiver).delete_link(other.index).unwrap();
}

#[test]
#[ignore = "needs the InfiniBand fabric"]
fn a_pod_on_another_hca_answers_a_probe_for_its_address() {
    let mut host = Socket::<Route>::open().unwrap();
    let (sender, link) = pod_on(&mut host, "ib0");
    let (receiver, other) = pod_on(&mut host, "ib1");
    let mut inside = socket(&receiver);
    for (address, subnet) in [("10.1.0.2", "10.1.0.2/24"), ("fd00:1::2", "fd00:1::2/64")] {
        let no_dad = AddressOptions { no_dad: true };
        inside
            .add_address(other.index, subnet.parse().unwrap(), no_dad)
            .unwrap();
        let address = address.parse().unwrap();
        // The first packets to a multicast group may be lost while the ports join it.
        let claim = (0..20)
            .find_map(|_| {
                sender
                    .run(|| probe::probe(&link, &[address], None))
                    .unwrap()
                    .unwrap()
            })
            .expect("the pod answers");
        assert_eq!(
            (claim.address, claim.hardware.as_ref()),
            (address, Some(&other.address))
        );
    }
    socket(&sender).delete_link(link.index).unwrap();
    inside.delete_link(other.index).unwrap();
}

/// Packets that arrive in the calling thread's namespace, without their link-layer header; waits 200 ms for one.
fn listener() -> nix::Result<OwnedFd> {
    let opened = nix::sys::socket::socket(
        AddressFamily::Packet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::EthAll,
    )?;
    setsockopt(&opened, ReceiveTimeout, &TimeVal::milliseconds(200))?;
    Ok(opened)
}

#[test]
#[ignore = "needs the InfiniBand fabric"]
fn the_port_of_an_ipoib_link_and_its_pkeys_are_found() {
    let mut host = Socket::<Route>::open().unwrap();
    let sysfs = Sysfs::host();
    let devices = sysfs.devices().unwrap();
    for (link, name) in [("ib0", "softib0"), ("ib1", "softib1")] {
        let link = host.link(link).unwrap().unwrap();
        let (device, port) = sysfs.port_of(&devices, &link).unwrap();
        assert_eq!((device.name.as_str(), port.number), (name, 1));
        assert_eq!(sysfs.pkeys(device, port).unwrap()[0], Pkey::DEFAULT);
    }
}

#[test]
#[ignore = "needs the InfiniBand fabric"]
fn an_ipoib_child_returns_to_the_host_when_its_pod_dies() {
    let mut host = Socket::<Route>::open().unwrap();
    let parent = parent(&mut host);
    let pod = fresh();
    host.add_link(&NewLink {
        parent: parent.index,
        netns: Some(pod.as_fd()),
        ..new("orphan", IPOIB)
    })
    .unwrap();
    assert_eq!(host.link("orphan").unwrap(), None);
    drop(pod);
    // The kernel deletes namespaces in the background.
    let found = (0..2400).find_map(|_| {
        std::thread::sleep(Duration::from_millis(25));
        host.link("orphan").unwrap()
    });
    let orphan = found.expect("the child is in the host's namespace within a minute");
    assert_eq!(
        (orphan.parent, orphan.kind.as_deref()),
        (Some(parent.index), Some("ipoib"))
    );
    assert!(host.delete_link(orphan.index).unwrap());
}

#[test]
#[ignore = "needs the InfiniBand fabric"]
fn a_child_of_a_child_is_refused() {
    let mut host = Socket::<Route>::open().unwrap();
    let parent = parent(&mut host);
    host.add_link(&NewLink {
        parent: parent.index,
        ..new("child", IPOIB)
    })
    .unwrap();
    let child = host.link("child").unwrap().unwrap();
    let error = host
        .add_link(&NewLink {
            parent: child.index,
            ..new("grandchild", IPOIB)
        })
        .unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EINVAL));
    assert!(host.delete_link(child.index).unwrap());
}

#[test]
#[ignore = "needs the InfiniBand fabric"]
fn an_ipoib_child_accepts_a_hardware_address() {
    let mut host = Socket::<Route>::open().unwrap();
    let parent = parent(&mut host);
    let own: HwAddress = "00:00:00:00:fe:80:00:00:00:00:00:00:02:00:00:00:00:00:00:99"
        .parse()
        .unwrap();
    let child = NewLink {
        parent: parent.index,
        address: Some(&own),
        ..new("own", IPOIB)
    };
    host.add_link(&child).unwrap();
    let child = host.link("own").unwrap().unwrap();
    assert!(host.delete_link(child.index).unwrap());
    // The driver writes the queue pair into the first four bytes.
    assert_eq!(child.address.as_bytes()[4..], own.as_bytes()[4..]);
}

#[test]
#[ignore = "needs the InfiniBand fabric"]
fn a_bond_of_two_children_gets_their_layer_and_carrier() {
    let mut host = Socket::<Route>::open().unwrap();
    let (pod, first) = pod_on(&mut host, "ib0");
    let mut inside = socket(&pod);
    let kind = NewLinkKind::Bond {
        mode: BondMode::ActiveBackup,
        miimon: 100,
        fail_over_mac: FailOverMac::Active,
        peer_notifications: 5,
    };
    inside.add_link(&new("net2", kind)).unwrap();
    let bond = inside.link("net2").unwrap().unwrap();
    let master = LinkChange {
        master: Some(bond.index),
        ..LinkChange::default()
    };
    let busy = inside.change_link(first.index, &master).unwrap_err();
    assert_eq!(busy.errno(), Some(Errno::EPERM), "a port that is up is refused");
    let set_up = |socket: &mut Socket<Route>, index, up| {
        let change = LinkChange {
            up: Some(up),
            ..LinkChange::default()
        };
        socket.change_link(index, &change).unwrap();
    };
    set_up(&mut inside, first.index, false);
    inside.change_link(first.index, &master).unwrap();
    set_up(&mut inside, bond.index, true);
    assert!(
        inside
            .wait_for_carrier(bond.index, Duration::from_secs(10))
            .unwrap()
    );
    let bond = inside.link_by_index(bond.index).unwrap().unwrap();
    let info = LinkInfo::Bond {
        mode: BondMode::ActiveBackup,
        active: Some(first.index),
        miimon: 100,
        fail_over_mac: FailOverMac::Active,
    };
    assert_eq!((bond.layer, &bond.info), (LinkLayer::Infiniband, &info));
    assert_eq!(bond.address, inside.link("net1").unwrap().unwrap().address);
    assert!(inside.delete_link(bond.index).unwrap());
    let freed = inside.link("net1").unwrap().unwrap();
    assert_eq!(freed.master, None);
    assert!(inside.delete_link(freed.index).unwrap());
}

#[test]
#[ignore = "needs a kernel with ipvlan and dummy, as in the InfiniBand fabric"]
fn an_ipvlan_is_created_on_a_dummy() {
    let mut host = socket(&fresh());
    host.add_link(&new("d0", NewLinkKind::Dummy)).unwrap();
    let parent = host.link("d0").unwrap().unwrap();
    assert_eq!(parent.kind.as_deref(), Some("dummy"));
    let pod = fresh();
    for mode in IpvlanMode::ALL {
        let kind = NewLinkKind::Ipvlan { mode: *mode };
        host.add_link(&NewLink {
            parent: parent.index,
            netns: Some(pod.as_fd()),
            ..new("net1", kind)
        })
        .unwrap();
        let mut inside = socket(&pod);
        let child = inside.link("net1").unwrap().unwrap();
        assert_eq!(child.info, LinkInfo::Ipvlan { mode: *mode });
        assert!(inside.delete_link(child.index).unwrap());
    }
}
