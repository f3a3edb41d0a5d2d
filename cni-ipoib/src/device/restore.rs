// SPDX-License-Identifier: Apache-2.0
//! Restores a link: moves it out of the pod and restores its state on the host.
//!
//! Invariant: every step can be repeated, and does not change what is as it was. So a kill at any point does no harm. A link is
//! found by its hardware, never by its name.

use super::guids::has_port;
use crate::error::{Error, Step};
use crate::intent::{Hardware, Snapshot};
use crate::journal::Written;
use crate::kernel::{Kernel, Side, link_by_index, links};
use crate::mark::is_ours;
use common::netlink::{HwAddress, IPV6_MIN_MTU, Link, LinkChange, LinkInfo, LinkLayer, PacketLimits};

/// The link on `side`; `None` if it is not there.
///
/// # Errors
/// The kernel refuses to list the links.
pub fn find(kernel: &mut dyn Kernel, side: Side, hardware: &Hardware) -> Result<Option<Link>, Error> {
    Ok(links(kernel, side)?.into_iter().find(|link| hardware.is(link)))
}

/// Moves `link`, which is in the pod with the namespace `netns`, to the host. Deletes what the pod made on it before: all but the
/// children of `others`.
///
/// # Errors
/// The kernel refuses.
pub fn leave_pod(
    kernel: &mut dyn Kernel,
    link: &Link,
    was: &Snapshot,
    (netns, others): ((u64, u64), &[Written]),
) -> Result<(), Error> {
    let is_of_pod = |child: &Link| !others.iter().any(|of| of.has_in(netns, child));
    delete_links_on(kernel, Side::Pod, link, is_of_pod)?;
    // The host may have a link of that name, and the move would stop half-way.
    for altname in &link.altnames {
        kernel
            .delete_altname(Side::Pod, link.index, altname)
            .step(|| format!("remove the altname {altname} of {}", link.name))?;
    }
    let taken = kernel
        .link(Side::Host, &was.name)
        .step(|| format!("look up {} on the host", was.name))?;
    let aside = temporary(&was.hardware);
    let change = LinkChange {
        name: Some(if taken.is_some() { &aside } else { &was.name }),
        ..LinkChange::default()
    };
    kernel
        .move_link(Side::Pod, link.index, &change)
        .step(|| format!("move {} from the pod back to the host", link.name))
}

/// Deletes the links on the pod's whole link `parent` that `is_of_pod` selects. In the pod they would use `parent` after
/// it is back on the host.
///
/// # Errors
/// The kernel refuses.
pub fn delete_links_on(
    kernel: &mut dyn Kernel,
    side: Side,
    parent: &Link,
    is_of_pod: impl Fn(&Link) -> bool,
) -> Result<(), Error> {
    for link in links(kernel, side)? {
        let on_parent = link.parent == Some(parent.index) && link.parent_netnsid.is_none();
        if on_parent && is_of_pod(&link) {
            tracing::info!(
                link = link.name,
                parent = parent.name,
                "deleting a link that the pod created"
            );
            let step = || format!("delete {}, which the pod created on {}", link.name, parent.name);
            kernel.delete_link(side, link.index).step(step)?;
        }
    }
    Ok(())
}

/// Restores the state of a link on the host. A link of `others` that also returned and took its name is
/// renamed.
///
/// # Errors
/// The kernel refuses to change the link. A name that another link has now, or an address or route that
/// cannot be restored, is only logged: an error would keep a pod from being removed forever.
pub fn restore_state(
    kernel: &mut dyn Kernel,
    link: &Link,
    was: &Snapshot,
    others: &[Hardware],
) -> Result<(), Error> {
    let renamed = restore_name(kernel, link, was, others)?;
    restore_altnames(kernel, link, was, others)?;
    restore_transport(kernel, link, was)?;
    restore_settings(kernel, link, was)?;
    let name = if renamed { &was.name } else { &link.name };
    restore_addr_gen_mode(kernel, link, name, was)?;
    for (key, value) in was.sysctls.iter().filter(|(key, _)| *key != STABLE_SECRET) {
        if let Err(error) = kernel.set_sysctl(name, key, value) {
            tracing::warn!(link = name, key, value, %error, "cannot restore a sysctl of the link");
        }
    }
    if link.up != was.up || link.name != was.name {
        let what = if was.up { "up" } else { "down" };
        let change = LinkChange {
            up: Some(was.up),
            ..LinkChange::default()
        };
        kernel
            .change_link(Side::Host, link.index, &change)
            .step(|| format!("bring {name} {what}"))?;
    }
    for saved in &was.carried {
        if let Err(error) = kernel.restore_saved(link.index, saved) {
            tracing::warn!(link = was.name, what = saved.what, %error, "cannot restore an address, route or neighbour of the link");
        }
    }
    Ok(())
}

/// Restores the name of the link. Returns `false` if another link has it.
fn restore_name(
    kernel: &mut dyn Kernel,
    link: &Link,
    was: &Snapshot,
    others: &[Hardware],
) -> Result<bool, Error> {
    if link.name == was.name {
        return Ok(true);
    }
    // The name may have become an altname meanwhile.
    if link.altnames.contains(&was.name) {
        kernel
            .delete_altname(Side::Host, link.index, &was.name)
            .step(|| format!("remove the altname {} of {}", was.name, link.name))?;
    }
    if !free_name(kernel, &was.name, link, others)? {
        tracing::warn!(
            name = was.name,
            is = link.name,
            "another link has this name now; the returned link keeps its present one"
        );
        return Ok(false);
    }
    set_name(kernel, link, &was.name)?;
    Ok(true)
}

/// Takes a name or altname of `link` from another link on the host, if the kernel returned that one from a pod: one of `others`, or
/// a child. Returns whether no other link has the name now.
fn free_name(kernel: &mut dyn Kernel, name: &str, link: &Link, others: &[Hardware]) -> Result<bool, Error> {
    let holder = kernel
        .link(Side::Host, name)
        .step(|| format!("look up {name} on the host"))?;
    let Some(holder) = holder.filter(|holder| holder.index != link.index) else {
        return Ok(true);
    };
    let its = others.iter().find(|other| other.is(&holder));
    if its.is_none() && !is_returned_child(&holder) {
        return Ok(false);
    }
    tracing::warn!(
        name,
        of = holder.name,
        "another link had taken this name of the returned link, and loses it"
    );
    let freed = if holder.name == name {
        let aside = its.map_or_else(|| temporary(&Hardware::of(&holder, None)), temporary);
        set_name(kernel, &holder, &aside)
    } else {
        kernel
            .delete_altname(Side::Host, holder.index, name)
            .step(|| format!("remove the altname {name} of {}", holder.name))
            .map(drop)
    };
    // The link may have disappeared meanwhile.
    match freed {
        Err(error) if link_by_index(kernel, Side::Host, holder.index)?.is_some() => Err(error),
        _ => Ok(true),
    }
}

/// Whether `link`, on the host, is a child that the kernel returned from a pod, with the name it had there. The DEL of that pod
/// finds it under any name. A child in creation has a temporary name. The host may have brought a returned child up: then its
/// alias identifies it.
fn is_returned_child(link: &Link) -> bool {
    link.kind.as_deref() == Some("ipoib") && link.parent.is_some() && (!link.up || is_ours(link))
}

/// Renames a link. Before Linux 6.2 a link that is up cannot be renamed.
fn set_name(kernel: &mut dyn Kernel, link: &Link, name: &str) -> Result<(), Error> {
    let down = LinkChange {
        up: Some(false),
        ..LinkChange::default()
    };
    if link.up {
        kernel
            .change_link(Side::Host, link.index, &down)
            .step(|| format!("bring {} down", link.name))?;
    }
    let change = LinkChange {
        name: Some(name),
        ..LinkChange::default()
    };
    kernel
        .change_link(Side::Host, link.index, &change)
        .step(|| format!("rename {} to {name}", link.name))
}

fn restore_altnames(
    kernel: &mut dyn Kernel,
    link: &Link,
    was: &Snapshot,
    others: &[Hardware],
) -> Result<(), Error> {
    let foreign = |name: &&String| !was.altnames.contains(name) && **name != was.name;
    for name in link.altnames.iter().filter(foreign) {
        kernel
            .delete_altname(Side::Host, link.index, name)
            .step(|| format!("remove the altname {name} of {}", was.name))?;
    }
    for name in was.altnames.iter().filter(|name| !link.altnames.contains(name)) {
        let added = free_name(kernel, name, link, others).and_then(|_| {
            let step = || format!("add the altname {name} to {}", was.name);
            kernel.add_altname(link.index, name).step(step)
        });
        if let Err(error) = added {
            tracing::warn!(link = was.name, altname = name, %error, "cannot restore an altname of the link");
        }
    }
    Ok(())
}

/// Restores the `IPoIB` mode first: a recreated link has the default mode, and the mode determines the MTU.
fn restore_transport(kernel: &mut dyn Kernel, link: &Link, was: &Snapshot) -> Result<(), Error> {
    let is = Snapshot::transport_of(link);
    match was.ipoib() {
        Some(mode) if is.is_some_and(|is| is != mode) => kernel
            .change_ipoib(Side::Host, link.index, mode.0, mode.1)
            .step(|| format!("set the IPoIB mode of {} back to {}", was.name, mode.0)),
        _ => Ok(()),
    }
}

fn restore_settings(kernel: &mut dyn Kernel, link: &Link, was: &Snapshot) -> Result<(), Error> {
    restore_mtu_and_packet_settings(kernel, link, was)?;
    let alias = was.alias.as_deref().unwrap_or_default();
    let address = address(link, was);
    let change = LinkChange {
        alias: (link.alias.as_deref().unwrap_or_default() != alias).then_some(alias),
        group: (link.group != was.group).then_some(was.group),
        address: address.as_ref(),
        ..LinkChange::default()
    };
    if change.alias.is_some() || change.group.is_some() || change.address.is_some() {
        kernel
            .change_link(Side::Host, link.index, &change)
            .step(|| format!("set alias, group and address of {}", was.name))?;
    }
    Ok(())
}

/// Restores the MTU, and how the link handles packets.
///
/// IPv6 on a link that arrives with `arp off` does not look for duplicate addresses (`ipv6_add_dev` of
/// `net/ipv6/addrconf.c`). Such a link first gets an MTU that ends IPv6. With the former flags and MTU, IPv6 begins
/// anew.
fn restore_mtu_and_packet_settings(
    kernel: &mut dyn Kernel,
    link: &Link,
    was: &Snapshot,
) -> Result<(), Error> {
    let set_mtu = |kernel: &mut dyn Kernel, bytes| {
        let change = LinkChange {
            mtu: Some(bytes),
            ..LinkChange::default()
        };
        let step = || format!("set MTU {bytes} on {}", was.name);
        kernel.change_link(Side::Host, link.index, &change).step(step)
    };
    let flags = was.packets.as_ref().map_or(link.flags, |packets| packets.flags);
    let other_arp = (flags ^ link.flags) & Link::NO_ARP != 0;
    if other_arp {
        set_mtu(kernel, IPV6_MIN_MTU - 1)?;
    }
    restore_packet_settings(kernel, link, was);
    // Always on InfiniBand: a new mode has just changed the MTU.
    if other_arp || link.mtu != was.mtu || was.ipoib.is_some() {
        set_mtu(kernel, was.mtu)?;
    }
    Ok(())
}

/// Restores the flags, such as `arp`, the length of the queue, the link mode, the broadcast address and the limits of packets,
/// and removes the programs of the pod. The kernel keeps all these on a link that changes its namespace.
fn restore_packet_settings(kernel: &mut dyn Kernel, link: &Link, was: &Snapshot) {
    let Some(packets) = &was.packets else {
        return;
    };
    let settings = LinkChange {
        flags: (packets.flags != link.flags).then_some(packets.flags),
        tx_queue: (packets.tx_queue != link.tx_queue).then_some(packets.tx_queue),
        link_mode: (packets.link_mode != link.link_mode).then_some(packets.link_mode),
        ..LinkChange::default()
    };
    let broadcast = packets.broadcast.as_ref().map(|was| broadcast(was, link));
    let broadcast = broadcast.as_ref().filter(|address| **address != link.broadcast);
    let broadcast = broadcast.map(|address| LinkChange {
        broadcast: Some(address),
        ..LinkChange::default()
    });
    let is_changed =
        (packets.flags, packets.tx_queue, packets.link_mode) != (link.flags, link.tx_queue, link.link_mode);
    let is_known = packets.limits != PacketLimits::default();
    let limits = (is_known && packets.limits != link.limits).then(|| LinkChange {
        limits: Some(packets.limits),
        ..LinkChange::default()
    });
    let without = link.xdp.iter().filter(|_| !packets.xdp).map(|mode| LinkChange {
        without_xdp: Some(*mode),
        ..LinkChange::default()
    });
    for change in is_changed
        .then_some(settings)
        .into_iter()
        .chain(broadcast)
        .chain(limits)
        .chain(without)
    {
        if let Err(error) = kernel.change_link(Side::Host, link.index, &change) {
            tracing::warn!(link = was.name, ?change, %error, "cannot restore a setting of the link");
        }
    }
    if packets.tcx == Some(false) {
        remove_tcx(kernel, link, was);
    }
}

/// The broadcast address `was` with the present P_Key of an `IPoIB` link: the kernel writes it into the address if the subnet manager
/// changes it (`update_parent_pkey` of `ipoib_ib.c`).
fn broadcast(was: &HwAddress, link: &Link) -> HwAddress {
    let mut bytes = was.as_bytes().to_vec();
    if let (LinkInfo::Ipoib { pkey, .. }, Some(of_pkey)) = (&link.info, bytes.get_mut(8..10)) {
        of_pkey.copy_from_slice(&pkey.0.to_be_bytes());
    }
    HwAddress::new(bytes)
}

fn remove_tcx(kernel: &mut dyn Kernel, link: &Link, was: &Snapshot) {
    let removed = match kernel.has_tcx(link.index) {
        Ok(true) => kernel.remove_tcx(link.index),
        other => other.map(drop),
    };
    if let Err(error) = removed {
        tracing::warn!(link = was.name, %error, "cannot remove tcx programs from the link; those of its pod stay on it");
    }
}

/// The sysctl with the secret of addresses in mode `stable_secret`. The kernel drops it when the link moves, and refuses
/// the mode without it (`check_stable_privacy` of `net/ipv6/addrconf.c`). A new secret sets the mode.
const STABLE_SECRET: &str = "ipv6/conf/stable_secret";

/// Restores how the kernel makes the link-local address, after the MTU: below 1280 bytes a link has no IPv6, and
/// the kernel refuses IPv6 settings. `name` is the present name of the link.
fn restore_addr_gen_mode(
    kernel: &mut dyn Kernel,
    link: &Link,
    name: &str,
    was: &Snapshot,
) -> Result<(), Error> {
    let (mode, secret) = (was.addr_gen_mode(), was.sysctls.get(STABLE_SECRET));
    if mode.is_none() || mode == link.addr_gen_mode && secret.is_none() {
        return Ok(());
    }
    if let Some(secret) = secret
        && let Err(error) = kernel.set_sysctl(name, STABLE_SECRET, secret)
    {
        tracing::warn!(link = name, %error, "cannot restore the secret of the link's IPv6 addresses");
    }
    let step = || format!("restore the IPv6 settings of {}", was.name);
    let now = kernel.link_by_index(Side::Host, link.index).step(step)?;
    match now.and_then(|now| now.addr_gen_mode) {
        None => {
            tracing::warn!(
                link = was.name,
                "the link has no IPv6 now: its IPv6 settings are not restored"
            );
            Ok(())
        }
        now if now == mode => Ok(()),
        Some(_) => {
            let change = LinkChange {
                addr_gen_mode: mode,
                ..LinkChange::default()
            };
            if let Err(error) = kernel.change_link(Side::Host, link.index, &change) {
                tracing::warn!(link = name, mode = was.addr_gen_mode, %error, "cannot restore how the kernel makes the link-local address of the link");
            }
            Ok(())
        }
    }
}

/// The hardware address to restore. On InfiniBand the kernel sets it: a queue pair's number and the port's GID. A pod may
/// change only the GUID in it (`ipoib_set_mac` of `ipoib_main.c`).
fn address(link: &Link, was: &Snapshot) -> Option<HwAddress> {
    let hardware = &was.hardware;
    if link.layer == LinkLayer::Ethernet {
        return (link.address != was.address).then(|| was.address.clone());
    }
    let guid = hardware
        .port_guid
        .filter(|guid| link.address.port_guid() != Some(*guid))?;
    let is_of_port = hardware.path.as_ref().is_some_and(|path| has_port(path, guid));
    is_of_port.then(|| link.address.with_port_guid(guid))?
}

/// A temporary name for a link whose own is in use. It is the same after each kill.
fn temporary(hardware: &Hardware) -> String {
    let text = serde_json::to_string(hardware).unwrap_or_default();
    format!("rn{:08x}", crate::mark::fnv1a(text.as_bytes()))
}

#[cfg(test)]
mod tests;
