// SPDX-License-Identifier: Apache-2.0

use super::*;
use futures::FutureExt;
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
        .map(|change| (change.is_warning, change.reason, change.note))
        .collect()
}

#[test]
fn ports_and_bonds_are_watched_and_links_of_pods_are_not() {
    let ether = LinkLayerType::Ether;
    let infiniband = LinkLayerType::Infiniband;
    let watched = |layer, kind| read(&message("a", layer, kind, true), &LinkScope::Rdma).is_some();
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
    let mut bond_message = message("ibbond0", LinkLayerType::Infiniband, None, true);
    bond_message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Bond),
        LinkInfo::Data(InfoData::Bond(vec![InfoBond::ActivePort(5)])),
    ]));
    assert_eq!(read(&bond_message, &LinkScope::Rdma), Some(bond(Some(5))));
}

#[test]
fn a_lost_carrier_is_a_warning_event_and_a_returned_carrier_is_not() {
    let up = read(
        &message("ib0", LinkLayerType::Infiniband, None, true),
        &LinkScope::Rdma,
    )
    .unwrap();
    let down = read(
        &message("ib0", LinkLayerType::Infiniband, None, false),
        &LinkScope::Rdma,
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
fn a_bond_event_names_the_ports_before_and_after_a_failover() {
    assert_eq!(
        notes(&bond(Some(4)), &bond(Some(5))),
        [(
            true,
            event::BOND_FAILOVER,
            "bond ibbond0 switched from ib0 to ib1".to_owned()
        )]
    );
    let (warning, _, note) = notes(&bond(Some(5)), &bond(None)).remove(0);
    assert!(warning);
    assert_eq!(
        note,
        "bond ibbond0 lost its active port ib1 and has no other with carrier"
    );
    let (warning, _, note) = notes(&bond(None), &bond(Some(5))).remove(0);
    assert!(!warning);
    assert_eq!(note, "bond ibbond0 now uses ib1");
}

#[test]
fn a_repeated_link_state_is_no_change() {
    assert_eq!(notes(&bond(Some(4)), &bond(Some(4))), []);
}

#[test]
fn a_link_set_down_by_an_administrator_causes_no_event() {
    let infiniband = LinkLayerType::Infiniband;
    let up = read(&message("ib0", infiniband, None, true), &LinkScope::Rdma).unwrap();
    let mut down_message = message("ib0", infiniband, None, false);
    down_message.header.flags = LinkFlags::empty();
    let down = read(&down_message, &LinkScope::Rdma).unwrap();
    assert_eq!(notes(&up, &down), []);
}

#[test]
fn a_link_that_matches_a_pattern_is_watched_whatever_its_kind() {
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

fn change(note: &str) -> NewEvent {
    NewEvent {
        is_warning: true,
        reason: event::LINK_DOWN,
        note: note.to_owned(),
    }
}

/// A switch that fails takes several ports of each node down at the same moment.
#[tokio::test]
async fn all_changes_of_a_burst_wait_for_one_turn_of_the_node() {
    let (events, mut queue) = mpsc::channel(EVENTS_QUEUED);
    let (begin, turn) = tokio::sync::oneshot::channel();
    for note in ["ib0", "ib1"] {
        events.try_send(change(note)).unwrap();
    }
    let mut burst = Box::pin(next_burst(&mut queue, || async { turn.await.unwrap() }));
    assert!(burst.as_mut().now_or_never().is_none());
    events.try_send(change("ib2")).unwrap();
    assert!(burst.as_mut().now_or_never().is_none());
    begin.send(()).unwrap();
    let burst = burst.await.unwrap();
    let notes: Vec<String> = burst.into_iter().map(|change| change.note).collect();
    assert_eq!(notes, ["ib0", "ib1", "ib2"]);
}
