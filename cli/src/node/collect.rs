// SPDX-License-Identifier: Apache-2.0
//! Collects the facts about a node, once.

use super::namespaces::{self, EmptyNamespace};
use super::recording::{Recorded, write_sysfs};
use crate::args;
use crate::leases;
use crate::output::CommandError;
use cni_ipoib::host::Drivers;
use cni_ipoib::journal;
use cni_ipoib::mark;
use cni_ipoib::plan::Way;
use cni_ipoib::select::{Candidate, Loads, Needs, Preference, Preferences, Selector, View, survey};
use common::ethtool;
use common::netlink::{self, Address, Link, LinkInfo, LinkLayer, Route, RouteEntry, Socket};
use common::rdma::{Device, Gid, Pkey, Port, Sysfs};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A node.
#[derive(Debug)]
pub struct NodeFacts {
    /// Its host name, or the directory of its record.
    pub name: String,
    /// Whether all namespaces see all RDMA devices; `None` if the kernel does not report it.
    pub shared: Option<bool>,
    /// Every port of every RDMA device.
    pub ports: Vec<PortFacts>,
    /// The links that could become a master.
    pub candidates: Vec<Candidate>,
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
    /// The bond that the link is, or is a port of.
    pub bond: Option<String>,
    /// How the `IPoIB` children of the link get into pods; `None` on Ethernet, and if the port has no link.
    pub way: Option<Way>,
    /// What uses the port.
    pub users: Vec<User>,
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
    /// Whether its ports are InfiniBand.
    pub infiniband: bool,
}

/// A user of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum User {
    /// An attachment of ours.
    #[serde(rename_all = "camelCase")]
    Attachment {
        /// The network.
        network: String,
        /// `CNI_CONTAINERID`.
        container_id: String,
        /// `CNI_IFNAME`.
        ifname: String,
        /// The pod, if the runtime named it to rdma-ipam.
        pod: Option<String>,
    },
    /// A link of the host on top of it.
    Link {
        /// Its name.
        name: String,
    },
}

/// Facts that only the live node has.
#[derive(Clone, Debug, Default)]
pub struct LiveFacts {
    /// The device files that are missing.
    pub missing_files: Vec<String>,
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

/// Reads the live node, or the record that `options` name.
///
/// # Errors
/// The record cannot be read, or the kernel does not respond.
pub fn collect(options: &args::Node) -> Result<NodeFacts, CommandError> {
    if let Some(directory) = &options.from {
        let scratch = tempfile::tempdir()
            .map_err(|e| CommandError(format!("cannot create a temporary directory: {e}")))?;
        let (mut node, sysfs) = recorded(directory, scratch.path())?;
        let name = directory
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        return read(name, &mut node, &sysfs, &BTreeMap::new(), None);
    }
    let sysfs = Sysfs::at(&options.sysfs);
    let mut socket = Socket::<Route>::open().map_err(|e| {
        CommandError(format!(
            "cannot open a netlink socket: {e}; run this on the node itself"
        ))
    })?;
    let (leases, damaged) = leases::all(&options.directories.leases.data_dir)?;
    let pods: BTreeMap<String, String> = leases
        .iter()
        .filter_map(|one| {
            Some((
                one.lease.owner.container_id.to_string(),
                one.lease.sandbox.pod.clone()?,
            ))
        })
        .collect();
    let mut users: BTreeMap<String, Vec<User>> = BTreeMap::new();
    let records = journal::written(&options.directories.state)
        .map_err(|e| CommandError::from(common::cni::Error::from(e)))?;
    for one in records {
        let id = one.attachment.container_id.to_string();
        users
            .entry(one.intent.master)
            .or_default()
            .push(User::Attachment {
                pod: pods.get(&id).cloned(),
                network: one.network,
                container_id: id,
                ifname: one.attachment.ifname.to_string(),
            });
    }
    let live = LiveFacts {
        damaged,
        empty_namespaces: namespaces::empty(&leases, &namespaces::of_processes()),
        ..live(&sysfs, &options.directories.leases.data_dir)
    };
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    read(name.trim().to_owned(), &mut socket, &sysfs, &users, Some(live))
}

impl View for Recorded {
    fn links(&mut self) -> Result<Vec<Link>, netlink::Error> {
        Ok(self.links.clone())
    }

    fn routes(&mut self, index: u32) -> Result<Vec<RouteEntry>, netlink::Error> {
        let through = self.routes.iter().filter(|route| route.index == index);
        Ok(through.cloned().collect())
    }

    fn addresses(&mut self, index: u32) -> Result<Vec<Address>, netlink::Error> {
        let of_link = self.addresses.iter().filter(|(of, _)| *of == index);
        Ok(of_link.map(|(_, address)| address.clone()).collect())
    }
}

fn recorded(directory: &Path, scratch: &Path) -> Result<(Recorded, Sysfs), CommandError> {
    let text = |file: &str| {
        let path = directory.join(file);
        let remedy = "docs/cli.md has the commands that record a node";
        fs::read_to_string(&path)
            .map_err(|e| CommandError(format!("cannot read {}: {e}; {remedy}", path.display())))
    };
    let node = Recorded::read(&text("address.json")?, &text("route.json")?)
        .map_err(|e| CommandError(format!("{}: {e}", directory.display())))?;
    write_sysfs(&text("sysfs")?, scratch)
        .map_err(|e| CommandError(format!("{}: {e}", directory.join("sysfs").display())))?;
    Ok((node, Sysfs::at(scratch)))
}

fn read(
    name: String,
    view: &mut dyn View,
    sysfs: &Sysfs,
    users: &BTreeMap<String, Vec<User>>,
    live: Option<LiveFacts>,
) -> Result<NodeFacts, CommandError> {
    let links = view
        .links()
        .map_err(|e| CommandError(format!("cannot list the links: {e}")))?;
    let devices = sysfs
        .devices()
        .map_err(|e| CommandError(format!("cannot list the RDMA devices: {e}; is sysfs mounted?")))?;
    let any = Preferences {
        choices: vec![Preference::Described(Selector::default())],
        needs: Needs::default(),
    };
    let loads = users.iter().map(|(master, users)| (master.clone(), users.len()));
    let candidates = survey(view, sysfs, &any, &loads.collect::<Loads>())
        .map_err(|e| CommandError::from(common::cni::Error::from(e)))?;
    let reader = Reader {
        sysfs,
        links: &links,
        devices: &devices,
        users,
        live: live.is_some(),
    };
    let modules = ["ib_uverbs", "rdma_ucm", "ib_ipoib"];
    Ok(NodeFacts {
        name,
        shared: sysfs.shares_rdma(),
        ports: reader.ports(),
        candidates,
        bonds: reader.bonds(),
        missing_modules: modules
            .into_iter()
            .filter(|module| sysfs.has_module(module) == Some(false))
            .collect(),
        live,
    })
}

struct Reader<'a> {
    sysfs: &'a Sysfs,
    links: &'a [Link],
    devices: &'a [Device],
    users: &'a BTreeMap<String, Vec<User>>,
    /// Whether this is the live node and not a record.
    live: bool,
}

impl Reader<'_> {
    fn ports(&self) -> Vec<PortFacts> {
        let all = self
            .devices
            .iter()
            .flat_map(|device| device.ports.iter().map(move |port| (device, port)));
        all.map(|(device, port)| self.port(device, port)).collect()
    }

    fn port(&self, device: &Device, port: &Port) -> PortFacts {
        let on_port = |link: &&Link| {
            let found = self.sysfs.port_of(self.devices, link);
            found.is_some_and(|(d, p)| d.name == device.name && p.number == port.number)
        };
        // Children share the port of their parent, and a child of a pod may exist on the host under any name.
        let own: Vec<&Link> = self
            .links
            .iter()
            .filter(|link| (link.parent.is_none() || link.kind.is_none()) && !mark::is_ours(link))
            .filter(on_port)
            .collect();
        let netdev = own
            .iter()
            .find(|link| link.is_bond())
            .or_else(|| own.first())
            .copied();
        let upper = netdev.and_then(|link| {
            let over = |bond: &&Link| bond.index == link.index || Some(bond.index) == link.master;
            self.links.iter().filter(|bond| bond.is_bond()).find(over)
        });
        let hardware = own.iter().find(|link| !link.is_bond()).copied().or(netdev);
        PortFacts {
            model: self.sysfs.model(device),
            firmware: self.sysfs.firmware(device),
            gids: self.sysfs.gids(device, port).unwrap_or_default(),
            pkeys: self.sysfs.pkeys(device, port).unwrap_or_default(),
            numa_node: hardware.and_then(|link| self.sysfs.numa_node_of_netdev(&link.name)),
            slot_mbps: device.path.as_deref().and_then(slot_mbps),
            netdev: netdev.map(|link| link.name.clone()),
            bond: upper.map(|bond| bond.name.clone()),
            way: hardware
                .filter(|link| link.layer == LinkLayer::Infiniband)
                .map(|link| self.way(link)),
            users: netdev
                .into_iter()
                .chain(upper)
                .flat_map(|link| self.users_of(link))
                .fold(Vec::new(), |mut all, user| {
                    if !all.contains(&user) {
                        all.push(user);
                    }
                    all
                }),
            device: device.clone(),
            port: port.clone(),
        }
    }

    /// A record lacks the name of the link's driver, so its children are shown as moved.
    fn way(&self, link: &Link) -> Way {
        let driver = if self.live {
            ethtool::driver(&link.name).ok()
        } else {
            None
        };
        Way::of(&Drivers::of(self.sysfs, link, driver))
    }

    fn users_of(&self, link: &Link) -> Vec<User> {
        let attached = self.users.get(&link.name).cloned().unwrap_or_default();
        let above = self.links.iter().filter(|other| {
            other.parent == Some(link.index) && other.parent_netnsid.is_none() && other.kind.is_some()
        });
        let above = above.filter(|other| other.index != link.index && !mark::is_ours(other));
        let named = above.map(|other| User::Link {
            name: other.name.clone(),
        });
        attached.into_iter().chain(named).collect()
    }

    fn bonds(&self) -> Vec<BondFacts> {
        let name_of = |index: u32| {
            let found = self.links.iter().find(|link| link.index == index);
            found.map(|link| link.name.clone())
        };
        let bond = |link: &Link| {
            let slaves = self.links.iter().filter(|slave| slave.master == Some(link.index));
            let slaves: Vec<&Link> = slaves.collect();
            let (mode, active, miimon) = match link.info {
                LinkInfo::Bond {
                    mode, active, miimon, ..
                } => (Some(mode.to_string()), active, Some(miimon)),
                _ => (None, None, None),
            };
            BondFacts {
                name: link.name.clone(),
                mode,
                active_slave: active.and_then(name_of),
                infiniband: slaves.iter().any(|slave| slave.layer == LinkLayer::Infiniband),
                slaves: slaves.iter().map(|slave| slave.name.clone()).collect(),
                miimon,
            }
        };
        self.links
            .iter()
            .filter(|link| link.is_bond())
            .map(bond)
            .collect()
    }
}

/// The throughput of a PCI Express slot, from `current_link_speed` (`16.0 GT/s PCIe`) and `current_link_width`. From 8
/// GT/s on, 128 of 130 bits are data; below that, 8 of 10.
fn slot_mbps(device: &Path) -> Option<u64> {
    let text = |file: &str| fs::read_to_string(device.join(file)).ok();
    let speed: f64 = text("current_link_speed")?.split(' ').next()?.parse().ok()?;
    let width: u64 = text("current_link_width")?
        .trim()
        .parse()
        .ok()
        .filter(|width| (1..=32).contains(width))?;
    let lane = match speed {
        s if s >= 64.0 => 62_000,
        s if s >= 32.0 => 31_508,
        s if s >= 16.0 => 15_754,
        s if s >= 8.0 => 7_877,
        s if s >= 5.0 => 4_000,
        _ => 2_000,
    };
    Some(lane * width)
}

fn live(sysfs: &Sysfs, data_dir: &Path) -> LiveFacts {
    let devices = sysfs.devices().unwrap_or_default();
    let mut missing_files = Vec::new();
    if !devices.is_empty() {
        let files = fs::read_dir("/dev/infiniband").into_iter().flatten().flatten();
        let names: Vec<String> = files
            .filter_map(|file| file.file_name().into_string().ok())
            .collect();
        let verbs = names.iter().filter(|name| name.starts_with("uverbs")).count();
        if verbs < devices.len() {
            missing_files.push(format!(
                "/dev/infiniband/uverbs* ({verbs} for {} devices)",
                devices.len()
            ));
        }
        if !names.iter().any(|name| name == "rdma_cm") {
            missing_files.push("/dev/infiniband/rdma_cm".to_owned());
        }
    }
    let plugin = |name: &&str| !Path::new("/opt/cni/bin").join(name).is_file();
    let pools = fs::read_dir(data_dir.join(ipam::pool::POOLS)).is_ok_and(|mut pools| pools.next().is_some());
    LiveFacts {
        missing_files,
        memlock: memlock(),
        missing_plugins: ["cni-ipoib", "rdma-ipam"].into_iter().filter(plugin).collect(),
        agent_is_missing: pools && !Path::new(ipam::agent::SOCKET).exists(),
        damaged: Vec::new(),
        empty_namespaces: Vec::new(),
    }
}

/// The limit that containers inherit from their runtime, if it is one.
fn memlock() -> Option<(String, u64)> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut runtimes = processes.filter_map(|process| {
        let directory: PathBuf = process.path();
        let name = fs::read_to_string(directory.join("comm")).ok()?.trim().to_owned();
        ["containerd", "crio"]
            .contains(&name.as_str())
            .then_some((name, directory))
    });
    let limit = |(name, directory): (String, PathBuf)| {
        let limits = fs::read_to_string(directory.join("limits")).ok()?;
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max locked memory"))?;
        // `unlimited` is not a number.
        Some((name, line.split_whitespace().nth(3)?.parse().ok()?))
    };
    runtimes.find_map(limit)
}
