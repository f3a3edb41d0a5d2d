// SPDX-License-Identifier: Apache-2.0
//! rdma-ipam's own store, and the same with every file and directory synced.

use super::Backend;
use common::cni::{Attachment, CniResult, Error as CniError, IpConfig};
use ipam::allocator::allocate;
use ipam::clock::KernelClock;
use ipam::config::{Place, Requests};
use ipam::range::{Range, RangeSpec};
use ipam::store::{Disk, Identity, Node, NodeDisk, Store};
use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub struct Files {
    dir: PathBuf,
    synced: bool,
    sets: Vec<Vec<Range>>,
}

impl Files {
    pub fn open(dir: &Path, synced: bool) -> Result<Self, Box<dyn Error>> {
        let spec = RangeSpec {
            place: "bench".to_owned(),
            subnet: "10.0.0.0/16".parse()?,
            start: None,
            end: None,
            gateway: None,
            exclude: Vec::new(),
        };
        Ok(Self {
            dir: dir.to_owned(),
            synced,
            sets: vec![vec![Range::new(spec, &std::sync::Arc::default())?]],
        })
    }
}

impl Backend for Files {
    fn add(&mut self, key: &str) -> Result<Ipv4Addr, Box<dyn Error>> {
        let disk: &dyn Disk = if self.synced { &Synced } else { &NodeDisk };
        let node = Node {
            disk,
            clock: &KernelClock,
            lock_wait: Duration::from_secs(10),
        };
        let place = Place {
            name: "bench".to_owned(),
            network: "bench".to_owned(),
            dir: self.dir.clone(),
            is_pool: false,
            cooldown: Duration::from_secs(30),
        };
        let (container, ifname) = key.split_once('@').ok_or("want container@ifname")?;
        let owner = Attachment {
            container_id: container.parse()?,
            ifname: ifname.parse()?,
        };
        let store = Store::new(&place, &node)?;
        let locked = store.enter()?;
        if locked.lease(&owner)?.is_some() {
            return Err("there is a lease already".into());
        }
        let given = allocate(&self.sets, &Requests::default(), &locked)?;
        let ips = given
            .iter()
            .map(|a| IpConfig {
                address: a.ip.into(),
                gateway: None,
                interface: None,
                probe: false,
            })
            .collect();
        let lease = locked.draft(
            &owner,
            ipam::store::Sandbox::default(),
            CniResult {
                ips,
                ..CniResult::default()
            },
        )?;
        locked.commit(&lease)?;
        given.iter().for_each(|a| locked.remember(a.range, a.ip));
        match given[0].ip {
            IpAddr::V4(ip) => Ok(ip),
            IpAddr::V6(_) => {
                Err(CniError::new(common::cni::Code::INTERNAL, "an IPv4 range gave IPv6").into())
            }
        }
    }
}

/// What it would cost to survive a power loss.
struct Synced;

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync)
}

impl Disk for Synced {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        NodeDisk.read(path)
    }
    fn identity(&self, path: &Path) -> io::Result<Identity> {
        NodeDisk.identity(path)
    }
    fn list(&self, path: &Path, most: usize) -> io::Result<Vec<OsString>> {
        NodeDisk.list(path, most)
    }
    fn shared(&self, path: &Path) -> io::Result<Option<String>> {
        NodeDisk.shared(path)
    }
    fn create(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        NodeDisk.create(path, content)?;
        sync(path)
    }
    fn overwrite(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        NodeDisk.overwrite(path, content)
    }
    fn append(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        NodeDisk.append(path, content)?;
        sync(path)
    }
    fn link(&self, file: &Path, name: &Path) -> io::Result<()> {
        NodeDisk.link(file, name)?;
        sync_parent(name)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        NodeDisk.rename(from, to)?;
        sync_parent(to)?;
        sync_parent(from)
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        NodeDisk.unlink(path)
    }
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        NodeDisk.make_directory(path)
    }
    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        NodeDisk.remove_tree(path)
    }
    fn sync(&self, path: &Path) -> io::Result<()> {
        NodeDisk.sync(path)
    }
}
