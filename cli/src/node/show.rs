// SPDX-License-Identifier: Apache-2.0
//! Shows the node as text, with the terms of `ibstat`, `ibdev2netdev` and `show_gids`, and as JSON.

use super::advice::{Advice, Master, Suitability, nccl_ib_hca, suitability};
use super::attachments::{InPod, User};
use super::facts::{NodeFacts, PortFacts};
use crate::output::{Finding, WIDTH};
use crate::table::{Table, wrapped};
use crate::terminal;
use common::rdma::{Gid, PortLayer, PortState};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Formats Mbit/s as Gb/s.
pub fn gbits(mbps: u32) -> String {
    match (mbps / 1000, mbps % 1000 / 100) {
        (whole, 0) => format!("{whole} Gb/s"),
        (whole, tenths) => format!("{whole}.{tenths} Gb/s"),
    }
}

impl PortFacts {
    /// `mlx5_0/1`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.device.name, self.port.number)
    }
}

/// The spelling of `ibstat`.
fn state(state: PortState) -> &'static str {
    match state {
        PortState::Down => "Down",
        PortState::Init => "Initializing",
        PortState::Armed => "Armed",
        PortState::Active => "Active",
        PortState::ActiveDefer => "ActiveDefer",
        PortState::Unknown => "-",
    }
}

/// The text.
pub fn text(facts: &NodeFacts, advice: &Advice, findings: &[Finding], all_gids: bool) -> String {
    let mut text = String::new();
    let devices: BTreeSet<&str> = facts.ports.iter().map(|port| port.device.name.as_str()).collect();
    let shared = match facts.shared {
        Some(true) => "; namespaces share the RDMA devices",
        Some(false) => "; each RDMA device is in one namespace (exclusive)",
        None => "",
    };
    let hidden = facts.hidden.len();
    let count = match devices.len() + hidden {
        0 => "no RDMA device".to_owned(),
        1 => "1 RDMA device".to_owned(),
        n => format!("{n} RDMA devices"),
    };
    let of_pods = match hidden {
        0 => String::new(),
        n => format!(", {n} of them in pods"),
    };
    let _ = writeln!(text, "{}: {count}{of_pods}{shared}", terminal::line(&facts.name));
    if !facts.ports.is_empty() {
        text.push('\n');
        text.push_str(&ports(facts));
    }
    let gids = gids(facts, all_gids);
    if !gids.is_empty() {
        text.push('\n');
        text.push_str(&gids.render());
    }
    if let Some(advised) = advised(advice) {
        let _ = write!(text, "\n{advised}");
    }
    if !findings.is_empty() {
        text.push('\n');
    }
    for one in findings {
        text.push_str(&one.describe());
    }
    text
}

fn ports(facts: &NodeFacts) -> String {
    let mut table = Table::new(&[
        "HCA/PORT", "MODEL", "LINK", "STATE", "PHYSICAL", "RATE", "LID", "NETDEV", "BOND", "PKEYS", "NUMA",
        "CHILDREN", "USED BY", "FOR PODS",
    ]);
    for port in &facts.ports {
        let infiniband = port.port.layer == PortLayer::Infiniband;
        table.row([
            port.name(),
            port.model.clone().unwrap_or_default(),
            port.port.layer.to_string(),
            state(port.port.state).to_owned(),
            port.port.phys_state.clone(),
            port.port.rate_mbps.map(gbits).unwrap_or_default(),
            if infiniband {
                port.port.lid.to_string()
            } else {
                String::new()
            },
            port.netdev.clone().unwrap_or_default(),
            bond(facts, port),
            pkeys(port),
            port.numa_node.map(|node| node.to_string()).unwrap_or_default(),
            port.way.map(|way| way.to_string()).unwrap_or_default(),
            users(&port.users),
            for_pods(&suitability(facts, port)),
        ]);
    }
    table.render()
}

fn for_pods(suitability: &Suitability) -> String {
    match suitability {
        Suitability::Usable => "yes".to_owned(),
        Suitability::Reserved(why) if why.starts_with("is a port of ") => format!("no: {why}"),
        Suitability::Reserved(_) => "no: used by the node".to_owned(),
        Suitability::Faulty(why) if why.starts_with("carries nothing") => "no: down".to_owned(),
        Suitability::Faulty(why) | Suitability::Unsuitable(why) | Suitability::InPod(why) => {
            format!("no: {why}")
        }
    }
}

/// `bond0: ens1f0*, ens1f1`; the star marks the active port.
fn bond(facts: &NodeFacts, port: &PortFacts) -> String {
    let found = facts
        .bonds
        .iter()
        .find(|bond| Some(&bond.name) == port.bond.as_ref());
    let Some(bond) = found else { return String::new() };
    let slave = |name: &String| {
        let star = if bond.active_slave.as_ref() == Some(name) {
            "*"
        } else {
            ""
        };
        format!("{name}{star}")
    };
    let slaves: Vec<String> = bond.slaves.iter().map(slave).collect();
    let mode = bond
        .mode
        .as_ref()
        .map(|mode| format!(" ({mode})"))
        .unwrap_or_default();
    format!("{}{mode}: {}", bond.name, slaves.join(" "))
}

fn pkeys(port: &PortFacts) -> String {
    let shown: Vec<String> = port.pkeys.iter().take(4).map(ToString::to_string).collect();
    match port.pkeys.len() {
        n if n > 4 => format!("{} +{}", shown.join(","), n - 4),
        _ => shown.join(","),
    }
}

fn users(users: &[User]) -> String {
    let mut named = Vec::new();
    let mut pods = 0;
    for user in users {
        match user {
            User::Attachment(_) => pods += 1,
            User::Link { name } => named.push(name.clone()),
        }
    }
    if pods > 0 {
        named.insert(
            0,
            format!("{pods} {}", if pods == 1 { "attachment" } else { "attachments" }),
        );
    }
    named.join(", ")
}

fn gids(facts: &NodeFacts, all: bool) -> Table {
    let mut table = Table::new(&["HCA/PORT", "INDEX", "GID", "IPV4", "VER", "DEV"]);
    let wanted = facts
        .ports
        .iter()
        .filter(|port| all || port.port.layer == PortLayer::Ethernet);
    for port in wanted {
        for gid in &port.gids {
            table.row([
                port.name(),
                gid.index.to_string(),
                spelled(gid),
                gid.gid
                    .to_ipv4_mapped()
                    .map(|ip| ip.to_string())
                    .unwrap_or_default(),
                version(port, gid).unwrap_or_default(),
                gid.netdev.clone().unwrap_or_default(),
            ]);
        }
    }
    table
}

/// The spelling of sysfs, for comparison.
fn spelled(gid: &Gid) -> String {
    let groups: Vec<String> = gid
        .gid
        .segments()
        .iter()
        .map(|group| format!("{group:04x}"))
        .collect();
    groups.join(":")
}

fn version(port: &PortFacts, gid: &Gid) -> Option<String> {
    (port.port.layer == PortLayer::Ethernet)
        .then(|| gid.roce_version().map(|version| format!("v{version}")))
        .flatten()
}

fn advised(advice: &Advice) -> Option<String> {
    let first = advice.masters.first()?;
    let mut text = format!(
        "USE   \"mode\": \"{}\", \"master\": \"{}\"",
        first.mode,
        terminal::line(&first.name)
    );
    if let Some(describe) = &advice.describe {
        let _ = write!(text, "  or, the same on every node:  \"master\": {describe}");
    }
    let (left_out, taken): (Vec<&Master>, Vec<&Master>) = advice
        .masters
        .iter()
        .partition(|master| master.left_out.is_some());
    let hcas: Vec<String> = taken.iter().flat_map(|master| master.hcas.clone()).collect();
    let _ = writeln!(
        text,
        "\n      RDMA programs: {}",
        terminal::line(&nccl_ib_hca(&hcas))
    );
    let mut line = |sentence: String| {
        let _ = writeln!(text, "      {}", wrapped(&sentence, 6, WIDTH));
    };
    line(format!(
        "{}: {}",
        chosen(first, taken.len(), left_out.len()),
        named(&taken)
    ));
    line(
        "NCCL skips ports that are not active: for a job on several nodes, NCCL_IB_HCA must name the ports of every node"
            .to_owned(),
    );
    if !left_out.is_empty() {
        let why = |master: &&Master| {
            let why = master.left_out.as_deref().unwrap_or_default();
            format!("{} {why}", name_of(master))
        };
        let all: Vec<String> = left_out.iter().map(why).collect();
        line(format!("left out: {}", all.join(", ")));
    }
    let with_address = |master: &&Master| {
        let addresses: Vec<String> = master.addresses.iter().map(ToString::to_string).collect();
        (!addresses.is_empty()).then(|| format!("{} ({})", master.name, addresses.join(", ")))
    };
    let addressed: Vec<String> = advice
        .masters
        .iter()
        .filter_map(|master| with_address(&master))
        .collect();
    if !addressed.is_empty() {
        line(format!(
            "the node itself has an address on {}",
            addressed.join(", ")
        ));
    }
    Some(text)
}

/// `ib0 (mlx5_0/1, 200 Gb/s)`.
fn name_of(master: &Master) -> String {
    let rate = master.rate_mbps.map(gbits);
    let rate = rate.map(|rate| format!(", {rate}")).unwrap_or_default();
    format!("{} ({}{rate})", master.name, master.port)
}

fn named(masters: &[&Master]) -> String {
    let all: Vec<String> = masters.iter().map(|master| name_of(master)).collect();
    all.join(", ")
}

/// Which links the selector takes, with everything that was checked about them (`cni_ipoib::select`).
fn chosen(first: &Master, taken: usize, left_out: usize) -> String {
    let (layer, one, several) = if first.mode == "ipoib" {
        (
            "InfiniBand",
            "is up and is no port of a bond",
            "are up and are no ports of a bond",
        )
    } else {
        (
            "Ethernet",
            "is up, is no port of a bond or bridge, and has no default route of the node",
            "are up, are no ports of a bond or bridge, and have no default route of the node",
        )
    };
    match (taken, taken + left_out) {
        (1, 1) => format!("the only {layer} link that {one}"),
        (n, all) if n == all => format!("the selector spreads pods over {n} {layer} links that {several}"),
        (_, all) => format!("the selector takes the fastest of {all} {layer} links that {several}"),
    }
}

/// The JSON document.
pub fn json(facts: &NodeFacts, advice: &Advice, findings: &[Finding]) -> Value {
    json!({
        "version": 1,
        "node": facts.name,
        "rdmaNetns": facts.shared.map(|shared| if shared { "shared" } else { "exclusive" }),
        "ports": facts.ports.iter().map(|port| json_port(facts, port)).collect::<Vec<_>>(),
        "devicesInPods": facts.hidden.iter().map(json_hidden).collect::<Vec<_>>(),
        "bonds": facts.bonds,
        "use": advice,
        "findings": findings,
    })
}

fn json_port(facts: &NodeFacts, port: &PortFacts) -> Value {
    let (usable, why) = match suitability(facts, port) {
        Suitability::Usable => (true, None),
        Suitability::Reserved(why)
        | Suitability::Faulty(why)
        | Suitability::Unsuitable(why)
        | Suitability::InPod(why) => (false, Some(why)),
    };
    let gid = |gid: &Gid| {
        json!({
            "index": gid.index, "gid": spelled(gid), "version": version(port, gid), "netdev": gid.netdev,
            "ipv4": gid.gid.to_ipv4_mapped(),
        })
    };
    json!({
        "hca": port.device.name, "port": port.port.number,
        "model": port.model, "firmware": port.firmware,
        "nodeGUID": port.device.node_guid.to_string(),
        "pciAddress": port.device.pci.map(|pci| pci.to_string()),
        "linkLayer": port.port.layer.to_string(),
        "state": state(port.port.state), "physicalState": port.port.phys_state,
        "rateMbps": port.port.rate_mbps,
        "lid": port.port.lid, "smLid": port.port.sm_lid,
        "gids": port.gids.iter().map(gid).collect::<Vec<_>>(),
        "pkeys": port.pkeys.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "netdev": port.netdev, "bond": port.bond, "children": port.way.map(|way| way.to_string()), "numaNode": port.numa_node,
        "usedBy": port.users,
        "forPods": { "usable": usable, "why": why },
    })
}

fn json_hidden(in_pod: &InPod) -> Value {
    let device = in_pod.grant.as_ref().map(|grant| &grant.device);
    json!({
        "hca": device.map(|device| &device.name),
        "port": in_pod.grant.as_ref().map(|grant| grant.port),
        "nodeGUID": device.map(|device| device.node_guid.to_string()),
        "pciAddress": device.and_then(|device| device.pci).map(|pci| pci.to_string()),
        "netdev": in_pod.link.as_ref().map(|link| &link.name),
        "usedBy": [User::Attachment(in_pod.attached.clone())],
    })
}
