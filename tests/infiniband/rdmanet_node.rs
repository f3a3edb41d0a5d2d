// SPDX-License-Identifier: Apache-2.0
//! `rdmanet node` on a node with HCAs: its output matches the node.

use crate::bond::bonded;
use crate::fabric::{cable, network, run, without_subnet_manager};
use clap::Parser;
use cli::args::Args;
use cli::output::{Outcome, Output};
use tests::{Node, Value, json};

pub(crate) fn node_output(node: &Node) -> Output {
    let (state, data) = (node.path("state"), node.path("rdma-ipam"));
    let mut args = vec!["rdmanet".into(), "node".into()];
    args.extend([
        "--state".into(),
        state.into_os_string(),
        "--data-dir".into(),
        data.into_os_string(),
    ]);
    cli::run(&Args::parse_from(args)).unwrap()
}

pub(crate) fn port<'a>(answer: &'a Output, hca: &str) -> &'a Value {
    let ports = answer.json["ports"].as_array().unwrap();
    ports.iter().find(|port| port["hca"] == hca).unwrap()
}

fn masters(answer: &Output) -> Vec<&Value> {
    let masters = answer.json["use"]["masters"].as_array().unwrap();
    masters.iter().map(|master| &master["name"]).collect()
}

#[test]
fn rdmanet_node_lists_ports_partitions_and_their_pods() {
    run(|node| {
        let pod = node.pod();
        let conf = network(node, &json!({"master": "ib1"}));
        pod.attach(&conf, "net1");
        let answer = node_output(node);
        assert_eq!(masters(&answer), ["ib0", "ib1", "ib2"], "{}", answer.text);
        let ib1 = port(&answer, "softib1");
        assert_eq!(
            (&ib1["state"], &ib1["physicalState"], &ib1["netdev"]),
            (&json!("Active"), &json!("LinkUp"), &json!("ib1"))
        );
        assert_eq!(ib1["pkeys"], json!(["0xffff", "0x8001"]));
        assert_eq!(ib1["usedBy"][0]["containerId"], json!(pod.id), "{}", answer.json);
        assert_eq!(ib1["usedBy"][0]["network"], "net-a");
        assert!(ib1["lid"].as_u64().unwrap() > 0);
        assert_eq!(port(&answer, "softib0")["usedBy"], json!([]));
        assert!(answer.text.contains("1 attachment"), "{}", answer.text);
        pod.detach(&conf, "net1");
        assert_eq!(port(&node_output(node), "softib1")["usedBy"], json!([]));
    });
}

#[test]
fn rdmanet_node_reports_ports_without_a_cable_as_unusable() {
    run(|node| {
        cable(1, false);
        let answer = node_output(node);
        assert_eq!(masters(&answer), ["ib0", "ib2"], "{}", answer.text);
        let finding = &answer.json["findings"][0];
        assert_eq!(
            (&finding["level"], &finding["subject"]),
            (&json!("warn"), &json!("softib1/1")),
            "{}",
            answer.text
        );
        cable(0, false);
        cable(2, false);
        let answer = node_output(node);
        assert_eq!(answer.outcome, Outcome::Found);
        assert!(
            answer
                .text
                .contains("pods can use no link with an RDMA device now"),
            "{}",
            answer.text
        );
        for hca in 0..3 {
            cable(hca, true);
        }
    });
}

#[test]
fn rdmanet_node_reports_a_port_without_a_subnet_manager_and_names_the_remedy() {
    run(|node| {
        without_subnet_manager(1);
        let answer = node_output(node);
        assert_eq!(answer.outcome, Outcome::Found);
        assert_eq!(masters(&answer), ["ib0", "ib2"], "{}", answer.text);
        let ib1 = port(&answer, "softib1");
        assert_eq!(
            (&ib1["state"], &ib1["physicalState"], &ib1["smLid"]),
            (&json!("Initializing"), &json!("LinkUp"), &json!(0))
        );
        let finding = &answer.json["findings"][0];
        assert_eq!(
            (&finding["level"], &finding["subject"]),
            (&json!("fail"), &json!("softib1/1")),
            "{}",
            answer.text
        );
        for piece in ["no subnet manager has configured it", "start a subnet manager"] {
            assert!(answer.text.contains(piece), "{piece}: {}", answer.text);
        }
        cable(1, true);
        let answer = node_output(node);
        assert_eq!(masters(&answer), ["ib0", "ib1", "ib2"], "{}", answer.text);
    });
}

#[test]
fn rdmanet_node_shows_the_active_port_of_a_bond_and_host_children() {
    run(|node| {
        node.ip("link add link ib2 name ib2.8001 type ipoib pkey 0x8001");
        bonded(node, || {
            let answer = node_output(node);
            assert_eq!(answer.json["bonds"][0]["activeSlave"], "ib0", "{}", answer.text);
            assert!(
                answer.text.contains("bond0 (active-backup): ib0* ib1"),
                "{}",
                answer.text
            );
            assert!(
                answer.text.contains("NCCL_IB_HCA==softib0:1,softib1:1"),
                "{}",
                answer.text
            );
            assert_eq!(
                port(&answer, "softib2")["usedBy"],
                json!([{"kind": "link", "name": "ib2.8001"}])
            );
        });
        node.ip("link del ib2.8001");
    });
}

/// The commands of docs/cli.md that record a node.
fn recording() -> &'static str {
    const PAGE: &str = include_str!("../../docs/cli.md");
    let (_, after) = PAGE.split_once("```sh job:infiniband\n").unwrap();
    after.split_once("```").unwrap().0
}

#[test]
fn a_recorded_node_shows_the_same_ports_as_the_live_node() {
    run(|node| {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("record");
        let text = format!("cd {}\n{}", directory.path().display(), recording());
        std::fs::write(&script, text).unwrap();
        let output = node.exec("bash", script.to_str().unwrap());
        assert!(output.status.success(), "{output:?}");
        let recorded = directory.path().join("node1");
        let recorded = ["rdmanet", "node", "--from", recorded.to_str().unwrap()];
        let recorded = cli::run(&Args::parse_from(recorded)).unwrap();
        let mut live = node_output(node).json;
        // A record does not contain the name of a link's driver (docs/cli.md).
        for port in live["ports"].as_array_mut().unwrap() {
            port["children"] = json!("moved");
        }
        for key in ["ports", "use"] {
            assert_eq!(recorded.json[key], live[key], "{key}: {}", recorded.text);
        }
    });
}
