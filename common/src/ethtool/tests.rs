// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::netlink::{NewLink, NewLinkKind, Route, Socket};
use crate::netns::tests::fresh;

#[test]
fn a_link_names_its_driver() {
    let netns = fresh();
    let veth = NewLink {
        name: "near",
        parent: 0,
        netns: None,
        mtu: None,
        address: None,
        group: 0,
        kind: NewLinkKind::Veth { peer: "far" },
    };
    Socket::<Route>::open_in(&netns).unwrap().add_link(&veth).unwrap();
    for name in ["near", "far"] {
        assert_eq!(netns.run(|| driver(name)).unwrap().unwrap(), "veth", "{name}");
    }
}

#[test]
fn the_driver_of_a_missing_link_is_an_error() {
    for name in ["", "nowhere0", "a-name-of-16-byte", "with\0zero"] {
        let error = driver(name).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::ENODEV as i32), "{name:?}");
    }
}
