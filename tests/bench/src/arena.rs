// SPDX-License-Identifier: Apache-2.0
//! The node of a run: a network and a mount namespace that end with this process, and a temporary directory for the
//! leases.
//!
//! Pods exist until the end of the run: the kernel removes a namespace in the background, which would disturb the next
//! samples.

use std::fs::{self, File};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{io, thread};

use nix::ifaddrs::getifaddrs;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{SockaddrLike, SockaddrStorage};
use tempfile::TempDir;

use crate::error::{Error, IoContext, Result};

/// The parent link of the attachments.
pub(crate) const MASTER: &str = "bench0";
/// The other end of the parent link's cable.
const PEER: &str = "bench1";

const NONE: Option<&str> = None;

/// The node of one run.
pub(crate) struct Arena {
    dir: TempDir,
    pods: usize,
}

/// A network namespace as a container runtime passes it to a plugin: a file that the namespace is mounted on.
#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) netns: PathBuf,
}

/// One address of a link, or the link alone.
pub(crate) type LinkAddress = (String, Option<IpAddr>);

impl Arena {
    /// Moves this process into its own namespaces and creates the parent link. Must run before any thread is started.
    pub(crate) fn enter() -> Result<Self> {
        let dir =
            TempDir::with_prefix("rdmanet-bench-").context(|| "cannot make a temporary directory".into())?;
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)
            .context(|| "cannot leave the host's namespaces".into())?;
        mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)
            .context(|| "cannot keep mounts from spreading".into())?;
        mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), NONE)
            .context(|| "cannot mount the new namespace's /sys".into())?;
        let arena = Self { dir, pods: 0 };
        fs::create_dir(arena.run_dir()).context(|| "cannot make the run-time directory".into())?;
        mount(
            Some("tmpfs"),
            &arena.run_dir(),
            Some("tmpfs"),
            MsFlags::empty(),
            Some("size=16m"),
        )
        .context(|| "cannot mount the run-time directory".into())?;
        fs::create_dir(arena.pods_dir()).context(|| "cannot make the directory of pods".into())?;
        ip(&["link", "add", MASTER, "type", "veth", "peer", "name", PEER])?;
        ip(&["link", "set", PEER, "up"])?;
        ip(&["link", "set", MASTER, "up"])?;
        Ok(arena)
    }

    /// The description of the node in the report.
    pub(crate) fn describe(&self) -> String {
        format!("veth parent, leases on {}", file_system(self.dir.path()))
    }

    /// A directory `name` for leases. All of them are on one file system.
    pub(crate) fn data_dir(&self, name: &str) -> PathBuf {
        self.dir.path().join("leases").join(name)
    }

    /// Creates a pod whose network namespace contains only `lo`.
    pub(crate) fn pod(&mut self) -> Result<Pod> {
        self.pods += 1;
        let netns = self.pods_dir().join(format!("pod-{}", self.pods));
        File::create(&netns).context(|| format!("cannot create {}", netns.display()))?;
        let made = in_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            mount(
                Some("/proc/thread-self/ns/net"),
                &netns,
                NONE,
                MsFlags::MS_BIND,
                NONE,
            )?;
            Ok(())
        });
        made.context(|| format!("cannot make the namespace {}", netns.display()))?;
        Ok(Pod { netns })
    }

    /// The directory of a plugin's state until the next boot: in memory, as `/run` is on a node.
    pub(crate) fn state_dir(&self) -> PathBuf {
        self.run_dir().join("state")
    }

    fn pods_dir(&self) -> PathBuf {
        self.run_dir().join("pods")
    }

    fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // One detach unmounts the tmpfs with every namespace mounted in it. The directory below can be removed only
        // after that.
        let _ = umount2(&self.run_dir(), MntFlags::MNT_DETACH);
    }
}

impl Pod {
    /// The links of the pod: each link has one entry without an address, and one for each of its addresses.
    pub(crate) fn links(&self) -> Result<Vec<LinkAddress>> {
        let found = in_thread(|| {
            let netns = File::open(&self.netns)?;
            enter(&netns)?;
            let found = getifaddrs()?.map(|found| (found.interface_name, found.address.and_then(ip_address)));
            Ok(found.collect())
        });
        found.context(|| format!("cannot list the links in {}", self.netns.display()))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "called on a thread that ends afterwards, see in_thread"
)]
fn enter(netns: &File) -> nix::Result<()> {
    nix::sched::setns(netns, CloneFlags::CLONE_NEWNET)
}

/// Runs `work` on a separate thread: a thread that has changed its namespace must not run anything else.
fn in_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread that enters the namespace panicked")))
}

fn ip_address(address: SockaddrStorage) -> Option<IpAddr> {
    address.family()?;
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

fn ip(args: &[&str]) -> Result<()> {
    let call = format!("ip {}", args.join(" "));
    let output = Command::new("ip")
        .args(args)
        .output()
        .context(|| format!("cannot run '{call}' (the package iproute2 has ip)"))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Io {
        context: format!("'{call}' failed"),
        source: io::Error::other(message),
    })
}

/// The type of the file system that holds `path`, from the longest mount point above it (proc(5), mountinfo).
fn file_system(path: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let holding = mounts.lines().filter_map(|line| {
        let (mount, origin) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?;
        path.starts_with(point)
            .then_some((point.len(), origin.split(' ').next()?))
    });
    holding
        .max_by_key(|&(length, _)| length)
        .map_or("an unknown file system", |(_, kind)| kind)
        .to_owned()
}
