// SPDX-License-Identifier: Apache-2.0
//! Collects the facts about a node, once.

use super::attachments::Attachments;
use super::facts::{LiveFacts, NodeFacts};
use super::namespaces;
use super::reader::Reader;
use super::recording::{Recorded, write_sysfs};
use crate::args;
use crate::leases;
use crate::output::CommandError;
use cni_ipoib::journal::{self, Written};
use cni_ipoib::select::{Candidate, Load, Loads, Needs, Preference, Preferences, Selector, View, survey};
use common::netlink::{self, Address, Link, Route, RouteEntry, Socket};
use common::rdma::Sysfs;
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Reads the live node, or the record that `options` name.
///
/// # Errors
/// The record cannot be read, or the kernel does not respond.
pub fn collect(options: &args::Node) -> Result<NodeFacts, CommandError> {
    if let Some(directory) = &options.from {
        return recorded(directory, &Attachments::default());
    }
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
    let records = journal::written(&options.directories.state)
        .map_err(|e| CommandError::from(common::cni::Error::from(e)))?;
    let attachments = Attachments::of(&records, &pods, Written::lives);
    let live = LiveFacts {
        damaged,
        empty_namespaces: namespaces::empty(&leases, &namespaces::of_processes()),
        ..live(&Sysfs::at(&options.sysfs), &options.directories.leases.data_dir)
    };
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim().to_owned();
    read(name, &mut socket, &options.sysfs, &attachments, Some(live))
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

/// The recorded node in `directory`, with these attachments.
///
/// # Errors
/// The record cannot be read.
pub(super) fn recorded(directory: &Path, attachments: &Attachments) -> Result<NodeFacts, CommandError> {
    let scratch =
        tempfile::tempdir().map_err(|e| CommandError(format!("cannot create a temporary directory: {e}")))?;
    let text = |file: &str| {
        let path = directory.join(file);
        let remedy = "docs/cli.md has the commands that record a node";
        fs::read_to_string(&path)
            .map_err(|e| CommandError(format!("cannot read {}: {e}; {remedy}", path.display())))
    };
    let mut node = Recorded::read(&text("address.json")?, &text("route.json")?)
        .map_err(|e| CommandError(format!("{}: {e}", directory.display())))?;
    write_sysfs(&text("sysfs")?, scratch.path())
        .map_err(|e| CommandError(format!("{}: {e}", directory.join("sysfs").display())))?;
    let name = directory.file_name().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    read(name, &mut node, scratch.path(), attachments, None)
}

/// Reads the node whose sysfs is at `root`.
fn read(
    name: String,
    view: &mut dyn View,
    root: &Path,
    attachments: &Attachments,
    live: Option<LiveFacts>,
) -> Result<NodeFacts, CommandError> {
    let sysfs = &Sysfs::at(root);
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
    let users = attachments.users.iter();
    let load = |all| Load { all, own: 0 };
    let loads = users.map(|(master, users)| (master.clone(), load(users.len())));
    let candidates = survey(view, sysfs, &any, &loads.collect::<Loads>())
        .map_err(|e| CommandError::from(common::cni::Error::from(e)))?;
    let reader = Reader {
        root,
        sysfs,
        links: &links,
        devices: &devices,
        attachments,
        live: live.is_some(),
    };
    let hidden = attachments.in_pods.iter();
    let hidden = hidden.filter(|one| one.hidden(&devices).is_some());
    let lost = attachments.with_children.iter();
    let lost = lost.filter(|one| one.is_lost(&links));
    let modules = ["ib_uverbs", "rdma_ucm", "ib_ipoib"];
    Ok(NodeFacts {
        name,
        shared: sysfs.shares_rdma(),
        ports: reader.ports(),
        hidden: hidden.cloned().collect(),
        lost: lost.cloned().collect(),
        addresses: addresses(view, &links, &candidates)?,
        candidates,
        bonds: reader.bonds(),
        missing_modules: modules
            .into_iter()
            .filter(|module| sysfs.has_module(module) == Some(false))
            .collect(),
        live,
    })
}

/// The node's global addresses on `candidates`.
fn addresses(
    view: &mut dyn View,
    links: &[Link],
    candidates: &[Candidate],
) -> Result<BTreeMap<String, Vec<IpAddr>>, CommandError> {
    let is_candidate = |link: &&Link| {
        let mut rdma = candidates.iter().filter(|candidate| candidate.port.is_some());
        rdma.any(|candidate| candidate.name == link.name)
    };
    let mut all = BTreeMap::new();
    for link in links.iter().filter(is_candidate) {
        let found = view
            .addresses(link.index)
            .map_err(|e| CommandError(format!("cannot list the addresses of {}: {e}", link.name)))?;
        let global = found.iter().filter(|address| address.scope == 0);
        let mut global: Vec<IpAddr> = global.map(|address| address.address.ip()).collect();
        global.sort_unstable();
        if !global.is_empty() {
            all.insert(link.name.clone(), global);
        }
    }
    Ok(all)
}

fn live(sysfs: &Sysfs, data_dir: &Path) -> LiveFacts {
    let devices = sysfs.devices().unwrap_or_default();
    let mut missing_files = Vec::new();
    let files = fs::read_dir("/dev/infiniband").into_iter().flatten().flatten();
    let names: Vec<String> = files
        .filter_map(|file| file.file_name().into_string().ok())
        .collect();
    if !devices.is_empty() {
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
        has_no_umad: !devices.is_empty() && !names.iter().any(|name| name.starts_with("umad")),
        has_no_peermem: has_no_peermem(Path::new("/sys")),
        memlock: memlock(),
        missing_plugins: ["cni-ipoib", "rdma-ipam"].into_iter().filter(plugin).collect(),
        agent_is_missing: pools && !has_listener(Path::new(ipam::agent::SOCKET)),
        damaged: Vec::new(),
        empty_namespaces: Vec::new(),
    }
}

/// Whether a process listens on the unix socket `path`. The file of an agent that was killed stays.
pub(super) fn has_listener(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

/// Whether the GPU driver is loaded without a module that lets adapters access GPU memory. `sys` is the root of sysfs.
pub(super) fn has_no_peermem(sys: &Path) -> bool {
    let peers = [
        "module/nvidia_peermem",
        "kernel/mm/memory_peers/nv_mem",
        "kernel/mm/memory_peers/nv_mem_nc",
    ];
    sys.join("module/nvidia").exists() && peers.iter().all(|peer| !sys.join(peer).exists())
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
