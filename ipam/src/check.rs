// SPDX-License-Identifier: Apache-2.0
//! CHECK: the attachment still has the addresses that ADD reported.

use crate::config::Place;
use crate::store::{Node, Store};
use common::cni::dispatch::Call;
use common::cni::{Attachment, Code, Error};

pub(crate) fn check(node: &Node, call: &Call, owner: &Attachment) -> Result<(), Error> {
    let place = Place::read(&call.conf)?;
    let wrong = |what: String| Error::new(Code::CHECK_FAILED, format!("network {}: {what}", place.network));
    let Some(previous) = call.conf.prev_result()? else {
        return Err(Error::new(
            Code::INVALID_CONFIG,
            "CHECK needs prevResult, the answer of ADD",
        ));
    };
    let store = Store::new(&place, node)?;
    let Some(lease) = store.lease(owner)? else {
        return Err(wrong(format!(
            "{owner} has no lease; its addresses may be given to others; remove and create the pod again"
        )));
    };
    // Other plugins of the chain may have added addresses of their own.
    for ip in &lease.result.ips {
        if !previous.ips.iter().any(|reported| reported.address == ip.address) {
            return Err(wrong(format!(
                "{owner} holds {}, which prevResult lacks",
                ip.address
            )));
        }
        store.require_claim(&lease, ip.address.ip())?;
    }
    Ok(())
}
