// SPDX-License-Identifier: Apache-2.0
//! Real nodes, rebuilt in the layout of the mlx5 driver from their owners' published output (`ibstat`, `ibdev2netdev`).
//! The A100 node is the same as in the tests of `cni-ipoib` that choose a master.

mod advice;
mod findings;
mod fixture;
mod in_pods;
mod live;
mod recording;

use crate::args::Args;
use crate::output::{Outcome, Output};
use clap::Parser;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

fn a100() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cni-ipoib/src/select/tests/a100")
}

fn v100() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/node/tests/v100")
}

fn look(directory: &Path) -> Output {
    let args = ["rdmanet", "node", "--from", directory.to_str().unwrap()];
    crate::run(&Args::parse_from(args)).unwrap()
}

/// The node of `directory` with replaced lines of its record. If `with` is `None`, the line is removed.
fn changed(directory: &Path, changes: &[(&str, Option<&str>)]) -> Output {
    let copy = tempfile::tempdir().unwrap();
    for file in ["sysfs", "address.json", "route.json"] {
        let mut text = fs::read_to_string(directory.join(file)).unwrap();
        for (what, with) in changes {
            let kept = text.lines().filter_map(|line| match with {
                None => (!line.contains(what)).then(|| line.to_owned()),
                Some(with) => Some(line.replace(what, with)),
            });
            text = kept.map(|line| line + "\n").collect();
        }
        fs::write(copy.path().join(file), text).unwrap();
    }
    look(copy.path())
}

fn findings(answer: &Output, level: &str) -> Vec<String> {
    let all = answer.json["findings"].as_array().unwrap().iter();
    let of_level = all.filter(|finding| finding["level"] == level);
    of_level
        .map(|finding| {
            format!(
                "{}: {}",
                finding["subject"].as_str().unwrap(),
                finding["text"].as_str().unwrap()
            )
        })
        .collect()
}

fn row<'t>(answer: &'t Output, port: &str) -> Vec<&'t str> {
    let line = answer.text.lines().find(|line| line.starts_with(port)).unwrap();
    line.split("  ")
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .collect()
}

#[test]
fn the_report_of_the_a100_node_names_the_only_usable_infiniband_port() {
    let answer = look(&a100());
    let rows = [
        "mlx5_0/1|MT4123|InfiniBand|Down|Disabled|10 Gb/s|65535|ibp27s0|-|0xffff|0|moved|-|no: down",
        "mlx5_1/1|MT4123|InfiniBand|Active|LinkUp|200 Gb/s|3|ibp75s0|-|0xffff|1|moved|-|yes",
    ];
    assert_eq!(
        [
            row(&answer, "mlx5_0/1").join("|"),
            row(&answer, "mlx5_1/1").join("|")
        ],
        rows
    );
    assert_eq!(
        row(&answer, "mlx5_bond_0/1")[7..9],
        ["bond0", "bond0: ens1f0np0 ens1f1np1"]
    );
    assert!(answer.text.contains(r#"USE   "mode": "ipoib", "master": "ibp75s0"  or, the same on every node:  "master": {"linkLayer": "InfiniBand"}"#));
    assert!(answer.text.contains("NCCL_IB_HCA==mlx5_1:1\n"), "{}", answer.text);
    let note = "NCCL skips ports that are not active";
    assert!(answer.text.contains(note), "{}", answer.text);
    assert_eq!(
        findings(&answer, "warn"),
        ["mlx5_0/1: is down (Disabled): no cable, or disabled; programs that select mlx5_0 cannot send"]
    );
    assert_eq!(
        findings(&answer, "info"),
        [
            "mlx5_bond_0/1: is a 10 Gb/s Ethernet LAG of ens1f0np0 and ens1f1np1, not a bond of InfiniBand ports: \
          bond0 carries the node's default route; name it if pods may share it"
        ]
    );
    assert_eq!(
        answer.outcome,
        Outcome::Fine,
        "a port without a cable is not an error of the node"
    );
}

#[test]
fn the_report_of_the_v100_node_names_both_ports_as_usable() {
    let answer = look(&v100());
    assert_eq!(findings(&answer, "warn"), Vec::<String>::new());
    let masters: Vec<&Value> = answer.json["use"]["masters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["name"])
        .collect();
    assert_eq!(masters, ["ibp59s0f0", "ibp59s0f1"]);
    assert!(
        answer
            .text
            .contains("2 InfiniBand links that are up and are no ports of a bond"),
        "{}",
        answer.text
    );
    assert!(answer.text.contains("namespaces share the RDMA devices"));
}

#[test]
fn the_gids_are_listed_in_the_format_of_show_gids() {
    let answer = look(&a100());
    assert!(
        answer.text.contains(
            "mlx5_bond_0/1  3      0000:0000:0000:0000:0000:ffff:0a14:0015  10.20.0.21  v2   bond0\n"
        )
    );
    assert!(
        !answer.text.contains("fe80:0000:0000:0000:b859"),
        "InfiniBand children only on request"
    );
    assert_eq!(answer.json["ports"][2]["gids"][3]["ipv4"], json!("10.20.0.21"));
    assert_eq!(answer.json["ports"][2]["gids"][2]["version"], json!("v1"));
}

#[test]
fn a_port_that_no_subnet_manager_has_set_up_is_a_fault() {
    let answer = changed(
        &v100(),
        &[(
            "mlx5_1/ports/1/state = 4: ACTIVE",
            Some("mlx5_1/ports/1/state = 2: INIT"),
        )],
    );
    assert_eq!(answer.outcome, Outcome::Found);
    assert!(findings(&answer, "fail")[0].starts_with("mlx5_1/1: has a physical link, and no subnet manager"));
    assert_eq!(row(&answer, "mlx5_1/1")[3], "Initializing");
    assert_eq!(answer.json["use"]["masters"].as_array().unwrap().len(), 1);
}

/// Asserts that the V100 node with these changes has a finding of `level` that contains `sentence`.
#[track_caller]
fn fault(changes: &[(&str, Option<&str>)], level: &str, sentence: &str) {
    let answer = changed(&v100(), changes);
    let found = findings(&answer, level);
    assert!(
        found.iter().any(|finding| finding.contains(sentence)),
        "{sentence}: {}",
        answer.text
    );
    assert_eq!(
        answer.outcome == Outcome::Found,
        level == "fail",
        "{}",
        answer.text
    );
}

#[test]
fn a_fault_of_a_port_is_reported_for_that_port() {
    let polling = [
        (
            "mlx5_1/ports/1/phys_state = 5: LinkUp",
            Some("mlx5_1/ports/1/phys_state = 2: Polling"),
        ),
        (
            "mlx5_1/ports/1/state = 4: ACTIVE",
            Some("mlx5_1/ports/1/state = 1: DOWN"),
        ),
    ];
    fault(
        &polling,
        "warn",
        "mlx5_1/1: is down and polls for a link partner (Polling)",
    );
    let slow = (
        "mlx5_0/ports/1/rate = 100 Gb/sec (4X EDR)",
        Some("mlx5_0/ports/1/rate = 56 Gb/sec (4X FDR)"),
    );
    fault(
        &[slow],
        "warn",
        "mlx5_0/1: runs at 56 Gb/s, another port of the same model at 100 Gb/s",
    );
    fault(
        &[("ports/1/sm_lid = 0x1", Some("ports/1/sm_lid = 0x0"))],
        "warn",
        "is Active and has no address of a subnet manager (SM LID 0)",
    );
    fault(
        &[("pkeys/0 = 0xffff", Some("pkeys/0 = 0x7fff"))],
        "warn",
        "limited member of all its partitions",
    );
    let no_guid = (
        "mlx5_1/node_guid = 506b:4b03:00aa:1001",
        Some("mlx5_1/node_guid = 0000:0000:0000:0000"),
    );
    fault(&[no_guid], "fail", "mlx5_1/1: its node GUID is 0");
}

#[test]
fn a_missing_module_or_link_of_the_node_is_reported_as_a_fault() {
    fault(
        &[("module/ib_ipoib", None)],
        "fail",
        "ib_ipoib: this kernel module is not loaded: InfiniBand ports have no links",
    );
    fault(
        &[("\"UP\", ", Some(""))],
        "fail",
        "node: pods can use no link with an RDMA device now",
    );
    let elsewhere = (
        "\"ifname\": \"ibp59s0f1\", \"link_type\": \"infiniband\"",
        Some("\"ifname\": \"x\", \"link_type\": \"none\""),
    );
    fault(
        &[("class/net/ibp59s0f1", None), elsewhere],
        "fail",
        "mlx5_1/1: is Active and has no IPoIB link",
    );
}

#[test]
fn a_bond_of_infiniband_ports_is_reported_with_its_active_port() {
    let bond = r#"[{"ifindex": 9, "ifname": "bond0", "link_type": "infiniband", "address": "00:00:10:49:fe:80:00:00:00:00:00:00:50:6b:4b:03:00:aa:10:01",
        "flags": ["UP", "LOWER_UP"], "linkinfo": {"info_kind": "bond", "info_data": {"mode": "active-backup", "active_slave": "ibp59s0f1", "miimon": 0}}},"#;
    let bond = bond.replace('\n', " ");
    let answer = changed(
        &v100(),
        &[
            (
                "  {\"ifindex\": 1,",
                Some(&format!("{}{{\"ifindex\": 1,", &bond[1..])),
            ),
            (
                "\"ifname\": \"ibp59s0f0\",",
                Some("\"ifname\": \"ibp59s0f0\", \"master\": \"bond0\","),
            ),
            (
                "\"ifname\": \"ibp59s0f1\",",
                Some("\"ifname\": \"ibp59s0f1\", \"master\": \"bond0\","),
            ),
            (
                "class/net/lo/ifindex = 1",
                Some("class/net/bond0/bonding/arp_interval = 0"),
            ),
        ],
    );
    assert_eq!(
        row(&answer, "mlx5_0/1")[8],
        "bond0 (active-backup): ibp59s0f0 ibp59s0f1*"
    );
    assert_eq!(
        findings(&answer, "fail"),
        [
            "bond0: monitors its ports neither by carrier (miimon 0) nor by ARP (arp_interval 0), so it does not fail over"
        ]
    );
    assert!(findings(&answer, "info")[0].contains("carries IP only, over ibp59s0f1"));
}

#[test]
fn an_incomplete_record_of_a_node_is_rejected_with_the_missing_file() {
    let directory = tempfile::tempdir().unwrap();
    let args = ["rdmanet", "node", "--from", directory.path().to_str().unwrap()];
    let error = crate::run(&Args::parse_from(args)).unwrap_err().to_string();
    assert!(
        error.contains("address.json") && error.contains("docs/cli.md"),
        "{error}"
    );
}

#[test]
fn a_node_without_rdma_is_reported_without_a_fault() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("sysfs"), "").unwrap();
    for file in ["address.json", "route.json"] {
        fs::write(directory.path().join(file), "[]").unwrap();
    }
    let answer = look(directory.path());
    assert!(
        answer.text.contains("no RDMA device") && answer.outcome == Outcome::Fine,
        "{}",
        answer.text
    );
}
