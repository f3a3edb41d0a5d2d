// SPDX-License-Identifier: Apache-2.0
use super::{Hardware, is_made_by_software};
use crate::model::{ethernet, ipoib, of_kind};
use common::netlink::Link;

fn port() -> Link {
    Link {
        device: Some("pci/0000:3b:00.0".to_owned()),
        ..ipoib(4, "ib0", 0xffff)
    }
}

fn card() -> Link {
    Link {
        device: Some("pci/0000:17:00.0".to_owned()),
        perm_address: "b8:3f:d2:00:00:01".parse().ok(),
        ..ethernet(6, "ens1")
    }
}

#[test]
fn a_link_is_recognized_under_another_name_index_and_address() {
    let made_anew = Link {
        index: 90,
        name: "ib7".to_owned(),
        address: "00:00:99:99:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e"
            .parse()
            .unwrap(),
        ..port()
    };
    assert!(Hardware::of(&port(), None).is(&made_anew));
    let changed = Link {
        name: "dev6".to_owned(),
        address: "02:00:00:00:00:99".parse().unwrap(),
        ..card()
    };
    assert!(Hardware::of(&card(), None).is(&changed));
    let untold = |link| Link {
        perm_address: None,
        ..link
    };
    assert!(Hardware::of(&untold(card()), None).is(&untold(changed)));
}

#[test]
fn a_marked_link_that_was_moved_is_still_hardware() {
    // A pod may set the group of its link.
    for group in [0, 7] {
        let moved = Link {
            group,
            alias: Some("rdmanet:fabric/c1@net1".to_owned()),
            ..port()
        };
        assert!(Hardware::of(&port(), None).is(&moved));
        assert!(!is_made_by_software(&moved));
    }
}

#[test]
fn children_and_other_ports_are_not_the_same_link() {
    let port_of = Hardware::of(&port(), None);
    let child = Link {
        parent: Some(4),
        ..port()
    };
    let other_port = Link {
        address: "00:00:10:49:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5f"
            .parse()
            .unwrap(),
        ..port()
    };
    let other_device = Link {
        device: Some("pci/0000:5e:00.0".to_owned()),
        ..port()
    };
    for other in [child, other_port, other_device, card()] {
        assert!(!port_of.is(&other), "{other:?}");
    }
    let representor = Link {
        perm_address: "b8:3f:d2:00:00:02".parse().ok(),
        ..card()
    };
    let of_random_address = Link {
        address: "02:00:00:00:00:99".parse().unwrap(),
        perm_address: None,
        ..card()
    };
    for other in [representor, of_random_address, of_kind("macvlan", card()), port()] {
        assert!(!Hardware::of(&card(), None).is(&other), "{other:?}");
    }
}

#[test]
fn two_records_of_one_link_are_equal_whatever_its_queue_pair() {
    let later = Link {
        address: "00:00:99:99:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e"
            .parse()
            .unwrap(),
        ..port()
    };
    assert!(Hardware::of(&port(), None).is_same(&Hardware::of(&later, None)));
    assert!(!Hardware::of(&port(), None).is_same(&Hardware::of(&card(), None)));
}
