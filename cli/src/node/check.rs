// SPDX-License-Identifier: Apache-2.0
//! Finds what is wrong with a node, each cause before its consequences, with a remedy.

use super::advice::{Advice, Verdict, verdict};
use super::look::{Facts, Live, PortFacts};
use super::show::gbits;
use common::rdma::{PortLayer, PortState};
use serde::Serialize;

/// The severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Pods do not get what the configuration promises.
    Fail,
    /// Pods may not get it, or get it more slowly.
    Warn,
    /// For information.
    Info,
}

/// A finding about the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The severity.
    pub level: Level,
    /// The subject.
    pub subject: String,
    /// The description, and why it matters.
    pub text: String,
    /// What to do.
    pub remedy: String,
}

fn finding(
    level: Level,
    subject: impl Into<String>,
    text: impl Into<String>,
    remedy: impl Into<String>,
) -> Finding {
    Finding {
        level,
        subject: subject.into(),
        text: text.into(),
        remedy: remedy.into(),
    }
}

/// All findings, the worst first.
pub fn findings(facts: &Facts, advice: &Advice) -> Vec<Finding> {
    let mut all = Vec::new();
    if facts.ports.is_empty() {
        all.push(finding(
            Level::Info,
            "node",
            "it has no RDMA device, so it has nothing for pods that want RDMA",
            "if there is a card (lspci -nn | grep -i -e mellanox -e infiniband), load its driver: modprobe mlx5_ib",
        ));
    } else {
        all.extend(modules(facts));
        for port in &facts.ports {
            all.extend(state(port));
            all.extend(rate(facts, port));
            all.extend(addressing(port));
            all.extend(kept(facts, port));
        }
        all.extend(bonds(facts));
        if advice.masters.is_empty() {
            all.push(finding(
                Level::Fail,
                "node",
                "no link with an RDMA device can be given to pods now",
                "see the column FOR PODS, and what stands here about each port",
            ));
        }
    }
    all.extend(facts.live.iter().flat_map(live));
    all.sort_by_key(|finding| finding.level);
    all
}

fn modules(facts: &Facts) -> Vec<Finding> {
    let infiniband = facts
        .ports
        .iter()
        .any(|port| port.port.layer == PortLayer::Infiniband);
    let of = |module: &&'static str| match *module {
        "ib_uverbs" => Some((Level::Fail, "no program can use RDMA")),
        "rdma_ucm" => Some((
            Level::Warn,
            "programs cannot make connections by address (ib_write_bw -R, NVMe-oF)",
        )),
        _ => infiniband.then_some((Level::Fail, "InfiniBand ports have no links, so pods get none")),
    };
    let all = facts.missing_modules.iter().filter_map(|module| {
        let (level, text) = of(module)?;
        Some(finding(
            level,
            *module,
            format!("this kernel module is not loaded: {text}"),
            format!("modprobe {module}; echo {module} >>/etc/modules-load.d/rdma.conf"),
        ))
    });
    all.collect()
}

fn state(port: &PortFacts) -> Vec<Finding> {
    let (name, phys) = (port.name(), port.port.phys_state.as_str());
    let infiniband = port.port.layer == PortLayer::Infiniband;
    let one = match port.port.state {
        PortState::Down if phys == "Polling" => finding(
            Level::Warn,
            name,
            "is down and looks for a partner (Polling): there is no cable, or nothing answers at its other end",
            "check cable, transceiver and the port of the switch",
        ),
        PortState::Down => finding(
            Level::Warn,
            name,
            format!(
                "is down ({phys}): no cable, or switched off; programs that name {} find it and send nothing",
                port.device.name
            ),
            format!(
                "leave it out of NCCL_IB_HCA and of ib_write_bw -d; if it should carry traffic: mlxlink -d {} --port_state UP, then the cable",
                port.device.name
            ),
        ),
        PortState::Init => finding(
            Level::Fail,
            name,
            "has a physical link, and no subnet manager has set it up (Initializing)",
            "start a subnet manager (opensm, or that of a switch or UFM) that reaches this port",
        ),
        PortState::Armed => finding(
            Level::Warn,
            name,
            "is set up and not released for traffic yet (Armed)",
            "look again in a few seconds; if it stays, ask the subnet manager's log",
        ),
        PortState::Active if infiniband && port.netdev.is_none() => finding(
            Level::Fail,
            name,
            "is Active and has no IPoIB link, so pods cannot have a child of it",
            "modprobe ib_ipoib; where namespaces do not share RDMA devices, look whether a pod has the device",
        ),
        PortState::Active if infiniband && port.port.sm_lid == 0 => finding(
            Level::Warn,
            name,
            "is Active, and its subnet manager is gone: what is connected stays so, and no new path is found",
            "start the subnet manager again",
        ),
        _ => return Vec::new(),
    };
    vec![one]
}

/// A port that runs slower than others of its kind, or than its slot.
fn rate(facts: &Facts, port: &PortFacts) -> Vec<Finding> {
    let Some(own) = port
        .port
        .rate_mbps
        .filter(|_| port.port.state == PortState::Active)
    else {
        return Vec::new();
    };
    let same = |other: &&PortFacts| {
        other.model.is_some()
            && other.model == port.model
            && other.port.layer == port.port.layer
            && other.port.state == PortState::Active
    };
    let best = facts
        .ports
        .iter()
        .filter(same)
        .filter_map(|other| other.port.rate_mbps)
        .max();
    let mut all = Vec::new();
    if let Some(best) = best.filter(|best| *best > own) {
        all.push(finding(
            Level::Warn,
            port.name(),
            format!(
                "runs at {}, another port of the same model at {}",
                gbits(own),
                gbits(best)
            ),
            "reseat the cable, and compare the speed of its switch port (mlxlink -m)",
        ));
    }
    if let Some(slot) = port.slot_mbps.filter(|slot| *slot < u64::from(own)) {
        all.push(finding(
            Level::Warn,
            port.name(),
            format!("runs at {}, and its PCI Express slot carries {} Gb/s", gbits(own), slot / 1000),
            "move the card to a slot with more lanes, or look why the link was trained down (lspci -vv, LnkSta)",
        ));
    }
    all
}

/// GUIDs, partitions and GIDs.
fn addressing(port: &PortFacts) -> Vec<Finding> {
    let mut all = Vec::new();
    if port.device.node_guid.0 == 0 {
        all.push(finding(
            Level::Fail,
            port.name(),
            "its node GUID is 0: nobody has given this virtual function one, and no subnet manager sets it up",
            "ip link set dev PF vf N node_guid GUID port_guid GUID, then bind its driver again",
        ));
    }
    if port.port.state != PortState::Active {
        return all;
    }
    match port.port.layer {
        PortLayer::Infiniband if !port.pkeys.iter().any(|pkey| pkey.full_member()) && !port.pkeys.is_empty() => {
            all.push(finding(
                Level::Warn,
                port.name(),
                "it is a limited member of all its partitions; limited members cannot talk to each other",
                "ask the subnet manager for full membership (0xffff, or 0x8000 more than the key)",
            ));
        }
        PortLayer::Ethernet if !port.gids.is_empty() && !port.gids.iter().any(is_routable) => all.push(finding(
            Level::Warn,
            port.name(),
            "it has no GID of an IPv4 or global IPv6 address, so RoCE v2 works on its own segment at most",
            "give its link an address; pods with a macvlan child bring their own",
        )),
        _ => {}
    }
    all
}

fn is_routable(gid: &common::rdma::Gid) -> bool {
    !gid.gid.is_unicast_link_local() && gid.roce_version() != Some(1)
}

/// A port whose link the node itself uses.
fn kept(facts: &Facts, port: &PortFacts) -> Option<Finding> {
    let Verdict::Kept(why) = verdict(facts, port) else {
        return None;
    };
    // A bond of InfiniBand ports is meant for pods.
    if port.port.layer == PortLayer::Infiniband {
        return None;
    }
    let bond = facts
        .bonds
        .iter()
        .find(|bond| Some(&bond.name) == port.netdev.as_ref());
    let what = match (bond, port.port.layer) {
        (Some(bond), PortLayer::Ethernet) => format!(
            "is a {} Ethernet LAG of {}, no bond of InfiniBand ports: {} {why}",
            port.port.rate_mbps.map_or("slow".to_owned(), gbits),
            bond.slaves.join(" and "),
            bond.name
        ),
        _ => format!("its link {} {why}", port.netdev.as_deref().unwrap_or_default()),
    };
    Some(finding(
        Level::Info,
        port.name(),
        what,
        "leave it to the node; a device plugin whose selector takes every card of the vendor hands it to pods as well",
    ))
}

fn bonds(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    for bond in facts.bonds.iter().filter(|bond| bond.infiniband) {
        match bond.mode.as_deref() {
            Some("active-backup") | None => {}
            Some(mode) => all.push(finding(
                Level::Fail,
                &bond.name,
                format!("is a bond of InfiniBand ports in mode {mode}; they can do active-backup only"),
                format!("ip link set {} type bond mode active-backup", bond.name),
            )),
        }
        if bond.miimon == Some(0) {
            all.push(finding(
                Level::Fail,
                &bond.name,
                "nobody looks at the carrier of its ports (miimon 0), so it never fails over",
                format!("ip link set {} type bond miimon 100", bond.name),
            ));
        }
        all.push(finding(
            Level::Info,
            &bond.name,
            format!(
                "carries IP only, over {}: a bond of InfiniBand ports has no RDMA device, and programs that use verbs do not fail over",
                bond.active_slave.as_deref().unwrap_or("no port at the moment")
            ),
            format!("name the devices of all its ports to NCCL (NCCL_IB_HCA): {}", bond.slaves.join(", ")),
        ));
    }
    all
}

fn live(live: &Live) -> Vec<Finding> {
    let mut all = Vec::new();
    for file in &live.missing_files {
        let level = if file.contains("uverbs") {
            Level::Fail
        } else {
            Level::Warn
        };
        all.push(finding(
            level,
            file,
            "is missing: containers cannot be given what the host does not have",
            "modprobe ib_uverbs rdma_ucm; udevadm trigger",
        ));
    }
    if let Some((runtime, bytes)) = &live.memlock {
        all.push(finding(
            Level::Info,
            runtime,
            format!("containers may lock {} KiB of memory; RDMA locks all it registers, and fails with \"Couldn't allocate MR\" beyond that", bytes / 1024),
            "give pods the capability IPC_LOCK and root, or set LimitMEMLOCK=infinity in the runtime's unit",
        ));
    }
    for plugin in &live.missing_plugins {
        all.push(finding(
            Level::Info,
            *plugin,
            "is not in /opt/cni/bin",
            "make install; where the runtime looks elsewhere, this says nothing",
        ));
    }
    if live.agent_away {
        all.push(finding(
            Level::Warn,
            "rdmanet-agent",
            format!("its socket {} is not there: pods get addresses while this node's blocks have room, and no longer", ipam::agent::SOCKET),
            "kubectl -n rdmanet-system get pods -o wide; kubectl -n rdmanet-system logs POD",
        ));
    }
    for damaged in &live.damaged {
        all.push(finding(
            Level::Warn,
            "rdma-ipam",
            damaged,
            "DEL of that attachment puts it right",
        ));
    }
    all
}
