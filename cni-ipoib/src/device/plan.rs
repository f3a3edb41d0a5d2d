// SPDX-License-Identifier: Apache-2.0
//! Decides whether a whole link may leave the host, and its configuration in the pod. Pure.

use super::facts::Facts;
use crate::config::preferences::layer;
use crate::config::{Config, HostAddresses, Mode, require_fitting_keys};
use crate::error::{DeviceError, Error};
use crate::host::Host;
use crate::intent::Function;
use crate::kernel::Side;
use common::netlink::{HwAddress, Link, LinkLayer};
use common::rdma::{Guid, PortState};
use std::time::Duration;

/// A port needs some seconds to retrain its link. An `IPoIB` link also joins its groups.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(10);

/// The same if the subnet manager must first discover a new GUID by a sweep.
const GUID_TIMEOUT: Duration = Duration::from_secs(30);

/// How a virtual function gets a permanent address.
const SET_MAC: &str = "set the address of the virtual function on its physical function PF (ip link set PF vf N mac …), then unbind and bind the driver of the function";

/// The configuration of a link in the pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    /// The link as it is on the host.
    pub link: Link,
    /// The MTU to set, in bytes; `None` keeps the host's.
    pub mtu: Option<u32>,
    /// The hardware address to set; `None` keeps its own.
    pub address: Option<HwAddress>,
    /// The GUID to set on its virtual function; `None` keeps its own.
    pub guid: Option<Guid>,
    /// How long it may take to get carrier.
    pub carrier_timeout: Duration,
}

/// Plans the move of the master of `host` by `config`.
///
/// # Errors
/// The node or a pod uses the link, or the link cannot have the requested configuration.
pub fn moved(config: &Config, host: &Host, facts: &Facts) -> Result<Moved, Error> {
    require_fitting_keys(&config.only_for, Mode::Device)?;
    if host.side == Side::Pod {
        return Err(Error::Unsupported {
            key: "linkInContainer",
            value: "true".to_owned(),
            remedy: "mode device moves a link of the host into the pod; remove it",
        });
    }
    require_hardware(host, facts)?;
    require_identity(host, facts)?;
    require_guid(config, host, facts)?;
    require_unused(host, facts)?;
    require_no_address(config, host, facts)?;
    require_another(config, host, facts)?;
    let guid = guid(config, host, facts)?;
    // A function becomes active once the subnet manager has seen its GUID, which may have been set just now.
    let gets_guid = config.guid.is_some() && facts.function.is_some();
    if !gets_guid {
        require_carrying(host, facts)?;
    }
    Ok(Moved {
        link: host.master.clone(),
        mtu: mtu(config, host)?,
        address: address(config, host, guid)?,
        guid,
        carrier_timeout: if gets_guid { GUID_TIMEOUT } else { CARRIER_TIMEOUT },
    })
}

fn kept(host: &Host, reason: String, remedy: impl Into<String>) -> Result<(), Error> {
    Err(DeviceError::Kept {
        link: host.master.name.clone(),
        reason,
        remedy: remedy.into(),
    }
    .into())
}

fn require_hardware(host: &Host, facts: &Facts) -> Result<(), Error> {
    if let Some(what) = &facts.software {
        let remedy = "name a link of hardware, or another mode, which makes a child of it";
        return kept(
            host,
            format!("it is {what}, which the kernel deletes with the pod's namespace"),
            remedy,
        );
    }
    match host.master.layer {
        LinkLayer::Infiniband | LinkLayer::Ethernet if facts.path.is_some() => Ok(()),
        _ => kept(
            host,
            "it has no hardware device, so the kernel would delete it with the pod's namespace".to_owned(),
            "name a link of hardware, or another mode, which makes a child of it",
        ),
    }
}

/// Fails for an Ethernet link that DEL could not recognize once the pod has changed its address. Without a permanent
/// address only its device identifies it.
///
/// Source: the kernel reports `IFLA_PERM_ADDRESS` only if the driver did not choose the address at random, and
/// `IFLA_PARENT_DEV_NAME` since Linux 5.14 (`rtnl_fill_ifinfo` of `net/core/rtnetlink.c`).
fn require_identity(host: &Host, facts: &Facts) -> Result<(), Error> {
    let link = &host.master;
    if link.layer != LinkLayer::Ethernet || link.perm_address.is_some() {
        return Ok(());
    }
    let (doubt, remedy) = match (&link.device, facts.beside.first()) {
        (Some(_), None) => return Ok(()),
        (Some(_), Some(other)) => (format!("{other} is on the same device"), SET_MAC.to_owned()),
        (None, _) => (
            "this kernel does not report its device".to_owned(),
            format!("use Linux 5.14 or newer, or {SET_MAC}"),
        ),
    };
    let why = format!(
        "it has no permanent address, and {doubt}, so DEL could not recognize it once it has another address"
    );
    kept(host, why, remedy)
}

fn require_guid(config: &Config, host: &Host, facts: &Facts) -> Result<(), Error> {
    let without = host.master.address.port_guid().filter(|guid| !guid.is_usable());
    match without {
        Some(guid) if config.guid.is_none() || facts.function.is_none() => kept(
            host,
            format!("its port has no GUID ({guid}), so no host could reach it"),
            "set \"guid\" in the network, or infiniband-guid in the pod's annotation; by hand, with two commands: ip link set PF vf N node_guid …, ip link set PF vf N port_guid …; then unbind and bind the driver of the function",
        ),
        _ => Ok(()),
    }
}

/// The GUID to set on the virtual function.
fn guid(config: &Config, host: &Host, facts: &Facts) -> Result<Option<Guid>, Error> {
    let own = host.master.address.port_guid();
    let asked = config
        .guid
        .filter(|guid| facts.function.is_some() && own != Some(*guid));
    let holder = asked.and_then(|asked| facts.guids.iter().find(|(guid, _)| *guid == asked));
    if let Some((guid, holder)) = holder {
        return Err(DeviceError::GuidInUse {
            link: host.master.name.clone(),
            guid: *guid,
            holder: holder.clone(),
        }
        .into());
    }
    if asked.is_some() && host.master.device.is_none() {
        kept(
            host,
            "this kernel does not report the device of a link, so the plugin could not find the link again with another GUID".to_owned(),
            "use Linux 5.14 or newer, or set the GUID of the function before a pod gets it",
        )?;
    }
    Ok(asked)
}

/// Fails if another user would lose the link.
fn require_unused(host: &Host, facts: &Facts) -> Result<(), Error> {
    let name = &host.master.name;
    if let Some(holder) = &facts.holder {
        return Err(DeviceError::Taken {
            link: name.clone(),
            holder: holder.clone(),
        }
        .into());
    }
    if let Some(upper) = &facts.enslaved_to {
        let remedy = format!("remove it from {upper}, or name another link");
        return kept(host, format!("it is a port of {upper}{}", used(facts)), remedy);
    }
    if !facts.uppers.is_empty() {
        let remedy = "remove the links on top of it, or name another link";
        return kept(
            host,
            format!("it has links on top of it ({})", facts.uppers.join(", ")),
            remedy,
        );
    }
    if facts.functions > 0 {
        let remedy = "use a virtual function instead, or remove them: echo 0 > sriov_numvfs";
        let reason = format!(
            "it has {} virtual functions, which would move with it",
            facts.functions
        );
        return kept(host, reason, remedy);
    }
    Ok(())
}

/// Further uses of the link, for a message that already has a reason.
fn used(facts: &Facts) -> String {
    let mut more = facts.addresses.clone();
    more.extend(
        facts
            .default_route
            .iter()
            .map(|link| format!("the default route over {link}")),
    );
    if more.is_empty() {
        String::new()
    } else {
        format!(" and takes part in {}", more.join(", "))
    }
}

/// Fails if the node would lose an address or its default route.
fn require_no_address(config: &Config, host: &Host, facts: &Facts) -> Result<(), Error> {
    if let Some(link) = &facts.default_route {
        let reason = format!("the default route of this node leads over {link}");
        return kept(host, reason, "name another; this one connects the node");
    }
    if config.host_addresses == HostAddresses::Refuse && !facts.addresses.is_empty() {
        let reason = format!("this node has the address {}", facts.addresses.join(", "));
        let remedy = "name another; if the node can do without it as long as the pod lives, set \"hostAddresses\": \"restore\"";
        return kept(host, reason, remedy);
    }
    if !facts.carried.shared.is_empty() {
        let reason = format!("{} leads over other links too", facts.carried.shared.join(", "));
        return kept(host, reason, "remove the route, or name another");
    }
    Ok(())
}

fn require_another(config: &Config, host: &Host, facts: &Facts) -> Result<(), Error> {
    if facts.last_active && config.keep_last {
        let layer = layer(host.master.layer);
        let remedy = "leave one to the host, or set \"keepLast\": false if the host needs none";
        return kept(
            host,
            format!("it is the last active {layer} port of this node"),
            remedy,
        );
    }
    Ok(())
}

/// Fails if a pod would wait in vain. Whether an Ethernet link that is down has carrier is unknown until it
/// is up.
fn require_carrying(host: &Host, facts: &Facts) -> Result<(), Error> {
    let link = &host.master;
    let policy = |function: &Function| {
        let number = function.number;
        format!(", and whether the physical function PF keeps it down: ip link set PF vf {number} state auto")
    };
    let reason = match (&host.port, link.layer) {
        (Some(port), LinkLayer::Infiniband) if port.state != PortState::Active => {
            let kept_down = facts.function.as_ref().filter(|_| port.state == PortState::Down);
            let policy = kept_down.map(policy).unwrap_or_default();
            format!("carries nothing: {}{policy}", port.trouble())
        }
        (_, LinkLayer::Ethernet) if link.up && !link.carrier => {
            "has no carrier; check cable and switch port".to_owned()
        }
        _ => return Ok(()),
    };
    Err(Error::MasterDown {
        master: link.name.clone(),
        reason,
    })
}

fn mtu(config: &Config, host: &Host) -> Result<Option<u32>, Error> {
    match (config.mtu, host.master.max_mtu) {
        (Some(mtu), Some(max)) if mtu > max => Err(Error::MtuTooLarge {
            mtu,
            master: host.master.name.clone(),
            what: "any mode",
            max,
        }),
        (mtu, _) => Ok(mtu),
    }
}

/// Fails if a port would get a GUID that is not its own.
fn address(config: &Config, host: &Host, given: Option<Guid>) -> Result<Option<HwAddress>, Error> {
    let Some(guid) = given.or(host.master.address.port_guid()) else {
        return match &config.mac {
            _ if config.guid.is_some() => Err(Error::KeyOfOtherMode {
                key: "infinibandGUID",
                its: Mode::Ipoib,
                mode: Mode::Device,
            }),
            Some(mac) if mac.len() != 6 => Err(Error::BadValue {
                key: "mac",
                value: mac.to_string(),
                want: "6 bytes for an Ethernet link".to_owned(),
            }),
            mac => Ok(mac.clone()),
        };
    };
    let refuse = |key, value: String| {
        Err(Error::BadValue {
            key,
            value,
            want: format!(
                "the port's own GUID {guid}, or nothing: only a virtual function can be given another"
            ),
        })
    };
    match (&config.mac, config.guid) {
        (Some(mac), _) if mac.port_guid() != Some(guid) => refuse("mac", mac.to_string()),
        (_, Some(asked)) if asked != guid => refuse("infinibandGUID", asked.to_string()),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
