// SPDX-License-Identifier: Apache-2.0
//! The RDMA device of the interface: moves it if necessary, and writes the record of it.
//!
//! This follows the interface: an Ethernet link is moved or created first, so that the device finds its
//! addresses when it fills its GID table.

use super::AttachContext;
use crate::device_info;
use crate::error::Error;
use crate::intent::Grant;
use crate::plan::Plan;
use crate::rdma::record;
use crate::rdma::transfer::{bring_back, hand_over};
use common::cni;
use common::undo::Undo;

/// Gives the pod its RDMA device.
pub(super) fn give_rdma(undo: &mut Undo<'_, AttachContext<'_>>, plan: &Plan) -> Result<(), Error> {
    let Some(grant) = &plan.rdma else {
        return Ok(());
    };
    if let Some(identity) = grant.moved().cloned() {
        undo.remember(
            format!("bring RDMA device {} back", identity.name),
            move |context| {
                bring_back(context.kernel, &identity)
                    .map(|_| ())
                    .map_err(|e| cni::error::causes(&e))
            },
        );
        hand_over(undo.target().kernel, grant)?;
    }
    write_record(undo, grant)
}

/// Writes the record of the device for other programs.
pub(crate) fn write_record(undo: &mut Undo<'_, AttachContext<'_>>, grant: &Grant) -> Result<(), Error> {
    let context = undo.target();
    let (state, attachment) = (context.state, context.attachment);
    let json = record::content(context.network, attachment, grant);
    undo.remember("remove the record of the RDMA device", move |context| {
        record::remove(context.state, context.attachment)
    });
    device_info::write(&record::file(state, attachment), &json)
}
