// SPDX-License-Identifier: Apache-2.0
//! ADD: allocates one address from each range set. A repeated ADD returns the same addresses.

use crate::allocator::{Allocation, Prober, allocate};
use crate::config::{Config, Requests};
use crate::store::{Lease, Locked, Node, Sandbox, Store};
use common::cni::dispatch::Call;
use common::cni::{Attachment, CniResult, Code, Error, IpConfig};
use ipnetwork::IpNetwork;
use std::path::Path;

pub(crate) fn add(node: &Node, call: &Call, owner: &Attachment, netns: &Path) -> Result<CniResult, Error> {
    let config = Config::read(call)?;
    let store = Store::new(&config.place, node)?;
    let locked = store.enter()?;
    let sandbox = Sandbox::of(&call.args, netns);
    if let Some(lease) = locked.lease(owner)? {
        return repeat(&locked, lease, &config.requests, &sandbox)
            .map(|result| for_main_plugin(result, config.probes));
    }
    // DEL takes this lock too: a DEL that comes later finds what ADD makes. Before an earlier one the caller had ended.
    call.reader.require()?;
    config.log_notes();
    let locked = locked.among(config.space, &config.sets)?;
    let prober = config.probes.then_some(Prober {
        pod: sandbox.pod.as_deref(),
    });
    let allocated = allocate(&config.sets, &config.requests, &locked, prober);
    let allocations = allocated.map_err(|e| config.explain(e))?;
    let result = CniResult {
        ips: allocations.iter().map(address).collect::<Result<_, _>>()?,
        routes: config.routes,
        dns: config.dns,
        ..CniResult::default()
    };
    let lease = Lease {
        space: config.space,
        ..locked.draft(owner, sandbox, result)?
    };
    locked.commit(&lease)?;
    for allocation in allocations.iter().filter(|allocation| allocation.in_turn) {
        locked.remember(&allocation.range, allocation.ip);
    }
    Ok(for_main_plugin(lease.result, config.probes))
}

/// `result` for the main plugin: probe marks are kept only if that plugin probes.
pub(crate) fn for_main_plugin(mut result: CniResult, probes: bool) -> CniResult {
    for ip in &mut result.ips {
        ip.probe &= probes;
    }
    result
}

/// The result of a repeated ADD. A container that restarts under its id gets another namespace; the agent
/// judges the lease by the namespace that it names, so the lease moves there.
///
/// # Errors
/// [`Code::IFNAME_IN_USE`] if another network made the lease, [`Code::INVALID_CONFIG`], [`Code::IO`].
pub(crate) fn repeat(
    locked: &Locked,
    lease: Lease,
    requests: &Requests,
    sandbox: &Sandbox,
) -> Result<CniResult, Error> {
    if !locked.is_own(&lease) {
        return Err(Error::new(
            Code::IFNAME_IN_USE,
            format!(
                "the interface has a lease already: {}; DEL it under that network first, or use another interface name",
                lease.describe()
            ),
        ));
    }
    agree(&lease, requests)?;
    if lease.sandbox.netns != sandbox.netns {
        locked.move_to(&lease, sandbox)?;
    }
    Ok(lease.result)
}

/// Fails if a repeated ADD requests an address other than those of its lease.
pub(crate) fn agree(lease: &Lease, requests: &Requests) -> Result<(), Error> {
    match requests
        .iter()
        .find(|request| !lease.addresses().any(|ip| ip == request.ip))
    {
        None => Ok(()),
        Some(request) => {
            let leased = lease
                .addresses()
                .map(|ip| ip.to_string())
                .collect::<Vec<_>>()
                .join(", ");
            Err(Error::new(
                Code::INVALID_CONFIG,
                format!(
                    "{request} is asked for, but {} already has {leased}; DEL it first",
                    lease.describe()
                ),
            ))
        }
    }
}

pub(crate) fn address(allocation: &Allocation) -> Result<IpConfig, Error> {
    let Allocation { range, ip, probe, .. } = allocation;
    let address = IpNetwork::new(*ip, range.subnet.prefix()).map_err(|e| {
        Error::caused(
            Code::INTERNAL,
            format!("cannot write {ip} with the prefix length of {}", range.subnet),
            &e,
        )
    })?;
    Ok(IpConfig {
        address,
        gateway: range.gateway,
        interface: None,
        probe: *probe,
    })
}
