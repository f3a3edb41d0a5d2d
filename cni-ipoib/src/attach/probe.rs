// SPDX-License-Identifier: Apache-2.0
//! The last guard before an address is used: another host that answers for it stops ADD.
//!
//! Invariant: an address that the IPAM plugin wants probed is not on the link while the probe runs, so the pod never
//! answers for an address that another host has.

use super::address::{add_addresses, prepare};
use crate::error::Error;
use crate::kernel::Kernel;
use common::cni::IpConfig;
use common::netlink::Link;
use std::net::IpAddr;
use std::time::Duration;

/// Gives the link the addresses that need no probe. The others follow in [`probe`], once it is up.
pub(crate) fn address(kernel: &mut dyn Kernel, link: &Link, ips: &[IpConfig]) -> Result<(), Error> {
    prepare(kernel, link, ips)?;
    add_addresses(kernel, link, ips.iter().filter(|ip| !ip.probe))
}

/// Probes the addresses that the IPAM plugin wants probed, and gives them to the link. Does nothing without any.
///
/// A link without carrier within `carrier_timeout` reaches no host that could answer: it gets its addresses unprobed, and
/// ADD decides later whether it may go without carrier.
///
/// # Errors
/// [`Error::AddressAnswered`]: another host has one of them. [`Error::Kernel`], [`Error::Io`].
pub(crate) fn probe(
    kernel: &mut dyn Kernel,
    link: &Link,
    ips: &[IpConfig],
    carrier_timeout: Duration,
) -> Result<(), Error> {
    let wanted = || ips.iter().filter(|ip| ip.probe);
    let addresses: Vec<IpAddr> = wanted().map(|ip| ip.address.ip()).collect();
    if addresses.is_empty() {
        return Ok(());
    }
    let carrier = kernel
        .wait_for_carrier(link.index, carrier_timeout)
        .map_err(|source| Error::Kernel {
            step: format!("wait for the carrier of {}", link.name),
            source,
        })?;
    if carrier {
        require_silence(kernel, link, &addresses)?;
    } else {
        tracing::warn!(link = %link.name, ?addresses, "addresses are not probed: the link has no carrier");
    }
    add_addresses(kernel, link, wanted())
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
