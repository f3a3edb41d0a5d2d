// SPDX-License-Identifier: Apache-2.0
//! The findings about a port, and their remedies.

use super::fixture::{FixturePort, node};
use super::{changed, findings, v100};
use crate::output::Output;
use std::fs;
use std::path::Path;

/// The remedy of the finding about `subject`.
fn remedy<'a>(answer: &'a Output, subject: &str) -> &'a str {
    let all = answer.json["findings"].as_array().unwrap();
    let found = all.iter().find(|finding| finding["subject"] == subject);
    found.unwrap()["remedy"].as_str().unwrap()
}

/// An Ethernet port whose link has these flags, and one that is up.
fn with_flags(flags: &'static [&'static str]) -> Output {
    let port = FixturePort {
        flags,
        ..FixturePort::ethernet(1, 100)
    };
    node(&[port, FixturePort::ethernet(2, 100)])
}

#[test]
fn an_ethernet_port_whose_link_is_set_down_needs_the_link_and_no_cable() {
    let answer = with_flags(&[]);
    let found = findings(&answer, "warn");
    assert!(
        found[0].starts_with("mlx5_1/1: is down, because its link ens1 is set down"),
        "{found:?}"
    );
    assert!(remedy(&answer, "mlx5_1/1").starts_with("ip link set dev ens1 up;"));
}

#[test]
fn an_ethernet_port_without_carrier_needs_a_cable_and_no_mlxlink() {
    let answer = with_flags(&["UP"]);
    let found = findings(&answer, "warn");
    assert!(
        found[0].starts_with("mlx5_1/1: is down: its link ens1 is set up and has no carrier"),
        "{found:?}"
    );
    let remedy = remedy(&answer, "mlx5_1/1");
    assert!(remedy.starts_with("check cable, transceiver"), "{remedy}");
    assert!(!answer.text.contains("mlxlink"), "{}", answer.text);
}

#[test]
fn a_virtual_function_without_guid_gets_two_guids_on_infiniband() {
    let no_guid = (
        "mlx5_1/node_guid = 506b:4b03:00aa:1001",
        Some("mlx5_1/node_guid = 0000:0000:0000:0000"),
    );
    let answer = changed(&v100(), &[no_guid]);
    let remedy = remedy(&answer, "mlx5_1/1");
    for command in [
        "ip link set dev PF vf N node_guid GUID;",
        "ip link set dev PF vf N port_guid GUID;",
        "echo 0000:3b:00.1 >/sys/bus/pci/devices/0000:3b:00.1/driver/unbind;",
        "echo 0000:3b:00.1 >/sys/bus/pci/drivers_probe",
    ] {
        assert!(remedy.contains(command), "no {command:?} in: {remedy}");
    }
}

/// The kernel refuses a GUID for an Ethernet link, and no subnet manager is involved.
#[test]
fn a_virtual_function_without_guid_gets_a_mac_on_ethernet() {
    let answer = node(&[FixturePort::ethernet(0, 100), FixturePort::ethernet(2, 100)]);
    let found = findings(&answer, "warn");
    assert!(found[0].starts_with("mlx5_0/1: its node GUID is 0"), "{found:?}");
    assert!(!found[0].contains("subnet manager"), "{found:?}");
    let remedy = remedy(&answer, "mlx5_0/1");
    assert!(
        remedy.starts_with("ip link set dev PF vf N mac ADDRESS;") && !remedy.contains("guid"),
        "{remedy}"
    );
}

/// Without `-a`, modprobe takes the words after the first module as parameters of that module.
#[test]
fn every_modprobe_of_a_remedy_without_a_names_one_module() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/node");
    let sources = ["check.rs", "check/live.rs"].map(|file| fs::read_to_string(directory.join(file)).unwrap());
    assert!(sources.iter().all(|source| source.contains("modprobe ")));
    let commands = sources
        .iter()
        .flat_map(|source| source.split("modprobe ").skip(1));
    let commands: Vec<&str> = commands
        .map(|rest| rest.split([';', '"']).next().unwrap())
        .collect();
    assert!(commands.len() > 2, "{commands:?}");
    for command in commands {
        let modules = command.split_whitespace().count();
        assert!(command.starts_with("-a ") || modules == 1, "modprobe {command}");
    }
}
