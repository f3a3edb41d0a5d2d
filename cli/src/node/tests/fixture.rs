// SPDX-License-Identifier: Apache-2.0
//! A node of ports, written as a record (docs/cli.md).

use super::look;
use crate::output::Output;
use serde_json::{Value, json};
use std::fmt::Write;
use std::fs;
use tempfile::TempDir;

/// A port of a device of its own: RDMA device `mlx5_N` at PCI bus N, link `ibN` or `ensN`.
#[derive(Clone, Debug)]
pub(super) struct FixturePort {
    pub(super) number: u8,
    pub(super) ethernet: bool,
    /// In Gbit/s.
    pub(super) rate: u32,
    /// The flags of the link.
    pub(super) flags: &'static [&'static str],
    /// The first half of the first GID.
    pub(super) prefix: &'static str,
    /// An address of the node on the link.
    pub(super) address: Option<&'static str>,
    /// The bond that the link belongs to.
    pub(super) bond: Option<&'static str>,
}

const UP: &[&str] = &["UP", "LOWER_UP"];

impl FixturePort {
    pub(super) fn infiniband(number: u8, rate: u32) -> Self {
        Self {
            number,
            ethernet: false,
            rate,
            flags: UP,
            prefix: "fe80:0000:0000:0000",
            address: None,
            bond: None,
        }
    }

    pub(super) fn ethernet(number: u8, rate: u32) -> Self {
        Self {
            ethernet: true,
            // A global address, so that RoCE v2 works beyond its segment.
            prefix: "2001:0db8:0000:0000",
            ..Self::infiniband(number, rate)
        }
    }

    fn link(&self) -> String {
        let kind = if self.ethernet { "ens" } else { "ib" };
        format!("{kind}{}", self.number)
    }

    /// As the drivers report it: an Ethernet port is active if its link is up and has carrier.
    fn state(&self) -> [&'static str; 2] {
        if self.ethernet && self.flags != UP {
            ["1: DOWN", "3: Disabled"]
        } else {
            ["4: ACTIVE", "5: LinkUp"]
        }
    }

    fn sysfs(&self) -> String {
        let (n, link) = (self.number, self.link());
        let device = format!("devices/pci0000:{n:02x}/0000:{n:02x}:00.0");
        let layer = if self.ethernet { "Ethernet" } else { "InfiniBand" };
        let [state, phys_state] = self.state();
        let mut text =
            format!("class/infiniband/mlx5_{n}/device -> {device}\nclass/net/{link}/device -> {device}\n");
        let port = format!("class/infiniband/mlx5_{n}/ports/1");
        for (file, value) in [
            (
                format!("class/infiniband/mlx5_{n}/node_guid"),
                format!("0000:0000:0000:00{n:02x}"),
            ),
            (format!("{port}/link_layer"), layer.to_owned()),
            (format!("{port}/state"), state.to_owned()),
            (format!("{port}/phys_state"), phys_state.to_owned()),
            (format!("{port}/rate"), format!("{} Gb/sec (4X EDR)", self.rate)),
            (format!("{port}/sm_lid"), "0x1".to_owned()),
            (
                format!("{port}/gids/0"),
                format!("{}:0000:0000:0000:00{n:02x}", self.prefix),
            ),
            (format!("class/net/{link}/ifindex"), format!("{}", 10 + n)),
            (format!("class/net/{link}/dev_port"), "0".to_owned()),
        ] {
            let _ = writeln!(text, "{file} = {value}");
        }
        text
    }

    fn address_json(&self) -> Value {
        let n = self.number;
        let (kind, address) = if self.ethernet {
            ("ether", format!("02:00:00:00:00:{n:02x}"))
        } else {
            let prefix = "00:00:10:49:fe:80:00:00:00:00:00:00";
            ("infiniband", format!("{prefix}:00:00:00:00:00:00:00:{n:02x}"))
        };
        let addresses = self.address.iter();
        let addresses = addresses.map(|ip| json!({"local": ip, "prefixlen": 24, "scope": "global"}));
        json!({
            "ifindex": 10 + n, "ifname": self.link(), "link_type": kind, "address": address, "flags": self.flags,
            "master": self.bond, "addr_info": addresses.collect::<Vec<_>>(),
        })
    }
}

/// The record of a node with these ports, and with `bonds` as further links.
pub(super) fn record(ports: &[FixturePort], bonds: &[Value], sysfs: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut links: Vec<Value> = ports.iter().map(FixturePort::address_json).collect();
    links.extend_from_slice(bonds);
    let sysfs: String = ports
        .iter()
        .map(FixturePort::sysfs)
        .chain([sysfs.to_owned()])
        .collect();
    fs::write(directory.path().join("address.json"), json!(links).to_string()).unwrap();
    fs::write(directory.path().join("route.json"), "[]").unwrap();
    fs::write(directory.path().join("sysfs"), sysfs).unwrap();
    directory
}

/// What `rdmanet node` shows of a node with these ports.
pub(super) fn node(ports: &[FixturePort]) -> Output {
    look(record(ports, &[], "").path())
}
