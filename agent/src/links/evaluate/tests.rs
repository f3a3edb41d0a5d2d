// SPDX-License-Identifier: Apache-2.0
use super::*;
use common::netlink::{BondMode, FailOverMac};

/// A node whose links and ports a test defines.
#[derive(Default)]
struct Machine {
    ports: LinkPorts,
    seen: BTreeSet<String>,
}

impl Machine {
    /// Adds an InfiniBand port that has carrier now and had it before.
    fn port(mut self, index: u32, name: &str) -> Self {
        let mut link = Link::new(index, name, LinkLayer::Infiniband);
        link.kind = Some("ipoib".to_owned());
        (link.up, link.carrier) = (true, true);
        self.ports.links.push(link);
        self.state(index, PortLayer::Infiniband, PortState::Active)
            .seen(name)
    }

    fn ethernet(mut self, index: u32, name: &str, has_rdma: bool) -> Self {
        let mut link = Link::new(index, name, LinkLayer::Ethernet);
        (link.up, link.carrier) = (true, true);
        self.ports.links.push(link);
        self = self.seen(name);
        if has_rdma {
            self = self.state(index, PortLayer::Ethernet, PortState::Active);
        }
        self
    }

    /// Adds a bond of these ports. The first one is active.
    fn bond(mut self, index: u32, name: &str, ports: &[u32]) -> Self {
        let mut bond = Link::new(index, name, LinkLayer::Infiniband);
        bond.kind = Some("bond".to_owned());
        (bond.up, bond.carrier) = (true, true);
        bond.info = LinkInfo::Bond {
            mode: BondMode::ActiveBackup,
            active: ports.first().copied(),
            miimon: 100,
            fail_over_mac: FailOverMac::Active,
        };
        self.ports.links.push(bond);
        for port in ports {
            self.link(*port).master = Some(index);
        }
        self.seen(name)
    }

    fn link(&mut self, index: u32) -> &mut Link {
        let mut links = self.ports.links.iter_mut();
        links.find(|link| link.index == index).unwrap()
    }

    fn state(mut self, index: u32, layer: PortLayer, state: PortState) -> Self {
        let (device, number) = (format!("mlx5_{index}"), 1);
        let port = Port {
            device,
            number,
            layer,
            state,
        };
        self.ports.ports.insert(index, port);
        self
    }

    fn seen(mut self, name: &str) -> Self {
        self.seen.insert(name.to_owned());
        self
    }

    fn unseen(mut self, name: &str) -> Self {
        self.seen.remove(name);
        self
    }

    /// Pulls the cable of a port.
    fn pulled(mut self, index: u32) -> Self {
        self.link(index).carrier = false;
        let layer = self.ports.ports.get(&index).map(|port| port.layer);
        match layer {
            Some(layer) => self.state(index, layer, PortState::Down),
            None => self,
        }
    }

    fn set_down(mut self, index: u32) -> Self {
        let link = self.link(index);
        (link.up, link.carrier) = (false, false);
        self
    }

    fn evaluate(&self, scope: &str) -> Option<(bool, &'static str, String)> {
        let evaluator = Evaluator {
            ports: &self.ports,
            scope: &scope.parse().unwrap(),
            seen: &self.seen,
        };
        let status = evaluator.status()?;
        Some((status.healthy, status.reason, status.message))
    }

    #[track_caller]
    fn is(&self, scope: &str, healthy: bool, reason: &'static str, message: &str) {
        assert_eq!(self.evaluate(scope), Some((healthy, reason, message.to_owned())));
    }
}

fn rails() -> Machine {
    Machine::default().port(2, "ib0").port(3, "ib1")
}

fn bonded() -> Machine {
    rails().bond(9, "bond0", &[2, 3])
}

#[test]
fn a_node_is_healthy_while_every_link_has_carrier() {
    rails().is("rdma", true, "LinksUp", "carrier on ib0, ib1");
    bonded().is("rdma", true, "LinksUp", "carrier on bond0 over ib0");
}

#[test]
fn a_rail_without_a_cable_is_reported_with_its_port() {
    let sentence = "ib1 has no carrier: mlx5_3 port 1 is down: check cable and switch port";
    rails().pulled(3).is("rdma", false, "LinkDown", sentence);
}

#[test]
fn the_message_about_a_port_that_is_not_set_up_names_the_subnet_manager() {
    let port = |state| rails().pulled(3).state(3, PortLayer::Infiniband, state);
    let sentence = "ib1 has no carrier: mlx5_3 port 1 has a cable, and no subnet manager has configured it";
    port(PortState::Init).is("rdma", false, "LinkDown", sentence);
    let sentence = "ib1 has no carrier: mlx5_3 port 1 is active and has not joined its partition's group: check the subnet manager";
    port(PortState::Active).is("rdma", false, "LinkDown", sentence);
}

#[test]
fn a_port_that_never_had_carrier_or_is_set_down_does_not_count() {
    let never = rails().pulled(3).unseen("ib1");
    never.is("rdma", true, "LinksUp", "carrier on ib0");
    rails().set_down(3).is("rdma", true, "LinksUp", "carrier on ib0");
    assert_eq!(rails().set_down(2).set_down(3).evaluate("rdma"), None);
}

#[test]
fn a_bond_without_one_of_its_ports_is_degraded() {
    let sentence =
        "bond bond0 over ib0 runs without ib1 (mlx5_3 port 1 is down: check cable and switch port)";
    bonded().pulled(3).is("rdma", true, "BondDegraded", sentence);
    let unused = bonded().pulled(3).unseen("ib1");
    unused.is("rdma", true, "LinksUp", "carrier on bond0 over ib0");
}

#[test]
fn a_bond_without_a_working_port_is_down_and_lists_its_ports() {
    let dead = bonded().pulled(2).pulled(3).pulled(9);
    let sentence = "bond0 has no carrier on any of its ports: ib0 (mlx5_2 port 1 is down: check cable and switch port), ib1 (mlx5_3 port 1 is down: check cable and switch port)";
    dead.is("rdma", false, "LinkDown", sentence);
}

#[test]
fn one_message_reports_a_lost_rail_and_a_degraded_bond() {
    let both = bonded().pulled(3).port(4, "ib2").pulled(4);
    let sentence = "ib2 has no carrier: mlx5_4 port 1 is down: check cable and switch port; bond bond0 over ib0 runs without ib1 (mlx5_3 port 1 is down: check cable and switch port)";
    both.is("rdma", false, "LinkDown", sentence);
}

#[test]
fn an_ethernet_link_counts_only_if_it_carries_rdma() {
    let node = Machine::default()
        .ethernet(2, "roce0", true)
        .ethernet(3, "lom0", false);
    node.is("rdma", true, "LinksUp", "carrier on roce0");
    let node = node.pulled(3);
    node.is("rdma", true, "LinksUp", "carrier on roce0");
    let sentence = "roce0 has no carrier: mlx5_2 port 1 is down: check cable and switch port";
    node.pulled(2).is("rdma", false, "LinkDown", sentence);
    assert_eq!(
        Machine::default().ethernet(3, "lom0", false).evaluate("rdma"),
        None
    );
}

#[test]
fn a_bond_counts_if_one_of_its_ports_carries_rdma() {
    let mut node = Machine::default()
        .ethernet(2, "eth0", true)
        .ethernet(3, "eth1", true)
        .bond(9, "bond0", &[2, 3]);
    node.link(9).layer = LinkLayer::Ethernet;
    node.is("rdma", true, "LinksUp", "carrier on bond0 over eth0");
}

#[test]
fn a_child_that_returned_from_a_pod_does_not_count() {
    let mut node = rails().port(8, "net1").pulled(8);
    node.link(8).parent = Some(2);
    node.is("rdma", true, "LinksUp", "carrier on ib0, ib1");
}

#[test]
fn links_that_match_a_pattern_count_whatever_their_kind_or_past_state() {
    let mut node = rails().ethernet(4, "lom0", false).pulled(4).unseen("lom0");
    node.link(4).kind = Some("veth".to_owned());
    node.is(
        "lom*",
        false,
        "LinkDown",
        "lom0 has no carrier: check cable and switch port",
    );
    let node = node.set_down(4);
    node.is(
        "ib0,lom0",
        false,
        "LinkDown",
        "lom0 has no carrier: it is set down",
    );
    assert_eq!(node.evaluate("ib7"), None);
    assert_eq!(node.evaluate("none"), None);
}

#[test]
fn links_without_a_cable_or_set_down_are_not_expected_to_have_carrier() {
    let node = bonded()
        .port(4, "never")
        .pulled(4)
        .unseen("never")
        .port(5, "down")
        .set_down(5)
        .ethernet(6, "lom0", false)
        .pulled(3);
    let expected = |scope: &str| {
        let evaluator = Evaluator {
            ports: &node.ports,
            scope: &scope.parse().unwrap(),
            seen: &node.seen,
        };
        evaluator.expected().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(expected("rdma"), ["bond0", "ib0", "ib1"]);
    assert_eq!(expected("bond0"), ["bond0", "ib0", "ib1"]);
    assert_eq!(expected("down,lom0"), ["down", "lom0"]);
    assert!(expected("none").is_empty());
}

#[test]
fn only_rdma_links_with_carrier_are_remembered() {
    let node = rails().pulled(3).ethernet(4, "lom0", false);
    let evaluator = Evaluator {
        ports: &node.ports,
        scope: &LinkScope::Rdma,
        seen: &BTreeSet::new(),
    };
    assert_eq!(evaluator.carrying(), ["ib0"]);
}
