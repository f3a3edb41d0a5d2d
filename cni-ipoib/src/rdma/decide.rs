// SPDX-License-Identifier: Apache-2.0
//! Decides the grant from the request and the facts. Pure.

use super::facts::Facts;
use super::find::{Found, NotFound, find};
use crate::config::{Rdma, RdmaNetns};
use crate::error::{Error, RdmaError};
use crate::intent::{Grant, Identity, Sharing};
use common::netlink::NetnsMode;

/// Decides which device the pod gets, and how; `None` if there is no device and none is required.
///
/// `moving` is the reason why this kind of attachment cannot have a device moved, if there is one.
/// [`require_movable`](super::movable::require_movable) checks the other reasons to keep a device on the
/// host.
///
/// # Errors
/// The node's mode is not the requested one; a device is required and missing; it cannot be moved; or it would
/// move and has no index.
pub fn decide<'f>(
    asked: Option<&Rdma>,
    facts: &'f Facts,
    moving: Result<(), String>,
) -> Result<Option<(Grant, Found<'f>)>, Error> {
    let default = Rdma::default();
    let rdma = asked.unwrap_or(&default);
    require_mode(rdma, facts.mode)?;
    let found = match find(facts, rdma.device.as_ref()) {
        Ok(found) => found,
        Err(reason) if rdma.required => return Err(missing(facts, &reason)),
        Err(reason) => {
            if asked.is_some() || reason != NotFound::None {
                tracing::warn!(link = link(facts), %reason, "the pod gets no RDMA device");
            }
            return Ok(None);
        }
    };
    tracing::debug!(device = found.seen.device.name, port = found.port.number, because = %found.matched_by, via = found.lower.link.name, "RDMA device");
    match facts.mode {
        NetnsMode::Shared => {
            // Nothing moves, so the index may be unknown.
            let index = found.seen.index.unwrap_or_default();
            Ok(Some((grant(&found, index, Sharing::Shared), found)))
        }
        // Without a request the device stays on the host, and the pod does not see it.
        NetnsMode::Exclusive if asked.is_none() => Ok(None),
        NetnsMode::Exclusive => match moving {
            Ok(()) => {
                let index = found.seen.index.ok_or_else(|| unlisted(&found))?;
                let rename = rdma.rename.clone();
                Ok(Some((grant(&found, index, Sharing::Exclusive { rename }), found)))
            }
            Err(reason) => {
                let kept = RdmaError::Kept {
                    device: found.seen.device.name.clone(),
                    reason,
                    remedy: "leave rdma out, move the whole interface instead, or use an RDMA subsystem in shared mode",
                };
                unless_required(rdma, kept.into()).map(|()| None)
            }
        },
    }
}

/// A device that cannot be granted is an error only if it is required.
pub(crate) fn unless_required(rdma: &Rdma, error: Error) -> Result<(), Error> {
    if rdma.required {
        return Err(error);
    }
    tracing::warn!(%error, "the pod gets no RDMA device");
    Ok(())
}

fn require_mode(rdma: &Rdma, is: NetnsMode) -> Result<(), Error> {
    let asked = match (rdma.netns, is) {
        (RdmaNetns::Shared, NetnsMode::Exclusive) => NetnsMode::Shared,
        (RdmaNetns::Exclusive, NetnsMode::Shared) => NetnsMode::Exclusive,
        (RdmaNetns::Auto, NetnsMode::Shared) if rdma.rename.is_some() => {
            return Err(Error::Unsupported {
                key: "rdma.rename",
                value: rdma.rename.clone().unwrap_or_default(),
                remedy: "this node shares its RDMA devices among all namespaces, where a new name would apply to all pods; remove it",
            });
        }
        _ => return Ok(()),
    };
    Err(RdmaError::Mode { asked, is }.into())
}

fn missing(facts: &Facts, reason: &NotFound) -> Error {
    RdmaError::Missing {
        link: link(facts).to_owned(),
        reason: reason.to_string(),
    }
    .into()
}

fn link(facts: &Facts) -> &str {
    facts
        .lowers
        .first()
        .map_or("the master", |lower| lower.link.name.as_str())
}

fn unlisted(found: &Found<'_>) -> RdmaError {
    RdmaError::Unlisted {
        device: found.seen.device.name.clone(),
    }
}

fn grant(found: &Found<'_>, index: u32, netns: Sharing) -> Grant {
    let device = &found.seen.device;
    Grant {
        device: Identity {
            name: device.name.clone(),
            index,
            node_guid: device.node_guid,
            pci: device.pci,
            path: device.path.clone(),
        },
        port: found.port.number,
        link_layer: found.port.layer.to_string(),
        netns,
    }
}

#[cfg(test)]
mod tests;
