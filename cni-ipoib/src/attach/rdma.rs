// SPDX-License-Identifier: Apache-2.0
//! The RDMA device of the interface: moves it if necessary, and writes the record of it.
//!
//! This follows the interface: an Ethernet link is moved or created first, so that the device finds its
//! addresses when it fills its GID table.

use super::Effects;
use crate::device_info;
use crate::error::Error;
use crate::intent::Grant;
use crate::rdma::record;
use crate::rdma::transfer::{bring_back, hand_over};
use common::cni;

/// Moves the granted device into the pod, if it moves.
pub(super) fn hand_over_undoably(effects: &mut Effects<'_, '_>, grant: Option<&Grant>) -> Result<(), Error> {
    let Some((grant, identity)) = grant.and_then(|grant| Some((grant, grant.moved()?.clone()))) else {
        return Ok(());
    };
    effects.remember(
        format!("bring RDMA device {} back", identity.name),
        move |context| {
            bring_back(context.kernel, context.state, &identity)
                .map(|_| ())
                .map_err(|e| cni::error::causes(&e))
        },
    );
    let context = effects.target();
    hand_over(context.kernel, context.state, grant)
}

/// Writes the record of the device for other programs.
pub(super) fn write_record(effects: &mut Effects<'_, '_>, grant: &Grant) -> Result<(), Error> {
    let context = effects.target();
    let (state, attachment) = (context.state, context.attachment);
    let json = record::content(context.network, attachment, grant);
    effects.remember("remove the record of the RDMA device", move |context| {
        record::remove(context.state, context.network, context.attachment)
    });
    device_info::write(&record::file(state, attachment), &json)
}
