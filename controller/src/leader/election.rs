// SPDX-License-Identifier: Apache-2.0
//! Leader election: the replica that holds the Lease does the work.
//!
//! Invariant: safety does not depend on the Lease. Two replicas may both hold it for a moment, for instance after a clock
//! jump or an outage of the API server. Each write of the leader carries the version that was read.

use crate::context::Context;
use kube_lease_manager::{LeaseCreateMode, LeaseManager, LeaseManagerBuilder, LeaseManagerError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// The Lease, in the namespace of the controller.
const NAME: &str = "rdmanet-controller";

/// Seconds after which another replica may take a Lease that was not renewed.
const DURATION: u64 = 15;

/// The leader renews the Lease this many seconds before it expires.
const GRACE: u64 = 7;

/// How long a replica waits after a request about the Lease that failed.
const PAUSE: Duration = Duration::from_secs(2);

/// How long the release of the Lease may take when the controller stops.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(4);

/// Takes part in the election until `stop`, and then releases the Lease. Reports each change of leadership to `leads`.
pub(super) async fn run(context: &Context, leads: watch::Sender<bool>, stop: &CancellationToken) {
    loop {
        let error = tokio::select! {
            () = stop.cancelled() => return,
            joined = join(context) => match joined {
                Ok(manager) => hold(&manager, &leads, stop).await.err(),
                Err(error) => Some(error),
            },
        };
        set_leadership(&leads, false);
        let Some(error) = error else { return };
        tracing::warn!(%error, lease = NAME, "taking part in the leader election failed; retrying");
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(PAUSE) => {}
        }
    }
}

async fn join(context: &Context) -> Result<LeaseManager, LeaseManagerError> {
    LeaseManagerBuilder::new(context.clients.for_libraries(), NAME)
        .with_namespace(&context.config.namespace)
        .with_create_mode(LeaseCreateMode::AutoCreate)
        .with_identity(&context.config.identity)
        .with_field_manager(&context.config.identity)
        .with_duration(DURATION)
        .with_grace(GRACE)
        .build()
        .await
}

/// Waits for the Lease and renews it, until `stop`.
///
/// # Errors
/// The API server did not respond or refused a request: it is unknown whether this replica holds the Lease.
async fn hold(
    manager: &LeaseManager,
    leads: &watch::Sender<bool>,
    stop: &CancellationToken,
) -> Result<(), LeaseManagerError> {
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            changed = manager.changed() => set_leadership(leads, changed?),
        }
    }
    set_leadership(leads, false);
    // If the release is lost, the other replica waits until the Lease expires.
    if let Ok(Err(error)) = timeout(RELEASE_TIMEOUT, manager.release()).await {
        tracing::debug!(%error, lease = NAME, "releasing the Lease failed");
    }
    Ok(())
}

fn set_leadership(leads: &watch::Sender<bool>, is_leader: bool) {
    let changed = leads.send_if_modified(|before| std::mem::replace(before, is_leader) != is_leader);
    if changed {
        tracing::info!(is_leader, "leadership changed");
    }
}
