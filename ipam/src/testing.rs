// SPDX-License-Identifier: Apache-2.0
//! Shared by the module tests: a plugin with its own directory, a disk and clock under the test's control, and the
//! `pool.json` of a node.

use crate::RdmaIpam;
use crate::clock::Clock;
use crate::config::Place;
use crate::pool::{Allocation, Block, BlockState, Counters, FORMAT, PoolFile, PoolRange};
use crate::store::{Disk, Identity, Node, NodeDisk, Store};
use common::cni::dispatch::{Call, Plugin};
use common::cni::{Args, Attachment, CniResult, Code, Conf, Dns, Error, GcConf, Reader};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// The boot id of every fixture, and the one in which the blocks of [`pool_file`] were confirmed.
pub(crate) const BOOT_ID: &str = "00b00710-0000-4000-8000-000000000001";

/// The limit of a wait that ends earlier, unless something hangs.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// A pool of 10.0.0.0/24 without gateway, of which this node has `blocks`, all active.
pub(crate) fn pool_file(name: &str, blocks: &[&str]) -> PoolFile {
    let active = |cidr: &&str| block(cidr, BlockState::Active);
    PoolFile {
        format: FORMAT,
        pool: name.parse().unwrap(),
        uid: "u".to_owned(),
        generation: 1,
        node: "n1".to_owned(),
        node_uid: "nu".to_owned(),
        boot_id: BOOT_ID.to_owned(),
        quarantine_seconds: 600,
        cooldown_seconds: 30,
        allocation: Allocation::Blocks,
        ranges: vec![range("10.0.0.0/24")],
        reserved: Vec::new(),
        routes: Vec::new(),
        dns: Dns::default(),
        namespaces: None,
        blocks: blocks.iter().map(active).collect(),
        priority: 0,
        fallback: Vec::new(),
        counters: Counters::default(),
    }
}

/// The whole of `subnet`, without gateway.
pub(crate) fn range(subnet: &str) -> PoolRange {
    PoolRange {
        subnet: subnet.parse().unwrap(),
        start: None,
        end: None,
        gateway: None,
        exclude: Vec::new(),
    }
}

pub(crate) fn block(cidr: &str, state: BlockState) -> Block {
    Block {
        name: format!("default-{cidr}"),
        cidr: cidr.parse().unwrap(),
        epoch: 1,
        state,
    }
}

/// Fails unless `error` has `code` and its message has each of `parts`.
pub(crate) fn assert_error(error: &Error, code: Code, parts: &[&str]) {
    assert_eq!(error.code, code, "{error:?}");
    for part in parts {
        assert!(error.msg.contains(part), "{error:?} lacks {part:?}");
    }
}

/// The fault of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The change with this number fails; the others do not.
    Fail {
        at: usize,
        errno: i32,
    },
    /// The process dies at the change with this number; `torn` writes half of it first.
    Die {
        at: usize,
        torn: bool,
    },
    /// The disk is full: what may need space fails, and so does a rename, as on ZFS and Btrfs.
    Full,
    /// The disk is full, and the process dies at the change with this number.
    DieFull {
        at: usize,
    },
    /// The disk is read-only.
    ReadOnly,
}

/// The node's disk with a fault.
pub(crate) struct FaultyDisk {
    pub(crate) fault: Cell<Fault>,
    pub(crate) changes: Cell<usize>,
    pub(crate) shared: Cell<Option<&'static str>>,
    /// How many more files and directories fit; `None` is unlimited. A removed file makes room for one.
    pub(crate) room: Cell<Option<usize>>,
    /// How many names of directories were read.
    pub(crate) listed: Cell<usize>,
    /// Paths that end with one of these are on bad sectors: neither stat(2) nor read(2) works.
    pub(crate) unreadable: Cell<&'static [&'static str]>,
    /// Called before each read.
    pub(crate) before_read: RefCell<Option<Box<dyn Fn()>>>,
}

impl FaultyDisk {
    fn dead(&self) -> bool {
        matches!(self.fault.get(), Fault::Die { at, .. } | Fault::DieFull { at } if self.changes.get() > at)
    }

    fn look<T>(&self, look: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if let Some(before) = &*self.before_read.borrow() {
            before();
        }
        if self.dead() {
            Err(io::Error::other("the process is dead"))
        } else {
            look()
        }
    }

    fn require_readable(&self, path: &Path) -> io::Result<()> {
        if self.unreadable.get().iter().any(|name| path.ends_with(name)) {
            return Err(io::Error::from_raw_os_error(nix::libc::EIO));
        }
        Ok(())
    }

    /// Takes the room of one file or directory, unless `path` exists.
    fn take_room(&self, path: &Path) -> io::Result<()> {
        if let Some(room) = self.room.get().filter(|_| !path.exists()) {
            let left = room.checked_sub(1);
            self.room
                .set(Some(left.ok_or(io::Error::from_raw_os_error(nix::libc::ENOSPC))?));
        }
        Ok(())
    }

    /// Makes a change, a part of it, or none. `grows` is whether it needs space on the disk.
    fn change(
        &self,
        grows: bool,
        whole: impl FnOnce() -> io::Result<()>,
        part: impl FnOnce(),
    ) -> io::Result<()> {
        let number = self.changes.replace(self.changes.get() + 1);
        match self.fault.get() {
            Fault::Fail { at, errno } if at == number => Err(io::Error::from_raw_os_error(errno)),
            Fault::Die { at, torn } if at <= number => {
                if at == number && torn {
                    part();
                }
                Err(io::Error::other("the process is dead"))
            }
            Fault::DieFull { at } if at <= number => Err(io::Error::other("the process is dead")),
            Fault::Full | Fault::DieFull { .. } if grows => {
                Err(io::Error::from_raw_os_error(nix::libc::ENOSPC))
            }
            Fault::ReadOnly => Err(io::Error::from_raw_os_error(nix::libc::EROFS)),
            _ => whole(),
        }
    }
}

impl Disk for FaultyDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.require_readable(path)?;
        self.look(|| NodeDisk.read(path))
    }

    fn identity(&self, path: &Path) -> io::Result<Identity> {
        self.require_readable(path)?;
        self.look(|| NodeDisk.identity(path))
    }

    fn list(&self, path: &Path, most: usize) -> io::Result<Vec<OsString>> {
        let names = self.look(|| NodeDisk.list(path, most))?;
        self.listed.set(self.listed.get() + names.len());
        Ok(names)
    }

    fn shared(&self, path: &Path) -> io::Result<Option<String>> {
        self.look(|| NodeDisk.shared(path))
            .map(|real| self.shared.get().map(str::to_owned).or(real))
    }

    fn create(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.take_room(path)?;
        let half = || drop(NodeDisk.create(path, &content[..content.len() / 2]));
        self.change(true, || NodeDisk.create(path, content), half)
    }

    fn overwrite(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let half = || drop(NodeDisk.overwrite(path, &content[..content.len() / 2]));
        self.change(true, || NodeDisk.overwrite(path, content), half)
    }

    fn append(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let half = || drop(NodeDisk.append(path, &content[..content.len() / 2]));
        self.change(true, || NodeDisk.append(path, content), half)
    }

    fn link(&self, file: &Path, name: &Path) -> io::Result<()> {
        self.change(true, || NodeDisk.link(file, name), || ())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(true, || NodeDisk.rename(from, to), || ())
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let names = NodeDisk.identity(path).map_or(0, |it| it.names);
        self.change(false, || NodeDisk.unlink(path), || ())?;
        if names == 1 {
            self.room.set(self.room.get().map(|room| room + 1));
        }
        Ok(())
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.take_room(path)?;
        self.change(true, || NodeDisk.make_directory(path), || ())
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        self.change(false, || NodeDisk.remove_tree(path), || ())
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.change(false, || NodeDisk.sync(path), || ())
    }
}

/// A clock that a test moves.
pub(crate) struct HandClock {
    pub(crate) boot: RefCell<String>,
    pub(crate) since_boot: Cell<Duration>,
    pub(crate) now: Cell<SystemTime>,
    pub(crate) synchronized: Cell<bool>,
}

impl Clock for HandClock {
    fn boot_id(&self) -> Result<String, Error> {
        Ok(self.boot.borrow().clone())
    }

    fn since_boot(&self) -> Result<Duration, Error> {
        Ok(self.since_boot.get())
    }

    fn now(&self) -> SystemTime {
        self.now.get()
    }

    fn is_synchronized(&self) -> Result<bool, Error> {
        Ok(self.synchronized.get())
    }
}

/// The plugin, with one network in a temporary directory.
pub(crate) struct Fixture {
    pub(crate) plugin: RdmaIpam<FaultyDisk, HandClock>,
    pub(crate) ipam: Value,
    /// The directory of the examined store, below the data directory.
    pub(crate) place: &'static str,
    dir: TempDir,
}

pub(crate) fn attachment(id: &str) -> Attachment {
    Attachment {
        container_id: id.parse().unwrap(),
        ifname: "eth0".parse().unwrap(),
    }
}

impl Fixture {
    /// A fixture with `ipam` and its own `dataDir`.
    pub(crate) fn new(ipam: &Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut ipam = ipam.clone();
        ipam["dataDir"] = json!(dir.path());
        let disk = FaultyDisk {
            fault: Cell::new(Fault::None),
            changes: Cell::new(0),
            shared: Cell::new(None),
            room: Cell::new(None),
            listed: Cell::new(0),
            unreadable: Cell::new(&[]),
            before_read: RefCell::new(None),
        };
        let clock = HandClock {
            boot: RefCell::new(BOOT_ID.to_owned()),
            since_boot: Cell::new(Duration::from_secs(1000)),
            now: Cell::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)),
            synchronized: Cell::new(true),
        };
        Self {
            plugin: RdmaIpam {
                disk,
                clock,
                lock_wait: HANG,
                agent: crate::agent::Client {
                    socket: dir.path().join("agent.sock"),
                    limit: HANG,
                },
            },
            ipam,
            place: "net",
            dir,
        }
    }

    /// A fixture for a network of pools. It examines the files of pool `rail0`.
    pub(crate) fn of_pools(ipam: &Value) -> Self {
        Self {
            place: "pools/rail0",
            ..Self::new(ipam)
        }
    }

    pub(crate) fn data_dir(&self) -> &Path {
        self.dir.path()
    }

    /// From here on the disk has `fault`, and changes are counted from zero.
    pub(crate) fn fault(&self, fault: Fault) {
        self.plugin.disk.changes.set(0);
        self.plugin.disk.fault.set(fault);
    }

    /// Whether the fault's change has been reached.
    pub(crate) fn fault_was_met(&self) -> bool {
        match self.plugin.disk.fault.get() {
            Fault::Fail { at, .. } | Fault::Die { at, .. } | Fault::DieFull { at } => {
                self.plugin.disk.changes.get() > at
            }
            _ => true,
        }
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.plugin
            .clock
            .since_boot
            .set(self.plugin.clock.since_boot.get() + time);
    }

    pub(crate) fn network(&self) -> PathBuf {
        self.dir.path().join(self.place)
    }

    /// A file below the directory of this boot.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.network()
            .join(format!("boot-{}", self.plugin.clock.boot.borrow()))
            .join(name)
    }

    pub(crate) fn call(&self, more: &Value) -> Call {
        let mut conf = json!({"cniVersion": "1.1.0", "name": "net", "ipam": self.ipam});
        conf.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        Call {
            program: "rdma-ipam".to_owned(),
            conf: Conf::read(conf.to_string().as_bytes()).unwrap(),
            args: Args::parse("K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod;K8S_POD_UID=u-1").unwrap(),
            args_text: String::new(),
            path: Vec::new(),
            netns_override: false,
            reader: Reader::PRESENT,
        }
    }

    /// Works on the store of this fixture's network, as the agent does.
    pub(crate) fn with_store<T>(&self, work: impl FnOnce(&Store) -> T) -> T {
        work(&Store::new(&self.store_place(), &self.node()).unwrap())
    }

    fn store_place(&self) -> Place {
        match self.place.strip_prefix("pools/") {
            Some(pool) => Place::of_pool(self.data_dir(), &pool.parse().unwrap()),
            None => Place::read(&self.call(&json!({})).conf).unwrap(),
        }
    }

    fn node(&self) -> Node<'_> {
        Node {
            disk: &self.plugin.disk,
            clock: &self.plugin.clock,
            lock_wait: HANG,
        }
    }

    /// Ends the lease of `id` without DEL, as the agent does for a pod that is gone.
    pub(crate) fn release_without_del(&self, id: &str) -> Result<bool, Error> {
        let node = self.node();
        let store = Store::new(&self.store_place(), &node)?;
        let mut leases = store.leases()?.intact.into_iter();
        let Some(stored) = leases.find(|stored| stored.lease.owner == attachment(id)) else {
            return Ok(false);
        };
        match store.enter_existing()? {
            Some(locked) => locked.release_unchanged(&stored),
            None => Ok(false),
        }
    }

    pub(crate) fn try_add(&self, id: &str) -> Result<CniResult, Error> {
        self.add_in(id, Path::new("/netns"))
    }

    pub(crate) fn add_in(&self, id: &str, netns: &Path) -> Result<CniResult, Error> {
        self.plugin.add(&self.call(&json!({})), &attachment(id), netns)
    }

    /// ADD, which must succeed. Returns the addresses.
    pub(crate) fn add(&self, id: &str) -> Vec<String> {
        let result = self.try_add(id).unwrap_or_else(|e| panic!("ADD {id}: {e:?}"));
        result.ips.iter().map(|ip| ip.address.ip().to_string()).collect()
    }

    pub(crate) fn request(&self, id: &str, ips: &[&str]) -> Result<CniResult, Error> {
        let call = self.call(&json!({"runtimeConfig": {"ips": ips}}));
        self.plugin.add(&call, &attachment(id), Path::new("/netns"))
    }

    pub(crate) fn del(&self, id: &str) -> Result<(), Error> {
        self.plugin.del(&self.call(&json!({})), &attachment(id), None)
    }

    /// DEL with the result of ADD, as a runtime calls it.
    pub(crate) fn del_after(&self, id: &str, added: &CniResult) -> Result<(), Error> {
        let previous = added.to_json(common::cni::Version::LATEST);
        let call = self.call(&json!({ "prevResult": previous }));
        self.plugin.del(&call, &attachment(id), None)
    }

    pub(crate) fn check(&self, id: &str, previous: &CniResult) -> Result<(), Error> {
        let previous = previous.to_json(common::cni::Version::LATEST);
        self.plugin.check(
            &self.call(&json!({"prevResult": previous})),
            &attachment(id),
            Path::new("/netns"),
        )
    }

    pub(crate) fn gc(&self, valid: &[&str]) -> Result<(), Error> {
        self.plugin.gc(
            &self.call(&json!({})),
            &GcConf {
                valid: valid.iter().map(|id| attachment(id)).collect(),
            },
        )
    }

    pub(crate) fn status(&self) -> Result<(), Error> {
        self.plugin.status(&self.call(&json!({})))
    }

    /// The names in a directory of this boot, sorted.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.file(directory)).into_iter().flatten();
        let mut names: Vec<String> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Fails unless the files are those of an idle store: every lease holds its addresses, every address
    /// belongs to one lease, and no address to two.
    pub(crate) fn assert_sound(&self, when: &str) {
        use std::os::unix::fs::MetadataExt;
        let inode = |path: &Path| std::fs::metadata(path).unwrap().ino();
        let mut leased = Vec::new();
        for name in self.names("leases") {
            let path = self.file("leases").join(&name);
            let text = std::fs::read_to_string(&path).unwrap();
            let lease: Value = serde_json::from_str(text.lines().next().unwrap_or_default())
                .unwrap_or_else(|e| panic!("{when}: lease {name} is {text:?}: {e}"));
            for ip in lease["result"]["ips"].as_array().unwrap() {
                let ip = ip["address"]
                    .as_str()
                    .unwrap()
                    .split('/')
                    .next()
                    .unwrap()
                    .to_owned();
                let address = self.file("addresses").join(&ip);
                assert!(address.exists(), "{when}: lease {name} has lost {ip}");
                assert_eq!(
                    inode(&address),
                    inode(&path),
                    "{when}: {ip} of {name} belongs to another lease"
                );
                leased.push(ip);
            }
        }
        leased.sort();
        assert_eq!(
            self.names("addresses"),
            leased,
            "{when}: addresses without a lease, or with two"
        );
        for leftover in ["adding", "removing", "asking/a@eth0"] {
            assert!(!self.file(leftover).exists(), "{when}: {leftover} is left");
        }
    }
}
