// SPDX-License-Identifier: Apache-2.0
//! The configuration as it is written.

use super::value::{parse, pkey};
use super::{HostAddresses, KEYS, Master, Mode, Needs, ResolvedMaster, master};
use crate::error::Error;
use common::cni::dispatch::Call;
use common::cni::keys::{self, CNI_KEYS};
use common::cni::{Args, Dns};
use common::netlink::{HwAddress, MacvlanMode};
use common::rdma::{Guid, Pkey};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Component, PathBuf};
use std::str::FromStr;

/// The dialects of the configuration: this plugin's own, or a peer's if the binary has the peer's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `cni-ipoib`.
    Own,
    /// `ipoib` of Mellanox/ipoib-cni.
    Ipoib,
    /// `macvlan` of containernetworking/plugins.
    Macvlan,
    /// `host-device` of containernetworking/plugins.
    HostDevice,
}

impl Dialect {
    /// The dialect of a binary named `program`.
    pub(super) fn of(program: &str) -> Self {
        match program {
            "ipoib" => Self::Ipoib,
            "macvlan" => Self::Macvlan,
            "host-device" => Self::HostDevice,
            _ => Self::Own,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RawConfig {
    pub(super) master: Option<Value>,
    pub(super) mode: Option<String>,
    pub(super) pkey: Option<Value>,
    pub(super) ipoib_mode: Option<String>,
    pub(super) umcast: Option<bool>,
    pub(super) macvlan_mode: Option<String>,
    pub(super) bcqueuelen: Option<u32>,
    pub(super) ipvlan_mode: Option<String>,
    pub(super) bond: Option<String>,
    pub(super) link_in_container: bool,
    pub(super) mtu: Option<i64>,
    pub(super) mac: Option<String>,
    pub(super) guid: Option<String>,
    pub(super) policy_routing: Option<String>,
    pub(super) hwaddr: Option<String>,
    pub(super) host_addresses: Option<String>,
    pub(super) keep_last: Option<bool>,
    pub(super) delegate_timeout: Option<u64>,
    pub(super) ip_masq: bool,
    pub(super) rdma: Option<super::rdma::RawRdma>,
    pub(super) ipam: Option<RawIpam>,
    pub(super) dns: Dns,
    #[serde(rename = "deviceID")]
    pub(super) device_id: Option<String>,
    #[serde(rename = "pciBusID")]
    pub(super) pci_bus_id: Option<String>,
    /// `host-device` only.
    device: Option<String>,
    /// `host-device` only.
    kernelpath: Option<String>,
    capabilities: BTreeMap<String, Value>,
    pub(super) runtime_config: RuntimeConfig,
    pub(super) args: RawArgs,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct RawIpam {
    #[serde(rename = "type")]
    pub(super) plugin: Option<String>,
}

/// `runtimeConfig`: only the capabilities of this plugin. Addresses (`ips`) are for the IPAM plugin.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RuntimeConfig {
    pub(super) mac: Option<String>,
    #[serde(rename = "infinibandGUID")]
    pub(super) infiniband_guid: Option<String>,
    #[serde(rename = "deviceID")]
    pub(super) device_id: Option<String>,
    #[serde(rename = "CNIDeviceInfoFile")]
    pub(super) cni_device_info_file: Option<PathBuf>,
}

/// `args`: Multus copies `cni-args` of the pod's annotation here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawArgs {
    cni: CniArgs,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CniArgs {
    mac: Option<String>,
    guid: Option<String>,
}

/// Refuses unknown keys. A peer ignores them, so they are ignored under a peer's name.
pub(super) fn require_known_keys(call: &Call) -> Result<(), common::cni::Error> {
    if Dialect::of(&call.program) != Dialect::Own {
        return Ok(());
    }
    let known = KEYS.iter().chain(&CNI_KEYS).copied().collect::<Vec<_>>();
    keys::require_known(&call.conf.object, &known, "")
}

impl RawConfig {
    /// The kind of child and the macvlan mode; the reference macvlan plugin calls the latter `mode`.
    pub(super) fn modes(&self, dialect: Dialect) -> Result<(Option<Mode>, MacvlanMode), Error> {
        let (mode, macvlan, key) = match dialect {
            Dialect::Macvlan => (Some(Mode::Macvlan), self.mode.as_deref(), "mode"),
            Dialect::Ipoib => (Some(Mode::Ipoib), None, "mode"),
            Dialect::HostDevice => (Some(Mode::Device), None, "mode"),
            Dialect::Own => (
                mode(self.mode.as_deref())?,
                self.macvlan_mode.as_deref(),
                "macvlanMode",
            ),
        };
        if macvlan == Some("source") {
            let remedy =
                "a child in source mode receives nothing without a list of sources, for which CNI has no key";
            return Err(Error::Unsupported {
                key,
                value: "source".to_owned(),
                remedy,
            });
        }
        Ok((mode, parse(key, macvlan)?.unwrap_or(MacvlanMode::Bridge)))
    }

    /// The keys that were set and belong to one mode only.
    pub(super) fn only_for(&self) -> Vec<(&'static str, Mode)> {
        let set = [
            (self.pkey.is_some(), "pkey", Mode::Ipoib),
            (self.ipoib_mode.is_some(), "ipoibMode", Mode::Ipoib),
            (self.umcast.is_some(), "umcast", Mode::Ipoib),
            (self.macvlan_mode.is_some(), "macvlanMode", Mode::Macvlan),
            (self.bcqueuelen.is_some(), "bcqueuelen", Mode::Macvlan),
            (self.ipvlan_mode.is_some(), "ipvlanMode", Mode::Ipvlan),
            (self.host_addresses.is_some(), "hostAddresses", Mode::Device),
            (self.keep_last.is_some(), "keepLast", Mode::Device),
        ];
        set.into_iter()
            .filter(|(is_set, ..)| *is_set)
            .map(|(_, key, mode)| (key, mode))
            .collect()
    }

    /// The parent. `needs` are the requirements of the rest of the configuration.
    pub(super) fn parent(&self, dialect: Dialect, needs: Needs) -> Result<Master, Error> {
        if dialect == Dialect::HostDevice {
            return self.host_device();
        }
        let master = self.written_parent(dialect, needs)?;
        // A device plugin's choice takes precedence over a hardware address. A name beside a hardware address
        // is an error.
        match (self.by_address()?, master) {
            (Some(address), Master::Resolved(ResolvedMaster::Unset | ResolvedMaster::DefaultRoute)) => {
                Ok(Master::Resolved(ResolvedMaster::Address(address)))
            }
            (None, master) | (Some(_), master @ Master::Resolved(ResolvedMaster::Device(_))) => Ok(master),
            (Some(address), _) => Err(Error::BadValue {
                key: "hwaddr",
                value: address.to_string(),
                want: "either hwaddr or master, not both".to_owned(),
            }),
        }
    }

    /// The parent named by `master` or chosen by a device plugin.
    ///
    /// # Caveats
    /// With the capability `deviceID`, Multus also passes the device of a pod's annotation. The plugin cannot tell
    /// it from the choice of a runtime that passes `runtimeConfig` alone, so networks leave the capability out
    /// (docs/networks.md, Traps in Multus).
    fn written_parent(&self, dialect: Dialect, needs: Needs) -> Result<Master, Error> {
        let written = master::read(self.master.as_ref(), needs)?;
        let device = [&self.runtime_config.device_id, &self.device_id, &self.pci_bus_id];
        let device = device.into_iter().flatten().find(|id| !id.is_empty());
        Ok(match (written, device) {
            (Master::Resolved(ResolvedMaster::Unset), Some(id)) => {
                Master::Resolved(ResolvedMaster::Device(id.clone()))
            }
            // A device plugin for shared devices allocates ids that name no device ("17"). Then the
            // configuration decides.
            (_, Some(id)) if names_a_device(id) => Master::Resolved(ResolvedMaster::Device(id.clone())),
            (Master::Resolved(ResolvedMaster::Unset), None) if dialect == Dialect::Macvlan => {
                Master::Resolved(ResolvedMaster::DefaultRoute)
            }
            (Master::Preferred(_), _) if self.link_in_container => {
                return Err(Error::BadValue {
                    key: "linkInContainer",
                    value: "true".to_owned(),
                    want:
                        "false, since lists and descriptions choose among the node's links; name the master"
                            .to_owned(),
                });
            }
            (written, _) => written,
        })
    }

    /// The link of a `host-device` configuration, in that plugin's order (`loadConf` and `getLink` of
    /// `plugins/main/host-device/host-device.go`): `device`, `hwaddr`, `kernelpath`, then the device of a
    /// device plugin.
    fn host_device(&self) -> Result<Master, Error> {
        let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(name) = set(&self.device) {
            return Ok(Master::Resolved(ResolvedMaster::Named(name)));
        }
        if let Some(address) = self.by_address()? {
            return Ok(Master::Resolved(ResolvedMaster::Address(address)));
        }
        if let Some(path) = set(&self.kernelpath) {
            return kernel_path(path)
                .map(ResolvedMaster::KernelPath)
                .map(Master::Resolved);
        }
        let ids = [&self.runtime_config.device_id, &self.pci_bus_id];
        ids.into_iter()
            .find_map(set)
            .map(ResolvedMaster::Device)
            .map(Master::Resolved)
            .ok_or_else(|| Error::BadWord {
                key: "device",
                reason: "it is not set; set device, hwaddr, kernelpath or pciBusID, or have a device plugin set deviceID"
                    .to_owned(),
            })
    }

    /// The hardware address of the link to use.
    fn by_address(&self) -> Result<Option<HwAddress>, Error> {
        let candidates = [("hwaddr", self.hwaddr.as_deref())];
        first_of(
            candidates,
            "6 or 20 bytes such as \"b8:3f:d2:00:00:01\"",
            |text| {
                let address = HwAddress::from_str(text).ok()?;
                matches!(address.len(), 6 | 20).then_some(address)
            },
        )
    }

    pub(super) fn host_addresses(&self) -> Result<HostAddresses, Error> {
        match self.host_addresses.as_deref() {
            None | Some("" | "refuse") => Ok(HostAddresses::Refuse),
            Some("restore") => Ok(HostAddresses::Restore),
            Some(other) => Err(Error::BadValue {
                key: "hostAddresses",
                value: format!("{other:?}"),
                want: "refuse or restore".to_owned(),
            }),
        }
    }

    pub(super) fn pkey(&self) -> Result<Option<Pkey>, Error> {
        pkey("pkey", self.pkey.as_ref())
    }

    pub(super) fn policy_routing(&self) -> Result<bool, Error> {
        match self.policy_routing.as_deref() {
            None | Some("" | "auto") => Ok(true),
            Some("off") => Ok(false),
            Some(other) => Err(Error::BadValue {
                key: "policyRouting",
                value: format!("{other:?}"),
                want: "auto or off".to_owned(),
            }),
        }
    }

    /// `runtimeConfig.mac`, else `args.cni.mac`, else `CNI_ARGS` `MAC`, else `mac`; `macvlan` reads no `args.cni`.
    pub(super) fn mac(&self, dialect: Dialect, args: &Args) -> Result<Option<HwAddress>, Error> {
        let of_pod = [
            ("args.cni.mac", self.args.cni.mac.as_deref()),
            ("CNI_ARGS MAC", args.get("MAC")),
        ];
        let [of_annotation, of_environment] = match dialect {
            Dialect::Own => self.offered("mac", self.runtime_config.mac.as_deref(), of_pod)?,
            Dialect::Macvlan => [None, Some(of_pod[1])],
            Dialect::Ipoib | Dialect::HostDevice => [None, None],
        };
        let first = [
            Some(("runtimeConfig.mac", self.runtime_config.mac.as_deref())),
            of_annotation,
            of_environment,
            Some(("mac", self.mac.as_deref())),
        ];
        first_of(
            first.into_iter().flatten(),
            "6 bytes such as \"02:42:ac:11:00:02\", not a group address",
            |text| {
                HwAddress::from_str(text).ok().filter(|mac| match mac.as_bytes() {
                    [first, .., _] if mac.as_bytes().len() == 6 => {
                        first & 1 == 0 && mac.as_bytes().iter().any(|b| *b != 0)
                    }
                    bytes => bytes.len() == 20,
                })
            },
        )
    }

    /// `runtimeConfig.infinibandGUID`, else `args.cni.guid`, else `CNI_ARGS` `GUID`, else `guid`.
    pub(super) fn guid(&self, dialect: Dialect, args: &Args) -> Result<Option<Guid>, Error> {
        let of_pod = [
            ("args.cni.guid", self.args.cni.guid.as_deref()),
            ("CNI_ARGS GUID", args.get("GUID")),
        ];
        let [of_annotation, of_environment] = match dialect {
            Dialect::Own => {
                let by_runtime = self.runtime_config.infiniband_guid.as_deref();
                self.offered("infinibandGUID", by_runtime, of_pod)?
            }
            _ => [None, None],
        };
        let first = [
            Some((
                "runtimeConfig.infinibandGUID",
                self.runtime_config.infiniband_guid.as_deref(),
            )),
            of_annotation,
            of_environment,
            Some(("guid", self.guid.as_deref())),
        ];
        let want = "8 bytes such as \"00:02:c9:03:00:00:00:01\", neither all 0 nor all ff";
        first_of(first.into_iter().flatten(), want, |text| {
            Guid::from_str(text).ok().filter(|guid| guid.is_usable())
        })
    }

    /// The values that a pod requests. Multus copies `cni-args` of the pod's annotation to `args.cni` and its
    /// `mac` to `CNI_ARGS`, whether the network has the capability or not (`pkg/types/conf.go`, `DelegateAdd`
    /// of `pkg/multus/multus.go`).
    ///
    /// # Errors
    /// [`Error::NotOffered`] if a value is set and the network does not have `capability`. `by_runtime` is
    /// the value in `runtimeConfig`.
    fn offered<'a>(
        &self,
        capability: &'static str,
        by_runtime: Option<&str>,
        of_pod: [(&'static str, Option<&'a str>); 2],
    ) -> Result<[Option<Source<'a>>; 2], Error> {
        // A runtime passes a value in runtimeConfig only for a capability of the network (spec § 3), and may
        // not pass the list of capabilities.
        let is_offered = self.capabilities.get(capability) == Some(&Value::Bool(true))
            || by_runtime.is_some_and(|text| !text.is_empty());
        let asked = |(key, text): &Source<'_>| {
            text.filter(|text| !text.is_empty())
                .map(|text| (*key, text.to_owned()))
        };
        match of_pod.iter().find_map(asked) {
            Some((key, value)) if !is_offered => Err(Error::NotOffered {
                key,
                value,
                capability,
            }),
            _ => Ok(of_pod.map(Some)),
        }
    }
}

/// A key with its value, if it is set.
type Source<'a> = (&'static str, Option<&'a str>);

/// Parses the directory of a device, as `host-device` requires it.
fn kernel_path(path: String) -> Result<PathBuf, Error> {
    let directory = PathBuf::from(&path);
    let plain = directory
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if plain && directory.starts_with("/sys/devices") {
        return Ok(directory);
    }
    Err(Error::BadValue {
        key: "kernelpath",
        value: path,
        want: "the directory of a device below /sys/devices".to_owned(),
    })
}

fn first_of<'a, T>(
    candidates: impl IntoIterator<Item = Source<'a>>,
    want: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Error> {
    let set = |(key, text): Source<'_>| text.filter(|t| !t.is_empty()).map(|t| (key, t.to_owned()));
    let Some((key, text)) = candidates.into_iter().find_map(set) else {
        return Ok(None);
    };
    match read(&text) {
        Some(value) => Ok(Some(value)),
        None => Err(Error::BadValue {
            key,
            value: text,
            want: want.to_owned(),
        }),
    }
}

/// Whether `id` has the form of a PCI address or of an auxiliary device (`mlx5_core.sf.4`).
pub(crate) fn names_a_device(id: &str) -> bool {
    id.contains([':', '.'])
}

fn mode(text: Option<&str>) -> Result<Option<Mode>, Error> {
    match text {
        None | Some("") => Ok(None),
        Some("ipoib") => Ok(Some(Mode::Ipoib)),
        Some("macvlan") => Ok(Some(Mode::Macvlan)),
        Some("ipvlan") => Ok(Some(Mode::Ipvlan)),
        Some("device") => Ok(Some(Mode::Device)),
        Some(other) => Err(Error::BadValue {
            key: "mode",
            value: format!("{other:?}"),
            want: "ipoib, macvlan, ipvlan or device (macvlanMode and ipvlanMode choose within their modes)"
                .to_owned(),
        }),
    }
}
