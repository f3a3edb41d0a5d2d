// SPDX-License-Identifier: Apache-2.0
//! The plugin's configuration: `raw::RawConfig` is the JSON as written, [`Config`] is always valid.
//!
//! Everything that can be checked without the node is checked here, before any change. Called as `ipoib`,
//! `macvlan` or `host-device`, the plugin reads the configurations of those plugins unchanged.

mod bond;
mod master;
pub(crate) mod preferences;
mod raw;
mod rdma;
mod value;

pub use preferences::{Needs, Preference, Preferences, Selector};
pub use rdma::{Rdma, RdmaNetns};

pub use crate::mode::Mode;
pub use bond::BondUse;
pub(crate) use raw::names_a_device;

use crate::error::Error;
use common::cni::dispatch::Call;
use common::cni::{Dns, Env};
use common::netlink::{HwAddress, IpoibMode, IpvlanMode, MacvlanMode};
use common::rdma::{Guid, Pkey};
use raw::{Dialect, RawConfig};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// The keys of `cni-ipoib` besides those of CNI, in the order of the documentation.
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

/// The default time limit of an IPAM plugin. kubelet allows four minutes to start a sandbox, and two to stop it.
const DELEGATE_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest time limit of an IPAM plugin. Every runtime has given up on the sandbox by then.
const DELEGATE_TIMEOUT_MAX: u64 = 3600;

/// An IPAM plugin that looks for the interface in the pod during its ADD (`AcquireLease` of `plugins/ipam/dhcp/lease.go`
/// of containernetworking/plugins). It finds none, because addresses come before the link.
const DHCP: &str = "dhcp";

/// IPv6 needs an MTU of 1280, but IPv4-only networks may go down to this (RFC 791).
const MTU_MIN: u32 = 68;

/// The parent, as the configuration has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Master {
    /// One link.
    Resolved(ResolvedMaster),
    /// The best of several links that are named or described.
    Preferred(Preferences),
}

/// One link as the parent, and how it is identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolvedMaster {
    /// By name or altname.
    Named(String),
    /// The network interface of a device, by PCI address or auxiliary device name. A device plugin chose the
    /// device, so it takes precedence over a name.
    Device(String),
    /// The network interface of the device in this directory of sysfs.
    KernelPath(PathBuf),
    /// By hardware address: on Ethernet the permanent or the present one, on `InfiniBand` any with the port's
    /// GUID.
    Address(HwAddress),
    /// The link of the default route, as in the reference macvlan plugin without a master.
    DefaultRoute,
    /// Not set: ADD fails, and the error lists the links that could be named.
    Unset,
}

/// What happens to the host's addresses on a link that is moved whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostAddresses {
    /// The link stays on the host.
    #[default]
    Refuse,
    /// The addresses are removed, and restored when the pod is gone.
    Restore,
}

/// A configuration that is valid on any node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The parent.
    pub master: Master,
    /// The kind of child; `None` is chosen by the parent's link layer.
    pub mode: Option<Mode>,
    /// The child's partition key; `None` is the parent's.
    pub pkey: Option<Pkey>,
    /// The child's `IPoIB` mode; `None` is the parent's.
    pub ipoib_mode: Option<IpoibMode>,
    /// Whether user space may join multicast groups; `None` is the parent's setting.
    pub umcast: Option<bool>,
    /// How macvlan children of one parent reach each other.
    pub macvlan_mode: MacvlanMode,
    /// The length of the macvlan broadcast queue; `None` is the kernel's default.
    pub bc_queue_len: Option<u32>,
    /// The layer at which ipvlan shares its parent.
    pub ipvlan_mode: IpvlanMode,
    /// How a bond is used as a parent.
    pub bond: BondUse,
    /// The parent is in the pod's namespace.
    pub link_in_container: bool,
    /// The child's MTU in bytes; `None` is the kernel's choice.
    pub mtu: Option<u32>,
    /// The child's hardware address; `None` is the kernel's choice.
    pub mac: Option<HwAddress>,
    /// The GUID requested by the network or, if the network allows it, by the pod; neither 0 nor all ones.
    pub guid: Option<Guid>,
    /// The RDMA device of the pod; `None` only reports a device that the pod sees anyway.
    pub rdma: Option<Rdma>,
    /// Packets from the interface's addresses leave through it.
    pub policy_routing: bool,
    /// The IPAM plugin's type; `None` means no addresses.
    pub ipam: Option<String>,
    /// Name resolution for the result.
    pub dns: Dns,
    /// The device-info file (device-info-spec 1.1.0).
    pub device_info_file: Option<PathBuf>,
    /// The time limit of the IPAM plugin.
    pub delegate_timeout: Duration,
    /// What happens to the host's addresses on a link that is moved.
    pub host_addresses: HostAddresses,
    /// The last active port of a link layer stays on the host.
    pub keep_last: bool,
    /// The keys that were set and belong to one mode only, for a mode that follows from the parent.
    pub only_for: Vec<(&'static str, Mode)>,
}

impl Config {
    /// Reads the configuration of `call`.
    ///
    /// # Errors
    /// Code 6 for a value of a wrong type, 7 for an invalid value, 2 for an unsupported value, 4 for
    /// `CNI_ARGS`.
    pub fn read(call: &Call) -> Result<Self, common::cni::Error> {
        raw::require_known_keys(call)?;
        rdma::require_known_keys(call)?;
        call.args.require_known(&["MAC", "IP", "GATEWAY", "GUID"])?;
        let raw: RawConfig = call.conf.decode()?;
        Ok(Self::validate(raw, call)?)
    }

    fn validate(raw: RawConfig, call: &Call) -> Result<Self, Error> {
        let dialect = Dialect::of(&call.program);
        // The other plugins ignore the key.
        if raw.ip_masq && dialect == Dialect::Own {
            return Err(Error::Unsupported {
                key: "ipMasq",
                value: "true".to_owned(),
                remedy: "an RDMA network is not masqueraded; remove it",
            });
        }
        let ipam = raw.ipam.as_ref().and_then(|ipam| ipam.plugin.clone());
        if ipam.as_deref() == Some(DHCP) {
            return Err(Error::Unsupported {
                key: "ipam.type",
                value: DHCP.to_owned(),
                remedy: "it needs the interface, and the IPAM plugin is called before the interface exists; use rdma-ipam, host-local, static or whereabouts",
            });
        }
        let (mode, macvlan_mode) = raw.modes(dialect)?;
        let only_for = raw.only_for();
        let host_addresses = raw.host_addresses()?;
        if let Some(mode) = mode {
            require_fitting_keys(&only_for, mode)?;
        }
        let pkey = raw.pkey()?;
        let bond = value::parse("bond", raw.bond.as_deref())?.unwrap_or_default();
        let needs = Needs {
            unused: macvlan_mode == MacvlanMode::Passthru,
            ..master::needs(mode, &only_for, pkey, bond)
        };
        Ok(Self {
            master: raw.parent(dialect, needs)?,
            mode,
            pkey,
            ipoib_mode: value::parse("ipoibMode", raw.ipoib_mode.as_deref())?,
            // ipoib-cni sets it on every child.
            umcast: raw.umcast.or((dialect == Dialect::Ipoib).then_some(true)),
            macvlan_mode,
            bc_queue_len: raw.bcqueuelen.filter(|len| *len > 0),
            ipvlan_mode: value::parse("ipvlanMode", raw.ipvlan_mode.as_deref())?.unwrap_or(IpvlanMode::L2),
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
            // host-device moves any link it is configured with.
            keep_last: raw.keep_last.unwrap_or(dialect != Dialect::HostDevice),
            rdma: raw.rdma.map(rdma::RawRdma::validate).transpose()?,
            ipam: ipam.filter(|plugin| !plugin.is_empty()),
            dns: raw.dns,
            delegate_timeout: delegate_timeout(raw.delegate_timeout)?,
            host_addresses,
            only_for,
        })
    }
}

/// Fails if a key was set that has no meaning in `mode`: ignoring a pkey would put a pod on the wrong
/// network.
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

/// The part of a configuration that DEL and GC need. Reading it never fails, whether ADD accepts the rest or
/// not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The IPAM plugin's type.
    pub ipam: Option<String>,
    /// The time limit of the IPAM plugin.
    pub delegate_timeout: Duration,
    /// Whether the plugin was called under the name of a peer, whose ADD may have created the link.
    pub is_peer: bool,
}

impl Identity {
    /// Reads the values that exist and ignores the rest.
    pub fn read(call: &Call) -> Self {
        let object = &call.conf.object;
        let text = |value: Option<&Value>| {
            value
                .and_then(|v| v.as_str())
                .filter(|t| !t.is_empty())
                .map(str::to_owned)
        };
        let dialect = Dialect::of(&call.program);
        Self {
            // ADD refuses a type that is a path, and `dhcp`, so such a plugin has allocated nothing. A peer's ADD accepts
            // `dhcp`.
            ipam: text(object.get("ipam").and_then(|ipam| ipam.get("type")))
                .filter(|plugin| is_plugin_name(plugin) && (plugin != DHCP || dialect != Dialect::Own)),
            delegate_timeout: delegate_timeout(object.get("delegateTimeout").and_then(Value::as_u64))
                .unwrap_or(DELEGATE_TIMEOUT),
            is_peer: matches!(dialect, Dialect::Macvlan | Dialect::Ipoib),
        }
    }
}

fn is_plugin_name(text: &str) -> bool {
    !text.contains('/') && text != "." && text != ".."
}

/// The directory of device-info files (device-info-spec 1.1.0), under both of its names.
pub(crate) const DEVICE_INFO_DIRS: [&str; 2] = ["/run/k8s.cni.cncf.io", "/var/run/k8s.cni.cncf.io"];

/// The paths that the plugin uses. Tests replace them.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The mount point of sysfs.
    pub sysfs: PathBuf,
    /// The state directory. Volatile, like the kernel objects it describes: neither survives a reboot.
    pub state: PathBuf,
    /// The directories that may contain device-info files.
    pub device_info: Vec<PathBuf>,
}

impl Paths {
    /// The node's own paths. `RDMANET_STATE` replaces the state directory, for a node that mounts no /run.
    pub fn of_node(env: &Env) -> Result<Self, common::cni::Error> {
        let state = env.get("RDMANET_STATE")?.unwrap_or("/run/rdmanet");
        Ok(Self {
            sysfs: PathBuf::from("/sys"),
            state: PathBuf::from(state),
            device_info: DEVICE_INFO_DIRS.map(PathBuf::from).to_vec(),
        })
    }
}

#[cfg(test)]
mod tests;
