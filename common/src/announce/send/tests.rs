// SPDX-License-Identifier: Apache-2.0
use super::super::frame::frames;
use super::send;
use crate::netlink::{AddrGenMode, LinkChange, NewLinkKind, Route, Socket, new};
use crate::netns::{Netns, tests::fresh};
use crate::packet::Frame;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A veth pair that sends nothing itself: `v0` in the first namespace, `v1` in the second.
pub(crate) fn cable() -> (Netns, Netns, u32) {
    let (here, there) = (fresh(), fresh());
    let mut near = Socket::<Route>::open_in(&here).unwrap();
    near.add_link(&new("v0", NewLinkKind::Veth { peer: "v1" }))
        .unwrap();
    let far_end = near.link("v1").unwrap().unwrap().index;
    let moved = LinkChange {
        netns: Some(std::os::fd::AsFd::as_fd(&there)),
        ..LinkChange::default()
    };
    near.change_link(far_end, &moved).unwrap();
    let mut far = Socket::<Route>::open_in(&there).unwrap();
    for (socket, name) in [(&mut near, "v0"), (&mut far, "v1")] {
        let index = socket.link(name).unwrap().unwrap().index;
        let silent = LinkChange {
            addr_gen_mode: Some(AddrGenMode::None),
            ..LinkChange::default()
        };
        socket.change_link(index, &silent).unwrap();
        let up = LinkChange {
            up: Some(true),
            ..LinkChange::default()
        };
        socket.change_link(index, &up).unwrap();
    }
    let index = near.link("v0").unwrap().unwrap().index;
    (here, there, index)
}

/// A socket that receives every frame that arrives in `netns` from now on.
fn listener(netns: &Netns) -> OwnedFd {
    let opened = netns.run(|| {
        socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::EthAll,
        )
        .unwrap()
    });
    let socket = opened.unwrap();
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(5)).unwrap();
    socket
}

#[test]
fn announcements_arrive_unchanged_at_the_neighbour() {
    let (here, there, index) = cable();
    let link = Socket::<Route>::open_in(&here)
        .unwrap()
        .link("v0")
        .unwrap()
        .unwrap();
    let announcements = frames(
        &link,
        &["10.1.0.2".parse().unwrap(), "fd00:1::2".parse().unwrap()],
    );
    let listener = listener(&there);
    here.run(|| send(index, &announcements)).unwrap().unwrap();
    for frame in &announcements {
        let mut expected = [&frame.destination[..], link.address.as_bytes()].concat();
        expected.extend(frame.protocol.to_be_bytes());
        expected.extend(&frame.bytes);
        // The link's own multicast group reports may arrive in between.
        let mut buffer = [0; 2048];
        let arrived = std::iter::repeat_with(|| {
            let length =
                recv(listener.as_raw_fd(), &mut buffer, MsgFlags::empty()).expect("a frame within 5 s");
            buffer[..length].to_vec()
        });
        assert!(
            arrived.take(16).any(|bytes| bytes == expected),
            "{frame:?} did not arrive"
        );
    }
}

#[test]
fn failures_name_their_cause() {
    let frame = |length| Frame {
        protocol: 0x0806,
        destination: vec![0xff; length],
        bytes: vec![0; 28],
    };
    let netns = fresh();
    let error = |index, length| netns.run(|| send(index, &[frame(length)])).unwrap().unwrap_err();
    assert_eq!(error(4711, 6).raw_os_error(), Some(libc::ENXIO));
    assert_eq!(
        error(1, 6).raw_os_error(),
        Some(libc::ENETDOWN),
        "lo is down in a new namespace"
    );
    assert_eq!(error(1, 21).kind(), io::ErrorKind::InvalidInput);
    assert!(netns.run(|| send(4711, &[])).unwrap().is_ok(), "nothing to send");
}
