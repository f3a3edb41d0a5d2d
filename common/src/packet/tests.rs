// SPDX-License-Identifier: Apache-2.0
use super::{ETH_P_ARP, ETH_P_IPV6, Frame, PacketSocket};
use crate::announce::send;
use crate::announce::send::tests::cable;
use crate::netlink::{Route, Socket};
use std::time::{Duration, Instant};

const ETH_P_8021Q: u16 = 0x8100;

/// A frame with a tag (IEEE 802.1Q). The payload is the number of the VLAN.
fn tagged(vlan: u8, protocol: u16) -> Frame {
    let [high, low] = protocol.to_be_bytes();
    Frame {
        protocol: ETH_P_8021Q,
        destination: vec![0xff; 6],
        bytes: [&[0, vlan, high, low], &[vlan; 60][..]].concat(),
    }
}

/// A trunk carries the frames of many VLANs, in which other hosts may have the same addresses. VLAN 0 is a priority and no VLAN.
#[test]
fn a_frame_of_another_vlan_is_not_received() {
    for protocol in [ETH_P_ARP, ETH_P_IPV6] {
        let (here, there, index) = cable();
        let receiver = here
            .run(|| PacketSocket::receiver_of(index, protocol))
            .unwrap()
            .unwrap();
        let far_end = Socket::<Route>::open_in(&there)
            .unwrap()
            .link("v1")
            .unwrap()
            .unwrap()
            .index;
        let frames = [5, 0].map(|vlan| tagged(vlan, protocol));
        there.run(|| send(far_end, &frames)).unwrap().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let frame = PacketSocket::receive(&[&receiver], deadline).unwrap();
        assert_eq!(frame.as_deref(), Some(&[0; 60][..]), "protocol {protocol:#x}");
    }
}
