// SPDX-License-Identifier: Apache-2.0
//! The facts about a node: plain data.

use super::attachments::{Attached, InPod, User, WithChildren};
use super::namespaces::EmptyNamespace;
use cni_ipoib::plan::Way;
use cni_ipoib::select::Candidate;
use common::rdma::{Device, Gid, Pkey, Port};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A node.
#[derive(Debug, Default)]
pub struct NodeFacts {
    /// Its host name, or the directory of its record.
    pub name: String,
    /// Whether all namespaces see all RDMA devices; `None` if the kernel does not report it.
    pub shared: Option<bool>,
    /// Every port of every RDMA device.
    pub ports: Vec<PortFacts>,
    /// The pods that have an RDMA device which the host does not see (exclusive mode).
    pub hidden: Vec<InPod>,
    /// The attachments whose pods have lost a child, because its parent is gone.
    pub lost: Vec<WithChildren>,
    /// The links that could become a master.
    pub candidates: Vec<Candidate>,
    /// The node's global addresses on the candidates with an RDMA port, by the name of the link.
    pub addresses: BTreeMap<String, Vec<IpAddr>>,
    /// Bonds, by name.
    pub bonds: Vec<BondFacts>,
    /// Which of the kernel modules that pods need are not loaded.
    pub missing_modules: Vec<&'static str>,
    /// Facts that only the live node has; `None` for a record.
    pub live: Option<LiveFacts>,
}

/// A port.
#[derive(Clone, Debug)]
pub struct PortFacts {
    /// Its device.
    pub device: Device,
    /// The port.
    pub port: Port,
    /// The card's model, e.g. `MT4123`.
    pub model: Option<String>,
    /// The card's firmware.
    pub firmware: Option<String>,
    /// Its GIDs.
    pub gids: Vec<Gid>,
    /// Its partitions.
    pub pkeys: Vec<Pkey>,
    /// The NUMA node.
    pub numa_node: Option<u32>,
    /// The throughput of its slot in Mbit/s.
    pub slot_mbps: Option<u64>,
    /// The link of the port: the bond of a LAG device, otherwise the link on the port.
    pub netdev: Option<String>,
    /// The state of that link.
    pub link_state: Option<LinkState>,
    /// The attachment whose pod has the link of the port.
    pub in_pod: Option<Attached>,
    /// The bond that the link is, or is a port of.
    pub bond: Option<String>,
    /// How the `IPoIB` children of the link get into pods; `None` on Ethernet, and if the port has no link.
    pub way: Option<Way>,
    /// What uses the port.
    pub users: Vec<User>,
}

/// The state of a port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// An administrator or a program has set it down.
    SetDown,
    /// It is set up, and the hardware reports no carrier.
    NoCarrier,
    /// It is set up and has carrier.
    Carrier,
}

/// A bond.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BondFacts {
    /// Its name.
    pub name: String,
    /// The bonding mode; `None` if this program does not know it, or the record lacks it.
    pub mode: Option<String>,
    /// The port that carries the traffic.
    pub active_slave: Option<String>,
    /// Its ports.
    pub slaves: Vec<String>,
    /// Milliseconds between two checks of carrier; 0 means no checks.
    pub miimon: Option<u32>,
    /// Milliseconds between two ARP requests that check the ports; 0 means none. `None` if the record lacks it.
    pub arp_interval: Option<u32>,
    /// Whether its ports are InfiniBand.
    pub infiniband: bool,
}

/// Facts that only the live node has.
#[derive(Clone, Debug, Default)]
pub struct LiveFacts {
    /// The device files that are missing.
    pub missing_files: Vec<String>,
    /// The node has RDMA devices and no file `umadN`.
    pub has_no_umad: bool,
    /// The GPU driver is loaded without a module that lets adapters access GPU memory (`ncclIbGdrSupport` of NCCL).
    pub has_no_peermem: bool,
    /// How many bytes a container may lock by default; `None` if there is no limit, or no runtime was found.
    pub memlock: Option<(String, u64)>,
    /// Our plugins that are not in `/opt/cni/bin`.
    pub missing_plugins: Vec<&'static str>,
    /// Pools have files on this node, but the agent's socket is missing.
    pub agent_is_missing: bool,
    /// Leases that cannot be read.
    pub damaged: Vec<String>,
    /// Network namespaces of attachments in which no process is.
    pub empty_namespaces: Vec<EmptyNamespace>,
}
