// SPDX-License-Identifier: Apache-2.0
//! Requests to the kernel about links that are moved whole.

use super::{Namespaces, Side};
use crate::intent::Sysctls;
use common::netlink::{Added, Carried, Error, IpoibMode, LinkChange, Saved};
use common::netns::Netns;
use common::tcx;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The directories with settings of a link.
const SYSCTLS: [&str; 4] = ["ipv4/conf", "ipv4/neigh", "ipv6/conf", "ipv6/neigh"];

/// A setting that follows from the link.
const NOT_KEPT: &str = "mtu";

/// Links that are moved whole, and their state on the host.
pub trait WholeLinks {
    /// Moves a link from `from` to the other namespace and changes it there, in one request. The link is then
    /// down, and its addresses and routes are gone.
    fn move_link(&mut self, from: Side, index: u32, change: &LinkChange<'_>) -> Result<(), Error>;
    /// The addresses, routes and permanent neighbours of a link on the host.
    fn carried(&mut self, index: u32) -> Result<Carried, Error>;
    /// Restores an object on a link of the host.
    fn restore_saved(&mut self, index: u32, saved: &Saved) -> Result<Added, Error>;
    /// Adds an altname to a link on the host. Returns `false` if the link has it already.
    fn add_altname(&mut self, index: u32, name: &str) -> Result<bool, Error>;
    /// Removes an altname of a link. Returns `false` if the link does not have it.
    fn delete_altname(&mut self, side: Side, index: u32, name: &str) -> Result<bool, Error>;
    /// Changes the transport of an `IPoIB` link.
    fn change_ipoib(&mut self, side: Side, index: u32, mode: IpoibMode, umcast: bool) -> Result<(), Error>;
    /// The sysctls of a link on the host that differ from the defaults.
    fn sysctls(&mut self, name: &str) -> io::Result<Sysctls>;
    /// Sets one sysctl.
    fn set_sysctl(&mut self, name: &str, key: &str, value: &str) -> io::Result<()>;
    /// Whether a link on the host runs programs by tcx.
    fn has_tcx(&mut self, index: u32) -> io::Result<bool>;
    /// Detaches these programs from a link on the host.
    fn remove_tcx(&mut self, index: u32) -> io::Result<()>;
}

impl WholeLinks for Namespaces<'_> {
    fn move_link(&mut self, from: Side, index: u32, change: &LinkChange<'_>) -> Result<(), Error> {
        let host = Netns::current().map_err(|e| Error::Netns(io::Error::other(e)))?;
        let to = match from {
            Side::Host => self.pod()?.1,
            Side::Pod => &host,
        };
        let change = LinkChange {
            netns: Some(to.as_fd()),
            ..*change
        };
        self.on(from)?.change_link(index, &change)
    }

    fn carried(&mut self, index: u32) -> Result<Carried, Error> {
        self.host.save(index)
    }

    fn restore_saved(&mut self, index: u32, saved: &Saved) -> Result<Added, Error> {
        self.host.restore(index, saved)
    }

    fn add_altname(&mut self, index: u32, name: &str) -> Result<bool, Error> {
        self.host.add_altname(index, name)
    }

    fn delete_altname(&mut self, side: Side, index: u32, name: &str) -> Result<bool, Error> {
        self.on(side)?.delete_altname(index, name)
    }

    fn change_ipoib(&mut self, side: Side, index: u32, mode: IpoibMode, umcast: bool) -> Result<(), Error> {
        self.on(side)?.change_ipoib(index, mode, umcast)
    }

    fn sysctls(&mut self, name: &str) -> io::Result<Sysctls> {
        let mut differ = Sysctls::new();
        for kind in SYSCTLS {
            let keys = match fs::read_dir(directory(kind, name)) {
                Ok(keys) => keys,
                // The kernel has no IPv6, or the link has it disabled.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(e),
            };
            for key in keys {
                let key = key?.file_name().to_string_lossy().into_owned();
                let read = |of: &str| fs::read_to_string(directory(kind, of).join(&key));
                // The secret of a link that has none cannot be read.
                let Ok(is) = read(name) else { continue };
                if key != NOT_KEPT && read("default").ok().as_ref() != Some(&is) {
                    differ.insert(format!("{kind}/{key}"), is.trim_end().to_owned());
                }
            }
        }
        Ok(differ)
    }

    fn set_sysctl(&mut self, name: &str, key: &str, value: &str) -> io::Result<()> {
        let (kind, key) = key.rsplit_once('/').unwrap_or((key, ""));
        fs::write(directory(kind, name).join(key), value)
    }

    // The plugin's own threads never leave the host's namespace.
    fn has_tcx(&mut self, index: u32) -> io::Result<bool> {
        tcx::is_used(index)
    }

    fn remove_tcx(&mut self, index: u32) -> io::Result<()> {
        tcx::remove_all(index).map(drop)
    }
}

/// The sysctls of a link on the host. The plugin's own threads never leave the host's namespace.
fn directory(kind: &str, name: &str) -> PathBuf {
    Path::new("/proc/sys/net").join(kind).join(name)
}
