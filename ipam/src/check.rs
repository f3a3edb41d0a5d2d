// SPDX-License-Identifier: Apache-2.0
//! CHECK: the attachment still holds the addresses that ADD reported.

use crate::config::Place;
use crate::store::{Lease, Node, Store};
use common::cni::dispatch::Call;
use common::cni::{Attachment, CniResult, Code, Error};

pub(crate) fn check(node: &Node, call: &Call, owner: &Attachment) -> Result<(), Error> {
    let place = Place::read(&call.conf)?;
    let previous = previous(call)?;
    let store = Store::new(&place, node)?;
    let network = format!("network {}", place.network);
    let Some(lease) = store.lease(owner)? else {
        return Err(Error::new(
            Code::CHECK_FAILED,
            format!(
                "{network}: {owner} has no lease; its addresses may be given to others; remove and create the pod again"
            ),
        ));
    };
    require_held(&store, &lease, &previous, &network)
}

/// The result of ADD, which CHECK requires.
pub(crate) fn previous(call: &Call) -> Result<CniResult, Error> {
    call.conf
        .prev_result()?
        .ok_or_else(|| Error::new(Code::INVALID_CONFIG, "CHECK needs prevResult, the answer of ADD"))
}

/// Fails unless every address of `lease` was reported and is still held.
pub(crate) fn require_held(
    store: &Store,
    lease: &Lease,
    previous: &CniResult,
    place: &str,
) -> Result<(), Error> {
    // Other plugins of the chain may have added their own addresses.
    for ip in &lease.result.ips {
        if !previous.ips.iter().any(|reported| reported.address == ip.address) {
            return Err(Error::new(
                Code::CHECK_FAILED,
                format!(
                    "{place}: {} holds {}, which prevResult lacks",
                    lease.owner, ip.address
                ),
            ));
        }
        store.require_claim(lease, ip.address.ip())?;
    }
    Ok(())
}
