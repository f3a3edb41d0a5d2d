// SPDX-License-Identifier: Apache-2.0

use super::*;
use rtnetlink::packet_route::link::InfoKind;

fn message(name: &str, layer: LinkLayerType, kind: Option<InfoKind>, up: bool) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.link_layer_type = layer;
    message.header.flags = LinkFlags::Up;
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::OperState(if up { State::Up } else { State::Down }),
    ];
    if let Some(kind) = kind {
        message
            .attributes
            .push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]));
    }
    message
}

fn bond(active: Option<u32>) -> Link {
    Link {
        name: "ibbond0".to_owned(),
        enabled: true,
        up: true,
        active,
    }
}

fn ports() -> HashMap<u32, Link> {
    [(4, "ib0"), (5, "ib1")]
        .map(|(index, name)| {
            let link = Link {
                name: name.to_owned(),
                enabled: true,
                up: true,
                active: None,
            };
            (index, link)
        })
        .into()
}

fn notes(before: &Link, now: &Link) -> Vec<(bool, &'static str, String)> {
    changes(before, now, &ports())
        .into_iter()
        .map(|change| (change.warning, change.reason, change.note))
        .collect()
}

#[test]
fn ports_and_bonds_are_watched_and_what_pods_hang_on_them_is_not() {
    let ether = LinkLayerType::Ether;
    let infiniband = LinkLayerType::Infiniband;
    let watched = |layer, kind| read(&message("a", layer, kind, true), &Scope::Rdma).is_some();
    assert!(watched(ether, None));
    assert!(watched(infiniband, None));
    assert!(watched(infiniband, Some(InfoKind::Other("ipoib".to_owned()))));
    assert!(watched(infiniband, Some(InfoKind::Bond)));
    for of_a_pod in [
        InfoKind::Veth,
        InfoKind::MacVlan,
        InfoKind::IpVlan,
        InfoKind::Bridge,
    ] {
        assert!(!watched(ether, Some(of_a_pod)));
    }
    assert!(!watched(LinkLayerType::Loopback, None));
}

#[test]
fn the_active_port_of_a_bond_is_read() {
    let mut told = message("ibbond0", LinkLayerType::Infiniband, None, true);
    told.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Bond),
        LinkInfo::Data(InfoData::Bond(vec![InfoBond::ActivePort(5)])),
    ]));
    assert_eq!(read(&told, &Scope::Rdma), Some(bond(Some(5))));
}

#[test]
fn a_port_that_loses_carrier_is_a_warning_and_one_that_has_it_again_is_none() {
    let up = read(
        &message("ib0", LinkLayerType::Infiniband, None, true),
        &Scope::Rdma,
    )
    .unwrap();
    let down = read(
        &message("ib0", LinkLayerType::Infiniband, None, false),
        &Scope::Rdma,
    )
    .unwrap();
    assert_eq!(
        notes(&up, &down),
        [(true, event::LINK_DOWN, "link ib0 has lost carrier".to_owned())]
    );
    assert_eq!(
        notes(&down, &up),
        [(false, event::LINK_UP, "link ib0 has carrier again".to_owned())]
    );
}

#[test]
fn a_bond_that_fails_over_names_both_ports_and_one_without_a_port_says_so() {
    assert_eq!(
        notes(&bond(Some(4)), &bond(Some(5))),
        [(
            true,
            event::BOND_FAILOVER,
            "bond ibbond0 went over ib0 and goes on over ib1".to_owned()
        )]
    );
    let (warning, _, note) = notes(&bond(Some(5)), &bond(None)).remove(0);
    assert!(warning);
    assert_eq!(
        note,
        "bond ibbond0 went over ib1 and has no other port to go on over"
    );
    let (warning, _, note) = notes(&bond(None), &bond(Some(5))).remove(0);
    assert!(!warning);
    assert_eq!(note, "bond ibbond0 goes over ib1 now");
}

#[test]
fn what_is_told_again_is_no_change() {
    assert_eq!(notes(&bond(Some(4)), &bond(Some(4))), []);
}

#[test]
fn a_link_that_is_set_down_has_lost_nothing() {
    let infiniband = LinkLayerType::Infiniband;
    let up = read(&message("ib0", infiniband, None, true), &Scope::Rdma).unwrap();
    let mut told = message("ib0", infiniband, None, false);
    told.header.flags = LinkFlags::empty();
    let down = read(&told, &Scope::Rdma).unwrap();
    assert_eq!(notes(&up, &down), []);
}

#[test]
fn a_link_that_is_named_is_watched_whatever_it_is() {
    let scope = "rail*".parse().unwrap();
    let watched = |name| {
        read(
            &message(name, LinkLayerType::Ether, Some(InfoKind::Veth), true),
            &scope,
        )
        .is_some()
    };
    assert!(watched("rail0") && !watched("cali0"));
}
