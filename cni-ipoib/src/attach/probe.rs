// SPDX-License-Identifier: Apache-2.0
//! The last check before an address is used: ADD fails if another host answers for it.
//!
//! Invariant: an address that must be probed is not on the link during the probe, so the pod never answers
//! for another host's address.

use super::address::add_addresses;
use super::await_carrier;
use crate::error::{Error, Step};
use crate::kernel::{Kernel, Side};
use common::cni::IpConfig;
use common::netlink::{self, Link};
use nix::errno::Errno;
use std::net::IpAddr;
use std::time::Duration;

/// Adds the addresses that need no probe. [`probe`] adds the others once the link is up.
pub(super) fn address(kernel: &mut dyn Kernel, link: &Link, ips: &[IpConfig]) -> Result<(), Error> {
    add_addresses(kernel, link, ips.iter().filter(|ip| !ip.probe))
}

/// Probes the addresses that the IPAM plugin marked, and adds them to the link. Does nothing without such
/// addresses.
///
/// Returns whether the link may have carrier: `false` if it had none within `carrier_timeout`. Such a link reaches no
/// other host. Its addresses are added unprobed, and ADD decides later whether the link may go without carrier. ADD
/// does not look for carrier again: carrier that came meanwhile would let an `IPoIB` link use an unprobed address.
///
/// # Errors
/// [`Error::AddressAnswered`]: another host has one of them. [`Error::Kernel`], [`Error::Io`].
pub(super) fn probe(
    kernel: &mut dyn Kernel,
    link: &Link,
    ips: &[IpConfig],
    carrier_timeout: Duration,
) -> Result<bool, Error> {
    let wanted = || ips.iter().filter(|ip| ip.probe);
    let addresses: Vec<IpAddr> = wanted().map(|ip| ip.address.ip()).collect();
    if addresses.is_empty() {
        return Ok(true);
    }
    let carrier = await_carrier(kernel, link, carrier_timeout)?;
    if carrier {
        let step = || format!("wait for the carrier of {}", link.name);
        // A bond gets the link layer and the address of its first port, after it was created.
        let now = kernel.link_by_index(Side::Pod, link.index).step(step)?;
        let now = now.ok_or(netlink::Error::kernel(Errno::ENODEV)).step(step)?;
        require_silence(kernel, &now, &addresses)?;
    } else {
        tracing::warn!(link = %link.name, ?addresses, "addresses not probed: the link has no carrier");
    }
    add_addresses(kernel, link, wanted())?;
    Ok(carrier)
}

fn require_silence(kernel: &mut dyn Kernel, link: &Link, addresses: &[IpAddr]) -> Result<(), Error> {
    let claim = kernel.probe(link, addresses).map_err(|source| Error::Probe {
        ifname: link.name.clone(),
        source,
    })?;
    match claim {
        None => Ok(()),
        Some(claim) => Err(Error::AddressAnswered {
            ifname: link.name.clone(),
            claim,
        }),
    }
}
