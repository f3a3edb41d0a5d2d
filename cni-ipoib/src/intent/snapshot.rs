// SPDX-License-Identifier: Apache-2.0
//! The state of a link on the host, written to the journal before the link is touched.

use super::{Function, Hardware};
use crate::error::Error;
use common::netlink::{AddrGenMode, HwAddress, IpoibMode, Link, LinkInfo, PacketLimits, Saved};
use common::rdma::Guid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Settings of one link below `/proc/sys/net`, by `FAMILY/KIND/KEY`, e.g. `ipv4/conf/rp_filter`.
pub type Sysctls = BTreeMap<String, String>;

/// How a link handles packets. The kernel keeps this when the link changes its namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PacketSettings {
    /// Its flags ([`Link::flags`]).
    pub flags: u32,
    /// The largest number of packets that wait for transmission.
    pub tx_queue: u32,
    /// The highest state that it reaches by itself ([`Link::link_mode`]). An earlier version did not record it: an
    /// administrator's link has 0.
    #[serde(default)]
    pub link_mode: u8,
    /// The hardware address of broadcasts; `None` in a snapshot of an earlier version.
    #[serde(default)]
    pub broadcast: Option<HwAddress>,
    /// How large the packets are that the kernel builds and joins; no limits in a snapshot of an earlier version.
    #[serde(default)]
    pub limits: PacketLimits,
    /// Whether an XDP program of the host processes its packets. The pod's are removed only if there was none.
    pub xdp: bool,
    /// The same for tcx; `None` if it is not known, as in a snapshot of an earlier version.
    #[serde(default)]
    pub tcx: Option<bool>,
}

impl PacketSettings {
    /// Those of `link`. `tcx`: whether programs of the host process its packets by tcx, if that is known.
    pub fn of(link: &Link, tcx: Option<bool>) -> Self {
        Self {
            flags: link.flags,
            tx_queue: link.tx_queue,
            link_mode: link.link_mode,
            broadcast: Some(link.broadcast.clone()),
            limits: link.limits,
            xdp: !link.xdp.is_empty(),
            tcx,
        }
    }
}

/// Everything that is restored when the pod is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The boot in which it was taken. After a reboot the kernel has recreated the link, and the snapshot is
    /// void.
    pub boot: String,
    /// The identity of the link.
    pub hardware: Hardware,
    /// The number of its port on its device, from 1; `None` in a snapshot of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// Its name on the host.
    pub name: String,
    /// Its altnames.
    pub altnames: Vec<String>,
    /// Its description.
    pub alias: Option<String>,
    /// Its group.
    pub group: u32,
    /// Its hardware address.
    pub address: HwAddress,
    /// Its MTU, in bytes.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// How it handles packets; `None` in a snapshot of an earlier version.
    #[serde(default)]
    pub packets: Option<PacketSettings>,
    /// Its mode of making link-local addresses, with the name of `ip link`.
    pub addr_gen_mode: Option<String>,
    /// Its `IPoIB` mode, with the name of `ip link`, and whether user space joins multicast groups.
    pub ipoib: Option<(String, bool)>,
    /// Its addresses, routes and permanent neighbours.
    pub carried: Vec<Saved>,
    /// Its sysctls that differ from the defaults.
    pub sysctls: Sysctls,
    /// Its virtual function, with the GUIDs, if it gets others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<Function>,
}

impl Snapshot {
    /// The same for a virtual function that gets `guid`: its link is recreated with it.
    #[must_use]
    pub fn of_function(self, function: Function, guid: Guid) -> Self {
        let hardware = Hardware {
            port_guid: Some(guid),
            by_device: true,
            ..self.hardware
        };
        Self {
            hardware,
            function: Some(function),
            ..self
        }
    }

    /// Whether it was taken since this machine started.
    pub fn is_of_this_boot(&self) -> bool {
        boot().is_ok_and(|boot| boot == self.boot)
    }

    /// The `IPoIB` mode of `link`, and whether user space joins groups; `None` for a link of another kind.
    pub fn transport_of(link: &Link) -> Option<(IpoibMode, bool)> {
        match &link.info {
            LinkInfo::Ipoib { mode, umcast, .. } => Some((*mode, *umcast)),
            _ => None,
        }
    }

    /// The `IPoIB` mode and whether user space joins groups.
    pub fn ipoib(&self) -> Option<(IpoibMode, bool)> {
        let (mode, umcast) = self.ipoib.as_ref()?;
        Some((mode.parse().ok()?, *umcast))
    }

    /// The link's mode of making link-local addresses.
    pub fn addr_gen_mode(&self) -> Option<AddrGenMode> {
        self.addr_gen_mode.as_deref()?.parse().ok()
    }
}

/// The id of this boot (`random(4)`, `boot_id`).
pub(crate) fn boot() -> Result<String, Error> {
    let file = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(file).map_err(|source| Error::Io {
        what: "read",
        path: PathBuf::from(file),
        remedy: "is /proc mounted?",
        source,
    })?;
    Ok(text.trim().to_owned())
}
