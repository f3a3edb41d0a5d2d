// SPDX-License-Identifier: Apache-2.0
//! The plugin's configuration: `raw::RawConfig` is the JSON as written, [`Config`] cannot be invalid.
//!
//! Everything that can be told without looking at the node is refused here, before anything is touched.
//! Called as `ipoib`, `macvlan` or `host-device` the plugin reads those plugins' configurations as they are.

mod bond;
mod master;
mod raw;
mod rdma;

pub use rdma::{Rdma, RdmaNetns};

pub use bond::BondUse;

use crate::error::Error;
use crate::select::Preferences;
use common::cni::dispatch::Call;
use common::cni::{Dns, Env};
use common::netlink::{HwAddress, IpoibMode, IpvlanMode, MacvlanMode};
use common::rdma::{Guid, Pkey};
use raw::{Dialect, RawConfig};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// The keys of `cni-ipoib` beside those of CNI; the order is the documentation's.
pub const KEYS: [&str; 19] = [
    "master",
    "mode",
    "pkey",
    "ipoibMode",
    "umcast",
    "macvlanMode",
    "bcqueuelen",
    "ipvlanMode",
    "bond",
    "linkInContainer",
    "mtu",
    "mac",
    "guid",
    "rdma",
    "policyRouting",
    "hwaddr",
    "hostAddresses",
    "keepLast",
    "delegateTimeout",
];

/// How long a delegated IPAM plugin may take. Kubelet gives a whole sandbox two minutes.
const DELEGATE_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest time an IPAM plugin may be given. Every runtime has given up on the sandbox by then.
const DELEGATE_TIMEOUT_MAX: u64 = 3600;

/// The smallest MTU that carries IPv6 is 1280, but IPv4-only networks go down to this (RFC 791).
const MTU_MIN: u32 = 68;

/// What kind of interface the pod gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// An `IPoIB` child of an `InfiniBand` parent.
    Ipoib,
    /// A macvlan child of an Ethernet parent.
    Macvlan,
    /// An ipvlan child of an Ethernet parent.
    Ipvlan,
    /// No child: the link itself, moved into the pod.
    Device,
}

/// How the parent is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Master {
    /// By name or altname.
    Named(String),
    /// The network interface of a device, by PCI address or auxiliary device name; the device comes from a device
    /// plugin, so it goes before a name.
    Device(String),
    /// The network interface of the device in this folder of sysfs.
    KernelPath(PathBuf),
    /// By hardware address: on Ethernet the one it was made with or has now, on `InfiniBand` any with the port's GUID.
    Address(HwAddress),
    /// The link of the default route, as the reference macvlan plugin does when it is given no master.
    DefaultRoute,
    /// The best of several that are named or described.
    Preferred(Preferences),
    /// Nowhere: ADD answers with the links that could be named.
    Unset,
}

/// What becomes of the addresses that the host has on a link that is moved whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostAddresses {
    /// The link stays on the host.
    #[default]
    Refuse,
    /// The host does without them as long as the pod lives.
    Restore,
}

/// A configuration that holds on any node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The parent.
    pub master: Master,
    /// The kind of child; none means by the parent's link layer.
    pub mode: Option<Mode>,
    /// The child's partition key; none means the parent's.
    pub pkey: Option<Pkey>,
    /// The child's `IPoIB` mode; none means the parent's.
    pub ipoib_mode: Option<IpoibMode>,
    /// Whether user space may join multicast groups; none means the parent's setting, which the plan passes on.
    pub umcast: Option<bool>,
    /// How macvlan children of one parent reach each other.
    pub macvlan_mode: MacvlanMode,
    /// Packets that the macvlan broadcast queue holds; none means the kernel's default.
    pub bc_queue_len: Option<u32>,
    /// How far ipvlan looks into packets.
    pub ipvlan_mode: IpvlanMode,
    /// What becomes of a parent that is a bond.
    pub bond: BondUse,
    /// The parent is in the pod's namespace.
    pub link_in_container: bool,
    /// The child's MTU in bytes; none means what the kernel gives it.
    pub mtu: Option<u32>,
    /// The child's hardware address; none means the kernel's choice.
    pub mac: Option<HwAddress>,
    /// The GUID that the network or, if it offers that, the pod asks for; neither 0 nor all ones.
    pub guid: Option<Guid>,
    /// The RDMA device that the pod gets; none means that it is named where it is the pod's anyway.
    pub rdma: Option<Rdma>,
    /// What is sent from the interface's addresses leaves through it.
    pub policy_routing: bool,
    /// The IPAM plugin's type; none means no addresses.
    pub ipam: Option<String>,
    /// Name resolution for the result.
    pub dns: Dns,
    /// Where to write what the pod got (device-info-spec 1.1.0).
    pub device_info_file: Option<PathBuf>,
    /// How long the IPAM plugin may take.
    pub delegate_timeout: Duration,
    /// What becomes of the addresses that the host has on a link that is moved.
    pub host_addresses: HostAddresses,
    /// The last active port of a link layer stays on the host.
    pub keep_last: bool,
    /// Which keys were set that only one mode has, for the case that the mode follows from the parent.
    pub only_for: Vec<(&'static str, Mode)>,
}

impl Config {
    /// Reads the configuration of `call`.
    ///
    /// # Errors
    /// Code 6 for a value of a wrong type, 7 for one that cannot be right, 2 for one that is not supported,
    /// 4 for `CNI_ARGS`.
    pub fn read(call: &Call) -> Result<Self, common::cni::Error> {
        raw::require_known_keys(call)?;
        rdma::require_known_keys(call)?;
        call.args.require_known(&["MAC", "IP", "GATEWAY", "GUID"])?;
        let raw: RawConfig = call.conf.decode()?;
        Ok(Self::validate(raw, call)?)
    }

    fn validate(raw: RawConfig, call: &Call) -> Result<Self, Error> {
        if raw.ip_masq {
            return Err(Error::Unsupported {
                key: "ipMasq",
                value: "true".to_owned(),
                remedy: "an RDMA network is not masqueraded; remove it",
            });
        }
        let dialect = Dialect::of(&call.program);
        let (mode, macvlan_mode) = raw.modes(dialect)?;
        let only_for = raw.only_for();
        let host_addresses = raw.host_addresses()?;
        if let Some(mode) = mode {
            require_fitting_keys(&only_for, mode)?;
        }
        let pkey = raw.pkey()?;
        let bond = raw::parse("bond", raw.bond.as_deref())?.unwrap_or_default();
        Ok(Self {
            master: raw.parent(dialect, master::needs(mode, &only_for, pkey, bond))?,
            mode,
            pkey,
            ipoib_mode: raw::parse("ipoibMode", raw.ipoib_mode.as_deref())?,
            // ipoib-cni sets it on every child.
            umcast: raw.umcast.or((dialect == Dialect::Ipoib).then_some(true)),
            macvlan_mode,
            bc_queue_len: raw.bcqueuelen.filter(|len| *len > 0),
            ipvlan_mode: raw::parse("ipvlanMode", raw.ipvlan_mode.as_deref())?.unwrap_or(IpvlanMode::L2),
            bond,
            link_in_container: raw.link_in_container,
            mtu: mtu(raw.mtu)?,
            mac: raw.mac(dialect, &call.args)?,
            guid: raw.guid(dialect, &call.args)?,
            policy_routing: raw.policy_routing()?,
            device_info_file: raw
                .runtime_config
                .cni_device_info_file
                .filter(|f| !f.as_os_str().is_empty()),
            // host-device moves whatever it is told to.
            keep_last: raw.keep_last.unwrap_or(dialect != Dialect::HostDevice),
            rdma: raw.rdma.map(rdma::RawRdma::validate).transpose()?,
            ipam: raw
                .ipam
                .and_then(|ipam| ipam.plugin)
                .filter(|plugin| !plugin.is_empty()),
            dns: raw.dns,
            delegate_timeout: delegate_timeout(raw.delegate_timeout)?,
            host_addresses,
            only_for,
        })
    }
}

/// Fails if a key was set that has no meaning in `mode`: ignoring a pkey would put a pod on the wrong network.
pub fn require_fitting_keys(only_for: &[(&'static str, Mode)], mode: Mode) -> Result<(), Error> {
    match only_for.iter().find(|(_, its)| *its != mode) {
        None => Ok(()),
        Some((key, its)) => Err(Error::KeyOfOtherMode { key, its: *its, mode }),
    }
}

/// 0 means unset, as peers write it.
fn mtu(mtu: Option<i64>) -> Result<Option<u32>, Error> {
    match mtu {
        None | Some(0) => Ok(None),
        Some(bytes) => match u32::try_from(bytes) {
            Ok(mtu) if mtu >= MTU_MIN => Ok(Some(mtu)),
            _ => Err(Error::BadValue {
                key: "mtu",
                value: bytes.to_string(),
                want: format!("{MTU_MIN} bytes or more, or 0 for the kernel's choice"),
            }),
        },
    }
}

/// 0 means unset, as with `mtu`.
fn delegate_timeout(seconds: Option<u64>) -> Result<Duration, Error> {
    match seconds.unwrap_or_default() {
        0 => Ok(DELEGATE_TIMEOUT),
        1..=DELEGATE_TIMEOUT_MAX => Ok(Duration::from_secs(seconds.unwrap_or_default())),
        other => Err(Error::BadValue {
            key: "delegateTimeout",
            value: other.to_string(),
            want: format!(
                "seconds, up to {DELEGATE_TIMEOUT_MAX}, or 0 for {}",
                DELEGATE_TIMEOUT.as_secs()
            ),
        }),
    }
}

/// What DEL and GC need of a configuration, read so that nothing ADD accepted, or would refuse, stops them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The IPAM plugin's type.
    pub ipam: Option<String>,
    /// How long it may take.
    pub delegate_timeout: Duration,
    /// Whether the call came under the name of a peer, whose ADD may have made the link.
    pub is_peer: bool,
}

impl Identity {
    /// Reads what is there and passes over the rest.
    pub fn read(call: &Call) -> Self {
        let object = &call.conf.object;
        let text = |value: Option<&Value>| {
            value
                .and_then(|v| v.as_str())
                .filter(|t| !t.is_empty())
                .map(str::to_owned)
        };
        Self {
            // ADD refuses a type that is a path, so that nothing was allocated by it.
            ipam: text(object.get("ipam").and_then(|ipam| ipam.get("type")))
                .filter(|plugin| is_plugin_name(plugin)),
            delegate_timeout: delegate_timeout(object.get("delegateTimeout").and_then(Value::as_u64))
                .unwrap_or(DELEGATE_TIMEOUT),
            is_peer: matches!(Dialect::of(&call.program), Dialect::Macvlan | Dialect::Ipoib),
        }
    }
}

fn is_plugin_name(text: &str) -> bool {
    !text.contains('/') && text != "." && text != ".."
}

/// Where the plugin keeps and finds things; tests point it elsewhere.
#[derive(Clone, Debug)]
pub struct Places {
    /// Where sysfs is mounted.
    pub sysfs: PathBuf,
    /// Where attachments are written down. Volatile, like the kernel objects it describes: nothing outlives a reboot.
    pub state: PathBuf,
    /// The directories below which device-info files may be.
    pub device_info: Vec<PathBuf>,
}

impl Places {
    /// The node's own; `RDMANET_STATE` moves the state, for a node that mounts no /run.
    pub fn of_node(env: &Env) -> Result<Self, common::cni::Error> {
        let state = env.get("RDMANET_STATE")?.unwrap_or("/run/rdmanet");
        Ok(Self {
            sysfs: PathBuf::from("/sys"),
            state: PathBuf::from(state),
            device_info: crate::device_info::DIRS.map(PathBuf::from).to_vec(),
        })
    }
}

#[cfg(test)]
mod tests;
