// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::model::{Pod, ethernet, of_kind};

const BRIDGE: Kind = Kind::Macvlan(Some(MacvlanMode::Bridge));
const PASSTHRU: Kind = Kind::Macvlan(Some(MacvlanMode::Passthru));
const MACVLAN: Kind = Kind::Macvlan(None);
const L2: Kind = Kind::Ipvlan(Some(IpvlanMode::L2));
const L3: Kind = Kind::Ipvlan(Some(IpvlanMode::L3));
const IPVLAN: Kind = Kind::Ipvlan(None);

#[test]
fn a_child_fits_others_as_the_kernel_admits_it() {
    let private = Kind::Macvlan(Some(MacvlanMode::Private));
    for (new, old, fits) in [
        (BRIDGE, BRIDGE, Some(true)),
        (BRIDGE, private, Some(true)),
        (BRIDGE, MACVLAN, None),
        (BRIDGE, PASSTHRU, Some(false)),
        (PASSTHRU, BRIDGE, Some(false)),
        (PASSTHRU, PASSTHRU, Some(false)),
        (PASSTHRU, MACVLAN, Some(false)),
        (BRIDGE, L2, Some(false)),
        (PASSTHRU, IPVLAN, Some(false)),
        (L2, L2, Some(true)),
        (L2, L3, Some(false)),
        (L2, IPVLAN, None),
        (L2, BRIDGE, Some(false)),
        (L2, MACVLAN, Some(false)),
    ] {
        assert_eq!(new.fits(old), fits, "{new:?} beside {old:?}");
    }
}

/// A link of this kind as it is in a pod, on a parent in another namespace.
fn in_pod(kind: &str) -> Made {
    Made::of(&Link {
        parent: Some(6),
        parent_netnsid: Some(0),
        ..of_kind(kind, ethernet(9, "net1"))
    })
}

#[test]
fn the_child_of_an_attachment_of_an_earlier_version_is_known_by_its_link() {
    let pod = Pod::new();
    let of = |ipvlan: Option<&str>, made: Option<Made>| {
        Kind::of_intent(&Intent {
            ipvlan: ipvlan.map(str::to_owned),
            made: made.into_iter().collect(),
            ..pod.intent("ens1")
        })
    };
    assert_eq!(of(Some("l3"), None), Some(L3));
    assert_eq!(of(Some("of a later version"), None), Some(IPVLAN));
    assert_eq!(of(None, Some(in_pod("macvlan"))), Some(MACVLAN));
    assert_eq!(of(None, Some(in_pod("ipvlan"))), Some(IPVLAN));
    assert_eq!(of(None, Some(in_pod("ipoib"))), None);
    assert_eq!(of(None, None), None);
    let of_pods_link = Made {
        outside: false,
        ..in_pod("macvlan")
    };
    assert_eq!(of(None, Some(of_pods_link)), None);
}
