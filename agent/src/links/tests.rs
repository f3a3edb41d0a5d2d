// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::config::Config;
use api::testing::answering_clients;
use clap::Parser;
use futures::FutureExt;
use kube::runtime::reflector::store;
use prometheus_client::registry::Registry;
use rtnetlink::packet_route::link::{
    BondMode, InfoBond, InfoData, InfoKind, LinkAttribute, LinkFlags, LinkInfo as Info, LinkLayerType, Prop,
    State,
};

fn message(name: &str, layer: LinkLayerType, kind: Option<InfoKind>, up: bool) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.link_layer_type = layer;
    message.header.flags = if up {
        LinkFlags::Up | LinkFlags::LowerUp
    } else {
        LinkFlags::Up
    };
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::OperState(if up { State::Up } else { State::Down }),
    ];
    if let Some(kind) = kind {
        message
            .attributes
            .push(LinkAttribute::LinkInfo(vec![Info::Kind(kind)]));
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

/// The link of an ADD that creates the child on the host and then moves it into the pod.
fn is_child_watched(scope: &LinkScope) -> bool {
    let kind = InfoKind::Other("ipoib".to_owned());
    let mut child = message("rdma0123456789", LinkLayerType::Infiniband, Some(kind), false);
    child.header.index = 7;
    child.attributes.push(LinkAttribute::Link(4));
    read(child, scope).is_some()
}

/// A driver that never reports the loss of its carrier leaves the operational state unknown, as a tunnel or a virtual port may.
#[test]
fn a_link_with_carrier_and_an_unknown_state_is_up() {
    let mut message = message("eth1", LinkLayerType::Ether, None, true);
    message.attributes[1] = LinkAttribute::OperState(State::Unknown);
    let scope = "eth*".parse().unwrap();
    assert!(read(message.clone(), &scope).unwrap().up);
    message.header.flags = LinkFlags::Up;
    assert!(!read(message, &scope).unwrap().up);
}

#[test]
fn ports_and_bonds_are_watched_and_links_of_pods_are_not() {
    let ether = LinkLayerType::Ether;
    let infiniband = LinkLayerType::Infiniband;
    let watched = |layer, kind| read(message("a", layer, kind, true), &LinkScope::Rdma).is_some();
    assert!(watched(ether, None));
    assert!(watched(infiniband, None));
    assert!(watched(infiniband, Some(InfoKind::Other("ipoib".to_owned()))));
    assert!(watched(infiniband, Some(InfoKind::Bond)));
    assert!(!is_child_watched(&LinkScope::Rdma));
    assert!(is_child_watched(&"rdma*".parse().unwrap()));
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

/// In switchdev mode an adapter has a link for each of its functions. Such a link comes and goes with its function.
#[test]
fn a_representor_is_watched_only_by_name() {
    let is_watched = |port: &str, scope: &LinkScope| {
        let mut message = message("eth7", LinkLayerType::Ether, None, true);
        let port = LinkAttribute::PhysPortName(port.to_owned());
        message.attributes.push(port);
        read(message, scope).is_some()
    };
    assert!(is_watched("p0", &LinkScope::Rdma));
    assert!(!is_watched("pf0vf3", &LinkScope::Rdma));
    let by_name = "eth7".parse::<LinkScope>().unwrap();
    assert!(is_watched("pf0vf3", &by_name));
}

/// The condition counts such a link, so Events and metrics must know it.
#[test]
fn a_link_that_is_named_by_an_altname_is_watched() {
    let mut vlan = message("eth0.7", LinkLayerType::Ether, Some(InfoKind::Vlan), true);
    let names = vec![Prop::AltIfName("storage".to_owned())];
    vlan.attributes.push(LinkAttribute::PropList(names));
    assert_eq!(read(vlan.clone(), &LinkScope::Rdma), None);
    assert!(read(vlan, &"storage".parse().unwrap()).is_some());
}

#[test]
fn the_active_port_of_a_bond_is_read() {
    let mut bond_message = message("ibbond0", LinkLayerType::Infiniband, None, true);
    bond_message.attributes.push(LinkAttribute::LinkInfo(vec![
        Info::Kind(InfoKind::Bond),
        Info::Data(InfoData::Bond(vec![
            InfoBond::Mode(BondMode::ActiveBackup),
            InfoBond::ActivePort(5),
        ])),
    ]));
    assert_eq!(read(bond_message, &LinkScope::Rdma), Some(bond(Some(5))));
}

#[test]
fn a_lost_carrier_is_a_warning_event_and_a_returned_carrier_is_not() {
    let up = read(
        message("ib0", LinkLayerType::Infiniband, None, true),
        &LinkScope::Rdma,
    )
    .unwrap();
    let down = read(
        message("ib0", LinkLayerType::Infiniband, None, false),
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
    let up = read(message("ib0", infiniband, None, true), &LinkScope::Rdma).unwrap();
    let mut down_message = message("ib0", infiniband, None, false);
    down_message.header.flags = LinkFlags::empty();
    let down = read(down_message, &LinkScope::Rdma).unwrap();
    assert_eq!(notes(&up, &down), []);
}

#[test]
fn a_link_that_matches_a_pattern_is_watched_whatever_its_kind() {
    let scope = "rail*".parse().unwrap();
    let watched = |name| {
        read(
            message(name, LinkLayerType::Ether, Some(InfoKind::Veth), true),
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

/// A listener of an agent whose flag `--links` has this value, and the links that it knows.
struct Scene {
    agent: Agent,
    changed: Notify,
    known: HashMap<u32, Link>,
}

impl Scene {
    fn new(links: &str) -> Self {
        let config = Config::parse_from(["agent", "--node", "n", "--links", links]);
        let clients = answering_clients(|_, uri, _| panic!("no request is expected: {uri}"));
        let (blocks, _watched) = mpsc::unbounded_channel();
        Self {
            agent: Agent::new(config, clients, store().0, store().0, blocks),
            changed: Notify::new(),
            known: HashMap::new(),
        }
    }

    /// Receives messages of the kernel. Returns the notes of the Events.
    fn receive(&mut self, messages: Vec<RouteNetlinkMessage>) -> Vec<String> {
        let (events, mut queue) = mpsc::channel(EVENTS_QUEUED);
        let listener = Listener {
            agent: &self.agent,
            changed: &self.changed,
            events,
        };
        for message in messages {
            listener.receive(message, &mut self.known);
        }
        std::iter::from_fn(|| queue.try_recv().ok())
            .map(|event| event.note)
            .collect()
    }

    /// The samples that have a link as label, without the name of the label.
    fn metrics(&self) -> Vec<String> {
        let mut registry = Registry::default();
        self.agent.metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let samples = text.lines().filter(|line| line.contains("{link="));
        let mut samples: Vec<String> = samples.map(|line| line.replace("link=", "")).collect();
        samples.sort();
        samples
    }
}

/// An Ethernet link of hardware with this index.
fn hardware(index: u32, name: &str, up: bool) -> LinkMessage {
    let mut link = message(name, LinkLayerType::Ether, None, up);
    link.header.index = index;
    link
}

/// The bond `bond0` with index 7. Its active port has index 4.
fn bond_of_port_4() -> LinkMessage {
    let mut bond = hardware(7, "bond0", true);
    bond.attributes.push(LinkAttribute::LinkInfo(vec![
        Info::Kind(InfoKind::Bond),
        Info::Data(InfoData::Bond(vec![
            InfoBond::Mode(BondMode::ActiveBackup),
            InfoBond::ActivePort(4),
        ])),
    ]));
    bond
}

/// What a bridge sends about its port `link`. Source: `br_fill_ifinfo` in `net/bridge/br_netlink.c`, without `IFLA_LINKINFO`.
fn of_bridge(mut link: LinkMessage) -> LinkMessage {
    link.header.interface_family = AddressFamily::Bridge;
    link.attributes
        .retain(|attribute| !matches!(attribute, LinkAttribute::LinkInfo(_)));
    link.attributes.push(LinkAttribute::Controller(9));
    link
}

#[tokio::test]
async fn a_message_of_a_bridge_about_its_port_changes_nothing() {
    let mut scene = Scene::new("rdma");
    let links = vec![hardware(4, "eth0", true), bond_of_port_4()];
    let known = links.into_iter().map(RouteNetlinkMessage::NewLink).collect();
    assert_eq!(scene.receive(known), [""; 0]);
    let (before, samples) = (scene.known.clone(), scene.metrics());

    let veth_of_a_pod = of_bridge(hardware(12, "veth1", true));
    let notes = scene.receive(vec![
        RouteNetlinkMessage::NewLink(of_bridge(bond_of_port_4())),
        RouteNetlinkMessage::NewLink(veth_of_a_pod),
        RouteNetlinkMessage::DelLink(of_bridge(hardware(4, "eth0", true))),
    ]);
    assert_eq!(notes, [""; 0]);
    assert_eq!(scene.known, before);
    assert_eq!(scene.metrics(), samples);
}

#[tokio::test]
async fn a_link_that_is_gone_or_renamed_leaves_no_metric_under_its_name() {
    let mut scene = Scene::new("eth*");
    let known = [hardware(4, "eth0", true), hardware(5, "eth1", true)];
    let down = [hardware(4, "eth0", false), hardware(5, "eth1", false)];
    let all = known.into_iter().chain(down);
    scene.receive(all.map(RouteNetlinkMessage::NewLink).collect());
    assert_eq!(
        scene.metrics(),
        [
            "link_changes_total{\"eth0\"} 1",
            "link_changes_total{\"eth1\"} 1",
            "link_up{\"eth0\"} 0",
            "link_up{\"eth1\"} 0",
        ]
    );
    scene.receive(vec![RouteNetlinkMessage::DelLink(hardware(4, "eth0", false))]);
    scene.receive(vec![RouteNetlinkMessage::NewLink(hardware(5, "eth2", false))]);
    assert_eq!(scene.metrics(), ["link_up{\"eth2\"} 0"]);
    // `--links` does not name the link any more.
    let veth = |name| {
        let mut link = message(name, LinkLayerType::Ether, Some(InfoKind::Veth), true);
        link.header.index = 6;
        RouteNetlinkMessage::NewLink(link)
    };
    scene.receive(vec![veth("eth3"), veth("veth3")]);
    assert_eq!(scene.metrics(), ["link_up{\"eth2\"} 0"]);
}
