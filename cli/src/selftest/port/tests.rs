// SPDX-License-Identifier: Apache-2.0
use super::super::uses::queue_pairs::QueuePairs;
use super::*;
use cni_ipoib::rdma::users::Program;
use cni_ipoib::select::{Load, RdmaPort};
use common::netlink::{Creator, QueuePair};

fn candidate(name: &str) -> Candidate {
    Candidate {
        name: name.to_owned(),
        altnames: Vec::new(),
        layer: LinkLayer::Infiniband,
        port: Some(RdmaPort {
            device: format!("mlx5_{name}"),
            number: 1,
            rate_mbps: None,
            subnet_prefix: None,
            pkeys: Vec::new(),
        }),
        pci: None,
        numa_node: None,
        problem: None,
        aside: None,
        load: Load::default(),
    }
}

fn node(candidates: Vec<Candidate>) -> NodeFacts {
    NodeFacts {
        name: "node".to_owned(),
        shared: Some(true),
        candidates,
        ..NodeFacts::default()
    }
}

fn refused(facts: &NodeFacts, wanted: Option<&str>, uses: &Uses) -> String {
    choose(facts, wanted, uses).unwrap_err().to_string()
}

#[test]
fn the_first_spare_port_is_chosen_with_its_device() {
    let facts = node(vec![candidate("ib0"), candidate("ib1")]);
    let uses = Uses::with("ib0", "has the node's address 10.0.0.1/24");
    let port = choose(&facts, None, &uses).unwrap();
    assert_eq!(
        (
            port.master.as_str(),
            port.rdma.as_ref().map(|rdma| rdma.device.as_str())
        ),
        ("ib1", Some("mlx5_ib1"))
    );
}

#[test]
fn the_second_port_of_a_device_is_chosen_with_its_number() {
    let mut second = candidate("ib1");
    second.port.as_mut().unwrap().number = 2;
    let port = choose(&node(vec![second]), None, &Uses::default()).unwrap();
    assert_eq!(port.rdma.unwrap().number, 2);
}

#[test]
fn a_port_that_the_node_or_a_pod_uses_is_refused_with_the_reason() {
    type Change = fn(&mut Candidate);
    let changes: [(&str, Change); 4] = [
        ("has 2 pods on it", |port| port.load.all = 2),
        ("is a port of bond0", |port| {
            port.aside = Some(Aside::Unasked("is a port of bond0".to_owned()));
        }),
        ("carries nothing", |port| {
            port.problem = Some("carries nothing".to_owned());
        }),
        ("is no RDMA link", |port| port.port = None),
    ];
    for (why, change) in changes {
        let mut port = candidate("ib0");
        change(&mut port);
        let error = refused(&node(vec![port]), Some("ib0"), &Uses::default());
        assert!(error.contains(why) && error.contains("--master"), "{error}");
    }
    let uses = Uses::with("ib0", "has a route of the node: default");
    for wanted in [Some("ib0"), None] {
        let error = refused(&node(vec![candidate("ib0")]), wanted, &uses);
        assert!(error.contains("ib0 has a route of the node"), "{error}");
    }
}

#[test]
fn a_port_that_a_program_uses_by_rdma_is_refused_with_the_program() {
    let facts = node(vec![candidate("ib0"), candidate("ib1")]);
    let of_program = |port: u32| {
        let pair = QueuePair {
            port: Some(port),
            creator: Creator::Program(Some(4711)),
        };
        let program = Program {
            name: "ib_write_bw".to_owned(),
            process: 4710,
        };
        let mut uses = Uses::default();
        uses.rdma = QueuePairs {
            devices: [("mlx5_ib0".to_owned(), Ok(vec![pair]))].into(),
            programs: [(4711, program)].into(),
        };
        uses
    };
    let uses = of_program(1);
    let error = refused(&facts, Some("ib0"), &uses);
    let why = "ib0 has a queue pair of the program ib_write_bw (process 4710): end it first";
    assert!(error.contains(why), "{error}");
    assert_eq!(choose(&facts, None, &uses).unwrap().master, "ib1");
    let port = choose(&facts, None, &of_program(2)).unwrap();
    assert_eq!(port.master, "ib0", "the program uses another port of the device");
}

#[test]
fn a_port_whose_queue_pairs_are_unknown_is_used_only_if_it_is_named() {
    let facts = node(vec![candidate("ib0"), candidate("ib1")]);
    let mut uses = Uses::default();
    uses.rdma = QueuePairs {
        devices: [("mlx5_ib0".to_owned(), Err("ENOSYS".to_owned()))].into(),
        ..QueuePairs::default()
    };
    assert_eq!(choose(&facts, None, &uses).unwrap().master, "ib1");
    assert_eq!(choose(&facts, Some("ib0"), &uses).unwrap().master, "ib0");
    let error = refused(&node(vec![candidate("ib0")]), None, &uses);
    let why = "ib0 may be in use: the kernel did not list the queue pairs of mlx5_ib0: ENOSYS; it is used only if --master \
               names it";
    assert!(error.contains(why), "{error}");
}

#[test]
fn an_ethernet_port_is_used_only_if_it_is_named() {
    let mut port = candidate("ens1");
    port.layer = LinkLayer::Ethernet;
    let facts = node(vec![port]);
    let error = refused(&facts, None, &Uses::default());
    assert!(error.contains("is Ethernet"), "{error}");
    let port = choose(&facts, Some("ens1"), &Uses::default()).unwrap();
    assert_eq!((port.master.as_str(), port.way), ("ens1", None));
}

#[test]
fn a_link_that_does_not_exist_is_refused() {
    let error = refused(&node(Vec::new()), Some("ib7"), &Uses::default());
    assert!(error.contains("ib7: there is no such link"), "{error}");
}

#[test]
fn ports_of_one_card_have_different_networks() {
    let [first, second] = ["52:54:00:ff:fe:00:01:fe", "52:54:00:ff:fe:00:01:ff"].map(slot);
    assert_eq!((first, second), (0x1fe, 0x1ff));
    assert_eq!(slot(""), 0);
}
