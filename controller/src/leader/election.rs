// SPDX-License-Identifier: Apache-2.0
//! Leader election: the replica that holds the Lease does the work.
//!
//! Invariant: safety does not depend on the Lease. Two replicas may both hold it for a moment, for instance after a clock
//! jump or an outage of the API server. Each write of the leader carries the version that was read, except the usage of a shared
//! block.
//!
//! The crate `kube-lease-manager` compares the time in the Lease with this machine's time of day, and reads the Lease again only
//! when it has expired. If a leader's clock was ahead, each replica would sleep until then. So each replica also reads the Lease by
//! its monotonic clock, and clears a Lease that nothing renews.

use crate::context::Context;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube_lease_manager::{LeaseCreateMode, LeaseManager, LeaseManagerBuilder, LeaseManagerError};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
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

/// How often each replica reads the Lease by its monotonic clock.
const OBSERVATION_INTERVAL: Duration = Duration::from_secs(10);

/// A Lease that did not change for this long is cleared. A leader renews it every 8 s.
const STALE: Duration = Duration::from_secs(2 * DURATION);

/// How long a read or the clearing of the Lease may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the release of the Lease may take when the controller stops.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(4);

/// Takes part in the election until `stop`, and then releases the Lease. Reports each change of leadership to `leads`.
pub(super) async fn run(context: Arc<Context>, leads: watch::Sender<bool>, stop: CancellationToken) {
    let (context, stop) = (&*context, &stop);
    loop {
        let error = tokio::select! {
            () = stop.cancelled() => return,
            joined = join(context) => match joined {
                Ok(manager) => tokio::select! {
                    held = hold(&manager, &leads, stop) => match held {
                        Ok(()) => return,
                        Err(error) => Some(error),
                    },
                    () = observe(context, &leads) => None,
                },
                Err(error) => Some(error),
            },
        };
        set_leadership(&leads, false);
        if let Some(error) = error {
            tracing::warn!(%error, lease = NAME, "taking part in the leader election failed; retrying");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(PAUSE) => {}
        }
    }
}

/// What this replica does about the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Nothing: the Lease changes, or was read only a while ago.
    Wait,
    /// Another replica has the Lease, and this one still leads.
    Rejoin,
    /// Nothing renews the Lease.
    Clear,
}

/// The holder and the time of the last renewal in the Lease, and since when this process has seen both.
#[derive(Default)]
struct Observation(Option<(Option<String>, Option<MicroTime>, Instant)>);

impl Observation {
    /// Judges the Lease as it was read at `now`. `leader`: the identity of this replica, if it leads.
    fn judge(&mut self, spec: &LeaseSpec, leader: Option<&str>, now: Instant) -> Verdict {
        if leader.is_some() && spec.holder_identity.as_deref() != leader {
            return Verdict::Rejoin;
        }
        match &self.0 {
            Some((holder, renewed, since))
                if *holder == spec.holder_identity && *renewed == spec.renew_time =>
            {
                if now.duration_since(*since) >= STALE {
                    Verdict::Clear
                } else {
                    Verdict::Wait
                }
            }
            _ => {
                self.0 = Some((spec.holder_identity.clone(), spec.renew_time.clone(), now));
                Verdict::Wait
            }
        }
    }
}

/// Returns when this replica must join the election anew, because it would wait for a time that its clock does not reach soon.
async fn observe(context: &Context, leads: &watch::Sender<bool>) {
    let api: Api<Lease> = Api::namespaced(context.clients.for_libraries(), &context.config.namespace);
    let mut seen = Observation::default();
    loop {
        sleep(OBSERVATION_INTERVAL).await;
        // Before the Lease is read: this replica may become the leader meanwhile.
        let leader = leads.borrow().then_some(context.config.identity.as_str());
        let Ok(Ok(lease)) = timeout(REQUEST_TIMEOUT, api.get(NAME)).await else {
            continue;
        };
        match seen.judge(&lease.spec.clone().unwrap_or_default(), leader, Instant::now()) {
            Verdict::Wait => {}
            Verdict::Rejoin => return,
            Verdict::Clear => {
                tracing::warn!(lease = NAME, "no replica renews the Lease; clearing it");
                if let Ok(Err(error)) = timeout(REQUEST_TIMEOUT, clear(&api, &lease)).await {
                    tracing::warn!(%error, lease = NAME, "clearing the Lease failed; retrying");
                }
                return;
            }
        }
    }
}

/// Removes the holder from the Lease, unless the Lease has changed since it was read.
async fn clear(api: &Api<Lease>, lease: &Lease) -> Result<(), kube::Error> {
    let cleared = json!({
        "metadata": { "resourceVersion": lease.metadata.resource_version },
        "spec": { "holderIdentity": null, "acquireTime": null, "renewTime": null, "leaseDurationSeconds": null },
    });
    let patch = Patch::Merge(cleared);
    api.patch(NAME, &PatchParams::default(), &patch).await.map(drop)
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

#[cfg(test)]
mod tests;
