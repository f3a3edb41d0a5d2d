// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::mark::Mark;
use crate::model::{attachment, ethernet, ipoib, of_kind};

fn macvlan() -> Link {
    Link {
        parent: Some(2),
        parent_netnsid: Some(0),
        ..of_kind("macvlan", ethernet(7, "net1"))
    }
}

fn address(pair: u8) -> HwAddress {
    let mut bytes = ipoib(7, "net1", 0xffff).address.as_bytes().to_vec();
    bytes[1..4].copy_from_slice(&[0, 0x10, pair]);
    HwAddress::new(bytes)
}

fn child() -> Link {
    Link {
        parent: Some(4),
        up: false,
        address: address(0x49),
        ..ipoib(7, "net1", 0xffff)
    }
}

/// The complete mark of another attachment.
fn marked(container: &str, link: Link) -> Link {
    let mark = Mark::new("fabric", &attachment(container));
    Link {
        group: mark.group,
        alias: Some(mark.alias),
        ..link
    }
}

fn whatever_a_pod_may_change(link: &Link) -> Link {
    Link {
        name: "fast0".to_owned(),
        alias: Some("mine".to_owned()),
        group: 7,
        mtu: 1300,
        up: !link.up,
        ..link.clone()
    }
}

#[test]
fn a_link_is_recognized_whatever_the_pod_changed() {
    for link in [macvlan(), child()] {
        let made = Made::of(&link);
        assert!(made.is(&whatever_a_pod_may_change(&link)));
        assert!(
            made.is(&marked("c2", link)),
            "a pod can copy another attachment's mark"
        );
    }
    let other_mac = Link {
        address: "02:00:00:00:00:99".parse().unwrap(),
        ..macvlan()
    };
    assert!(Made::of(&macvlan()).is(&other_mac));
}

#[test]
fn a_link_moved_away_and_back_is_recognized_by_its_address() {
    for link in [macvlan(), child()] {
        let renumbered = Link {
            index: 9,
            ..whatever_a_pod_may_change(&link)
        };
        let made = Made::of(&link);
        assert!(made.is(&renumbered) && !made.has_index_of(&renumbered));
        assert!(
            made.is(&marked("c2", renumbered)),
            "a pod can copy another attachment's mark"
        );
    }
}

#[test]
fn a_pods_own_link_is_not_recognized() {
    let made = Made::of(&macvlan());
    let own = |change: fn(&mut Link)| {
        let mut link = macvlan();
        change(&mut link);
        link
    };
    for (case, link) in [
        ("its parent is in the pod", own(|link| link.parent_netnsid = None)),
        ("another parent", own(|link| link.parent = Some(3))),
        ("another kind", own(|link| link.kind = Some("ipvlan".to_owned()))),
        (
            "another number and address",
            own(|link| (link.index, link.address) = (9, HwAddress::new([2, 0, 0, 0, 0, 9]))),
        ),
    ] {
        assert!(!made.is(&link), "{case}");
    }
}

#[test]
fn an_address_that_links_share_proves_nothing() {
    for kind in ["ipvlan", "bond"] {
        let link = of_kind(kind, macvlan());
        let other = Link {
            index: 9,
            ..link.clone()
        };
        assert!(Made::of(&link).is(&link), "{kind}");
        assert!(!Made::of(&link).is(&other), "{kind}");
    }
}

#[test]
fn a_returned_child_is_recognized_by_its_queue_pair() {
    let made = Made::of(&child());
    let back = Link {
        index: 90,
        up: false,
        ..whatever_a_pod_may_change(&child())
    };
    assert!(made.came_back_as(&back));
    // A port's GUID may change under a child; its queue pair does not.
    let mut bytes = back.address.as_bytes().to_vec();
    bytes[19] ^= 1;
    let other_guid = Link {
        address: HwAddress::new(bytes),
        ..back.clone()
    };
    assert!(made.came_back_as(&other_guid));
    let mark = Mark::new("fabric", &attachment("c2"));
    let temporary = Link {
        name: mark.temporary(0),
        ..back.clone()
    };
    for link in [marked("c2", back.clone()), temporary] {
        assert!(
            made.came_back_as(&link),
            "a pod can choose any name and mark: {link:?}"
        );
    }
    for (case, link) in [
        (
            "another queue pair",
            Link {
                address: address(0x50),
                ..back.clone()
            },
        ),
        (
            "a child of another port",
            Link {
                parent: Some(5),
                ..back.clone()
            },
        ),
        (
            "in use",
            Link {
                up: true,
                ..back.clone()
            },
        ),
        ("no child", of_kind("macvlan", back.clone())),
    ] {
        assert!(!made.came_back_as(&link), "{case}");
    }
    assert!(
        !Made::of(&macvlan()).came_back_as(&macvlan()),
        "Ethernet children end with their namespace"
    );
}

#[test]
fn a_child_with_the_index_of_its_parent_is_recognized() {
    let link = Link {
        index: 4,
        parent: None,
        ..child()
    };
    let back = Link {
        index: 90,
        parent: Some(4),
        ..child()
    };
    assert!(Made::of(&link).came_back_as(&back));
    let moved_back = Link {
        index: 9,
        parent: Some(4),
        ..child()
    };
    assert!(Made::of(&link).is(&moved_back) && Made::of(&moved_back).is(&link));
    let other_parent = Link {
        parent: Some(5),
        ..moved_back
    };
    assert!(!Made::of(&link).is(&other_parent));
}

#[test]
fn an_address_without_a_queue_pair_proves_nothing() {
    let zero = Link {
        address: {
            let mut bytes = child().address.as_bytes().to_vec();
            bytes[1..4].fill(0);
            HwAddress::new(bytes)
        },
        ..child()
    };
    assert!(!Made::of(&zero).came_back_as(&zero));
}

#[test]
fn a_child_is_found_by_the_index_of_its_parent_on_the_host() {
    let in_pod = Link {
        parent_netnsid: None,
        ..macvlan()
    };
    let with_the_index_of_its_parent = Link {
        index: 4,
        parent: None,
        ..child()
    };
    let bond = of_kind("bond", ethernet(4, "net1"));
    for (link, index, expected) in [
        (&macvlan(), 2, true),
        (&macvlan(), 7, false),
        (&in_pod, 2, false),
        (&child(), 4, true),
        (&with_the_index_of_its_parent, 4, true),
        (&bond, 4, false),
    ] {
        let found = Made::of(link).parent_on_host() == Some(index);
        assert_eq!(found, expected, "{link:?}");
    }
}
