// SPDX-License-Identifier: Apache-2.0
//! Resolves a configuration and a link to a grant: reads the facts, decides, and checks whether the device
//! may leave the host. It changes nothing.

use super::decide::{decide, unless_required};
use super::movable::{Holder, Surroundings, holders, require_free_name, require_movable};
use super::{Facts, observe};
use crate::config::{Rdma, RdmaNetns};
use crate::error::{Error, RdmaError};
use crate::intent::Grant;
use crate::journal::{Taken, takers};
use crate::kernel::{Kernel, Side};
use common::netlink::{Link, NetnsMode};
use common::rdma::Sysfs;
use std::path::{Path, PathBuf};

/// The sources of the facts.
pub struct Sources<'a> {
    /// Both namespaces.
    pub kernel: &'a mut dyn Kernel,
    /// The node's devices.
    pub sysfs: &'a Sysfs,
    /// The state directory.
    pub state: &'a Path,
}

/// The link of which the RDMA device is requested.
pub struct Interface<'a> {
    /// The namespace it is in.
    pub side: Side,
    /// The link.
    pub link: &'a Link,
    /// The reason why this kind of attachment cannot have a device moved, if there is one.
    pub moving: Result<(), String>,
}

/// The grant for `interface`; `None` if there is no device and none is required.
///
/// # Errors
/// As [`decide`], or the device must stay on the host, or the kernel refuses a request.
pub fn grant_for(
    from: &mut Sources<'_>,
    asked: Option<&Rdma>,
    interface: Interface<'_>,
) -> Result<Option<Grant>, Error> {
    let Interface { side, link, moving } = interface;
    let facts = facts_for(from, asked, side, link)?;
    if facts.mode == NetnsMode::Exclusive && side == Side::Pod {
        return in_pod(asked, link);
    }
    let decided = decide(asked, &facts, moving).map_err(|error| explain(error, &facts, from.state));
    let Some((grant, found)) = decided? else {
        return Ok(None);
    };
    if let (Some(_), Some(rdma)) = (grant.moved(), asked) {
        let takers = takers(from.state, Taken::RdmaDevice)?;
        let around = Surroundings::read(from.kernel, from.sysfs, &takers, &found)?;
        if let Err(kept) = require_movable(&found, &around).and_then(|()| require_free_name(&grant, &around))
        {
            return unless_required(rdma, kept.into()).map(|()| None);
        }
    }
    Ok(Some(grant))
}

/// Fails if [`grant_for`] would fail on this node with any set of pods. For STATUS, which is about the node.
///
/// # Errors
/// As [`decide`], and the kernel refuses a request.
pub fn require_likely(
    from: &mut Sources<'_>,
    asked: Option<&Rdma>,
    interface: Interface<'_>,
) -> Result<(), Error> {
    let facts = facts_for(from, asked, interface.side, interface.link)?;
    match decide(asked, &facts, interface.moving) {
        Ok(_) => Ok(()),
        Err(error) => match explain(error, &facts, from.state) {
            // Both end without a change of the node.
            Error::Rdma(RdmaError::Held { .. } | RdmaError::Unlisted { .. }) => Ok(()),
            error => Err(error),
        },
    }
}

/// An interface without a request for a device gets no requests to drivers of other devices.
fn facts_for(from: &mut Sources<'_>, asked: Option<&Rdma>, side: Side, link: &Link) -> Result<Facts, Error> {
    let read = if asked.is_some() {
        observe
    } else {
        Facts::read_near
    };
    read(from.kernel, from.sysfs, side, link)
}

/// A parent in the pod keeps the device it has: whatever moved the parent there had to move the device too.
fn in_pod(asked: Option<&Rdma>, link: &Link) -> Result<Option<Grant>, Error> {
    match asked {
        Some(rdma) if rdma.netns == RdmaNetns::Shared => Err(RdmaError::Mode {
            asked: NetnsMode::Shared,
            is: NetnsMode::Exclusive,
        }
        .into()),
        Some(rdma) => unless_required(
            rdma,
            RdmaError::Missing {
                link: link.name.clone(),
                reason: "it is in the pod (linkInContainer), and in exclusive mode its device is already in the pod or unknown"
                    .to_owned(),
            }
            .into(),
        )
        .map(|()| None),
        None => Ok(None),
    }
}

/// A device that is missing on the host may be in a pod. Then the error names that pod.
fn explain(error: Error, facts: &Facts, state: &Path) -> Error {
    if !matches!(error, Error::Rdma(RdmaError::Missing { .. })) {
        return error;
    }
    let behind = |path: &PathBuf| {
        facts
            .lowers
            .iter()
            .any(|lower| lower.behind.as_ref().is_some_and(|b| b.path == *path))
    };
    let has = |holder: &Holder| holder.grant.moved()?.path.as_ref().map(behind);
    let mut holders = holders(state).unwrap_or_default().into_iter();
    let holder = holders.find(|holder| has(holder) == Some(true));
    match holder {
        Some(holder) => RdmaError::Held {
            device: holder.grant.device.name.clone(),
            by: holder.to_string(),
        }
        .into(),
        None => error,
    }
}

#[cfg(test)]
pub(crate) mod tests;
