// SPDX-License-Identifier: Apache-2.0
//! Finds what is wrong with a node, each cause before its consequences, with a remedy.

mod live;

use super::advice::{Advice, Suitability, hcas_of_bond, nccl_ib_hca, suitability};
use super::attachments::{InPod, User, WithChildren};
use super::facts::{BondFacts, LinkState, NodeFacts, PortFacts};
use super::show::gbits;
use crate::output::{Finding, Severity};
use common::rdma::{PortLayer, PortState};
use std::collections::BTreeMap;

/// All findings, the worst first.
pub fn findings(facts: &NodeFacts, advice: &Advice) -> Vec<Finding> {
    let mut all = Vec::new();
    let pods_have_some = !facts.hidden.is_empty() || facts.ports.iter().any(|port| port.in_pod.is_some());
    if facts.ports.is_empty() && !pods_have_some {
        all.push(Finding::new(
            Severity::Info,
            "node",
            "has no RDMA device, so pods cannot use RDMA",
            "if the node has a card (lspci -nn | grep -i -e mellanox -e infiniband), load its driver: modprobe mlx5_ib",
        ));
    } else {
        all.extend(modules(facts));
        for port in &facts.ports {
            all.extend(state(port));
            all.extend(rate(facts, port));
            // The pod decides about the addresses of its link.
            if port.in_pod.is_none() {
                all.extend(addressing(port));
                all.extend(addresses_of_others(facts, port));
                all.extend(reserved(facts, port));
            }
        }
        all.extend(bonds(facts));
        if advice.masters.is_empty() && !pods_have_some {
            all.push(Finding::new(
                Severity::Fail,
                "node",
                "pods can use no link with an RDMA device now",
                "see the column FOR PODS, and the findings about each port",
            ));
        }
    }
    all.extend(lost(&facts.lost));
    all.extend(facts.hidden.iter().filter_map(hidden));
    all.extend(facts.live.iter().flat_map(live::findings));
    all.sort_by_key(|finding| finding.level);
    all
}

/// One finding for each parent that is gone, with the interfaces that its pods have lost. Multus sends no CHECK, so no verb
/// of the plugin reports them.
fn lost(attachments: &[WithChildren]) -> impl Iterator<Item = Finding> {
    let mut by_master: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for one in attachments {
        let interface = format!("{} of {}", one.attached.ifname, one.attached.place());
        by_master.entry(&one.master).or_default().push(interface);
    }
    by_master.into_iter().map(|(master, interfaces)| {
        Finding::new(
            Severity::Fail,
            master,
            format!(
                "a parent of these interfaces is gone, or its driver was loaded again, and the kernel has deleted them or a port of them: {}",
                interfaces.join(", ")
            ),
            "delete these pods; new pods get new interfaces (docs/ofed.md)",
        )
    })
}

/// An RDMA device that the host does not see, because a pod has it.
fn hidden(in_pod: &InPod) -> Option<Finding> {
    let grant = in_pod.grant.as_ref()?;
    let link = in_pod
        .link
        .as_ref()
        .map(|link| format!(" with its link {}", link.name));
    Some(Finding::new(
        Severity::Info,
        format!("{}/{}", grant.device.name, grant.port),
        format!(
            "is in {}{} (network {}), so the host does not see it",
            in_pod.attached.place(),
            link.unwrap_or_default(),
            in_pod.attached.network
        ),
        "nothing; the device returns when the pod ends",
    ))
}

fn modules(facts: &NodeFacts) -> Vec<Finding> {
    let infiniband = facts
        .ports
        .iter()
        .any(|port| port.port.layer == PortLayer::Infiniband);
    let of = |module: &&'static str| match *module {
        "ib_uverbs" => Some((Severity::Fail, "no program can use RDMA")),
        "rdma_ucm" => Some((
            Severity::Warn,
            "programs cannot make connections by address (ib_write_bw -R, NVMe-oF)",
        )),
        _ => infiniband.then_some((
            Severity::Fail,
            "InfiniBand ports have no links, so pods have none",
        )),
    };
    let all = facts.missing_modules.iter().filter_map(|module| {
        let (level, text) = of(module)?;
        Some(Finding::new(
            level,
            *module,
            format!("this kernel module is not loaded: {text}"),
            format!("modprobe {module}; echo {module} >>/etc/modules-load.d/rdma.conf"),
        ))
    });
    all.collect()
}

fn state(port: &PortFacts) -> Option<Finding> {
    match port.port.layer {
        PortLayer::Infiniband => infiniband_state(port),
        PortLayer::Ethernet | PortLayer::Unspecified => ethernet_state(port),
    }
}

/// Cable, subnet manager and, for a virtual function, the physical function decide about the state, whether the link of
/// the port is in a pod or not.
fn infiniband_state(port: &PortFacts) -> Option<Finding> {
    let (name, phys) = (port.name(), port.port.phys_state.as_str());
    let one = match port.port.state {
        PortState::Down if phys == "Polling" => Finding::new(
            Severity::Warn,
            name,
            "is down and polls for a link partner (Polling): there is no cable, or its other end does not respond",
            "check cable, transceiver and the port of the switch",
        ),
        PortState::Down => Finding::new(
            Severity::Warn,
            name,
            format!(
                "is down ({phys}): no cable, or disabled; programs that select {} cannot send",
                port.device.name
            ),
            format!(
                "leave it out of ib_write_bw -d (NCCL skips it); if it should carry traffic: mlxlink -d {} --port_state UP, then the cable; for a virtual function: ip link set PF vf N state auto",
                port.device.name
            ),
        ),
        PortState::Init => Finding::new(
            Severity::Fail,
            name,
            "has a physical link, and no subnet manager has configured it (Initializing)",
            "start a subnet manager that reaches this port: opensm, or one in a switch or in UFM",
        ),
        PortState::Armed => Finding::new(
            Severity::Warn,
            name,
            "is configured but not active yet (Armed)",
            "run this again in a few seconds; if the state stays, read the log of the subnet manager",
        ),
        PortState::Active if port.netdev.is_none() && port.in_pod.is_none() => Finding::new(
            Severity::Fail,
            name,
            "is Active and has no IPoIB link, so pods cannot have a child of it",
            "modprobe ib_ipoib; if it is loaded, the link was moved into a network namespace, and no attachment of cni-ipoib accounts for that",
        ),
        PortState::Active if port.port.sm_lid == 0 => Finding::new(
            Severity::Warn,
            name,
            "is Active and has no address of a subnet manager (SM LID 0), so IPoIB and rdma_cm cannot ask one for paths",
            "start a subnet manager that reaches this port: opensm, or one in a switch or in UFM",
        ),
        _ => return None,
    };
    Some(one)
}

/// RoCE drivers report a port as Down (Disabled) whenever its link is set down or has no carrier
/// (`mlx5_query_port_roce`), so only the link tells these apart. The pod decides about a link in a pod.
fn ethernet_state(port: &PortFacts) -> Option<Finding> {
    if port.in_pod.is_some() {
        return None;
    }
    let (name, phys) = (port.name(), port.port.phys_state.as_str());
    let link = port.netdev.as_deref().unwrap_or_default();
    let (text, remedy) = match (port.port.state, port.link_state) {
        (PortState::Down, Some(LinkState::SetDown)) => (
            format!("is down, because its link {link} is set down"),
            format!("ip link set dev {link} up"),
        ),
        (PortState::Down, Some(LinkState::NoCarrier)) => (
            format!("is down: its link {link} is set up and has no carrier"),
            "check cable, transceiver and the port of the switch".to_owned(),
        ),
        (PortState::Down, Some(LinkState::Carrier)) => (
            format!("is down ({phys}), and its link {link} has carrier"),
            "read the messages of its driver (dmesg)".to_owned(),
        ),
        (PortState::Down, None) => (
            format!("is down ({phys}), and the host has no link on it"),
            "read the messages of its driver (dmesg); if these show a link, it was moved into a network namespace".to_owned(),
        ),
        // `iw_query_port` of the kernel.
        (PortState::Init, _) => (
            "is Initializing: an iWARP port needs an IPv4 address on its link".to_owned(),
            "ip address add ADDRESS/PREFIX dev LINK".replace("LINK", link),
        ),
        _ => return None,
    };
    let text = format!("{text}; programs that select {} cannot send", port.device.name);
    let remedy =
        format!("{remedy}; if it should carry nothing, leave it out of ib_write_bw -d (NCCL skips it)");
    Some(Finding::new(Severity::Warn, name, text, remedy))
}

/// A port that runs slower than others of its kind, or whose slot is slower than the port.
fn rate(facts: &NodeFacts, port: &PortFacts) -> Vec<Finding> {
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
        all.push(Finding::new(
            Severity::Warn,
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
        all.push(Finding::new(
            Severity::Warn,
            port.name(),
            format!("runs at {}, and its PCI Express slot has {} Gb/s", gbits(own), slot / 1000),
            "move the card to a slot with more lanes, or find out why the link was trained down (lspci -vv, LnkSta)",
        ));
    }
    all
}

/// GUIDs, partitions and GIDs.
fn addressing(port: &PortFacts) -> Vec<Finding> {
    let mut all = Vec::new();
    if port.device.node_guid.0 == 0 {
        all.extend(without_guid(port));
    }
    if port.port.state != PortState::Active {
        return all;
    }
    match port.port.layer {
        PortLayer::Infiniband
            if !port.pkeys.iter().any(|pkey| pkey.full_member()) && !port.pkeys.is_empty() =>
        {
            all.push(Finding::new(
                Severity::Warn,
                port.name(),
                "is a limited member of all its partitions; limited members cannot communicate with each other",
                "configure full membership in the subnet manager (0xffff, or the key plus 0x8000)",
            ));
        }
        PortLayer::Ethernet if !port.gids.is_empty() && !port.gids.iter().any(is_routable) => {
            all.push(Finding::new(
                Severity::Warn,
                port.name(),
                "has no GID of an IPv4 or global IPv6 address, so RoCE v2 works in its own segment only",
                "add an address to its link; pods with a macvlan child have their own",
            ));
        }
        _ => {}
    }
    all
}

/// A RoCE port of pods whose GID table has several IPv4 addresses. NCCL takes the first one of RoCE v2 for each pod
/// (`ncclIbGetGidIndex`). With `MLNX_OFED` the host and each pod can use only their own.
fn addresses_of_others(facts: &NodeFacts, port: &PortFacts) -> Option<Finding> {
    let has_pods = port.users.iter().any(|user| matches!(user, User::Attachment(_)));
    if facts.shared != Some(true) || port.port.layer != PortLayer::Ethernet || !has_pods {
        return None;
    }
    let of_version_2 = port.gids.iter().filter(|gid| gid.roce_version() == Some(2));
    let mut all = of_version_2.filter_map(|gid| Some((gid.index, gid.gid.to_ipv4_mapped()?)));
    let (index, first) = all.next()?;
    all.any(|(_, other)| other != first).then(|| {
        Finding::new(
            Severity::Info,
            port.name(),
            format!("pods see the RoCE addresses of the node and of each other; NCCL sends from {first} (index {index}) in each pod, unless the pod selects another"),
            "in a pod with one RoCE interface set NCCL_IB_ADDR_RANGE to its address with /32; for several rails: docs/test-in-a-pod.md",
        )
    })
}

/// A virtual function without a node GUID. The kernel handles one GUID of a request and ignores the other
/// (`do_setvfinfo`), and has GUIDs for InfiniBand links only. On Ethernet mlx5 makes the GUID from the MAC that the
/// physical function gives.
fn without_guid(port: &PortFacts) -> Option<Finding> {
    let pci = port.device.pci.map_or("PCI".to_owned(), |pci| pci.to_string());
    let bind = format!(
        "then bind its driver again: echo {pci} >/sys/bus/pci/devices/{pci}/driver/unbind; echo {pci} >/sys/bus/pci/drivers_probe"
    );
    let one = match port.port.layer {
        PortLayer::Infiniband => Finding::new(
            Severity::Fail,
            port.name(),
            "its node GUID is 0: this virtual function has none, and a subnet manager does not configure it",
            format!(
                "two commands: ip link set dev PF vf N node_guid GUID; ip link set dev PF vf N port_guid GUID; {bind}"
            ),
        ),
        PortLayer::Ethernet => Finding::new(
            Severity::Warn,
            port.name(),
            "its node GUID is 0: this virtual function has none, so connections by rdma_cm can fail (ib_write_bw -R, NVMe-oF)",
            format!("ip link set dev PF vf N mac ADDRESS; {bind}"),
        ),
        PortLayer::Unspecified => return None,
    };
    Some(one)
}

fn is_routable(gid: &common::rdma::Gid) -> bool {
    !gid.gid.is_unicast_link_local() && gid.roce_version() != Some(1)
}

/// A port whose link the node itself uses.
fn reserved(facts: &NodeFacts, port: &PortFacts) -> Option<Finding> {
    let Suitability::Reserved(why) = suitability(facts, port) else {
        return None;
    };
    // A bond of InfiniBand ports is for pods.
    if port.port.layer == PortLayer::Infiniband {
        return None;
    }
    let bond = facts
        .bonds
        .iter()
        .find(|bond| Some(&bond.name) == port.netdev.as_ref());
    let what = match (bond, port.port.layer) {
        (Some(bond), PortLayer::Ethernet) => format!(
            "is a {} Ethernet LAG of {}, not a bond of InfiniBand ports: {} {why}",
            port.port.rate_mbps.map_or("slow".to_owned(), gbits),
            bond.slaves.join(" and "),
            bond.name
        ),
        _ => format!("its link {} {why}", port.netdev.as_deref().unwrap_or_default()),
    };
    Some(Finding::new(
        Severity::Info,
        port.name(),
        what,
        "nothing; but a device plugin that selects all cards of the vendor gives it to pods too, and NCCL uses each active device whose file it has: select by link type there",
    ))
}

fn bonds(facts: &NodeFacts) -> Vec<Finding> {
    let mut all = Vec::new();
    for bond in facts.bonds.iter().filter(|bond| bond.infiniband) {
        match bond.mode.as_deref() {
            Some("active-backup") | None => {}
            Some(mode) => all.push(Finding::new(
                Severity::Fail,
                &bond.name,
                format!(
                    "is a bond of InfiniBand ports in mode {mode}; the kernel supports active-backup only"
                ),
                format!("ip link set {} type bond mode active-backup", bond.name),
            )),
        }
        all.extend(unmonitored(bond));
        all.push(Finding::new(
            Severity::Info,
            &bond.name,
            format!(
                "carries IP only, over {}: a bond of InfiniBand ports has no RDMA device, and programs that use verbs do not fail over",
                bond.active_slave.as_deref().unwrap_or("no port at the moment")
            ),
            match hcas_of_bond(facts, &bond.name).as_slice() {
                [] => "nothing".to_owned(),
                hcas => format!("give NCCL the RDMA devices of all its ports: {}", nccl_ib_hca(hcas)),
            },
        ));
    }
    all
}

/// A bond that monitors its ports neither by carrier nor by ARP does not fail over (`bond_enslave` takes every port as
/// up then).
fn unmonitored(bond: &BondFacts) -> Option<Finding> {
    if bond.miimon != Some(0) {
        return None;
    }
    let (level, text) = match bond.arp_interval {
        Some(0) => (
            Severity::Fail,
            "monitors its ports neither by carrier (miimon 0) nor by ARP (arp_interval 0), so it does not fail over",
        ),
        Some(_) => return None,
        None => (
            Severity::Warn,
            "does not monitor the carrier of its ports (miimon 0); it fails over only if it has an arp_interval",
        ),
    };
    let remedy = format!("ip link set {} type bond miimon 100", bond.name);
    Some(Finding::new(level, &bond.name, text, remedy))
}
