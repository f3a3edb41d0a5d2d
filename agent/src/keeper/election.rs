// SPDX-License-Identifier: Apache-2.0
//! Who is the keeper: a Lease that is renewed, and taken once it has not changed for its whole duration by the clock of
//! whoever takes it (as client-go's leader election does).
//!
//! Every agent is a candidate, and there may be thousands: together they look at the Lease [`LOOKS_A_SECOND`] times a
//! second. How many nodes there are stands on the Lease itself ([`NODES`]), where the keeper writes it. Whoever finds it old
//! looks again after its duration, so that a keeper that dies is replaced within twice that duration and a moment, however
//! many candidates there are.

use crate::agent::Agent;
use crate::cluster::{Trouble, Written, create, get, swap};
use crate::patience::briefly;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use std::time::{Duration, Instant};

const NAME: &str = "rdmanet-keeper";

/// How long a keeper may be silent.
const DURATION: Duration = Duration::from_secs(15);

/// The annotation of the Lease that says how many nodes the cluster has.
const NODES: &str = "rdmanet.io/nodes";

/// How often all candidates together look.
const LOOKS_A_SECOND: u64 = 20;

/// How seldom one candidate looks, at most.
const SELDOM: Duration = Duration::from_secs(600);

/// One candidate.
pub(super) struct Election {
    leases: Api<Lease>,
    eye: Eye,
    /// When there is something to do next.
    next: Option<Instant>,
    was: bool,
}

/// What a candidate remembers.
struct Eye {
    me: String,
    /// The version that was seen last, and since when.
    seen: Option<(String, Instant)>,
    /// How many nodes there are, as the keeper says; 0 if it has not said.
    nodes: u64,
}

/// What a candidate finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It is the keeper, or becomes it.
    Mine,
    /// Another keeps it.
    Kept,
    /// Another has it and may be dead; that is known when this time has passed.
    Old(Duration),
}

impl Election {
    pub(super) fn new(agent: &Agent) -> Self {
        Self {
            leases: Api::namespaced(agent.cluster.client.clone(), &agent.config.namespace),
            eye: Eye {
                me: agent.config.node.clone(),
                seen: None,
                nodes: 0,
            },
            next: None,
            was: false,
        }
    }

    /// Whether this agent is the keeper now; renews, takes or looks at the Lease when it is time. `nodes`: how many there are, if
    /// this agent is the keeper and knows.
    pub(super) async fn renew(&mut self, nodes: Option<u64>) -> Result<bool, Trouble> {
        if self.next.is_some_and(|next| Instant::now() < next) {
            return Ok(self.was);
        }
        self.eye.nodes = nodes.unwrap_or(self.eye.nodes);
        let began = Instant::now();
        let was = std::mem::take(&mut self.was);
        let chance = fastrand::f64();
        // Without an answer it is not known who has it. A keeper asks again at once; others would only add to what keeps the
        // API server from answering.
        self.next = (!was).then(|| began + pause(Found::Kept, self.eye.nodes, chance));
        let found = if was {
            briefly(self.attempt()).await?
        } else {
            self.attempt().await?
        };
        self.was = found == Found::Mine;
        self.next = Some(began + pause(found, self.eye.nodes, chance));
        if self.was != was {
            tracing::info!(is_keeper = self.was, "the keeper has changed");
        }
        Ok(self.was)
    }

    async fn attempt(&mut self) -> Result<Found, Trouble> {
        let written = match get(&self.leases, NAME).await? {
            None => create(&self.leases, &self.lease(None)).await?,
            Some(lease) => match self.eye.find(&lease) {
                Found::Mine => swap(&self.leases, &self.lease(Some(lease))).await?,
                found => return Ok(found),
            },
        };
        Ok(match written {
            Written::Done(_) => Found::Mine,
            Written::Late => Found::Kept,
        })
    }

    fn lease(&self, before: Option<Lease>) -> Lease {
        let mut metadata = before.map_or_else(
            || ObjectMeta {
                name: Some(NAME.to_owned()),
                ..ObjectMeta::default()
            },
            |lease| lease.metadata,
        );
        let nodes = (NODES.to_owned(), self.eye.nodes.to_string());
        metadata.annotations.get_or_insert_default().extend([nodes]);
        Lease {
            metadata,
            spec: Some(LeaseSpec {
                holder_identity: Some(self.eye.me.clone()),
                lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
                renew_time: Some(MicroTime(Timestamp::now())),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Lets another be the keeper at once.
    pub(super) async fn resign(&mut self) {
        if !self.was {
            return;
        }
        if let Ok(Some(mut lease)) = get(&self.leases, NAME).await
            && let Some(spec) = lease
                .spec
                .as_mut()
                .filter(|spec| spec.holder_identity.as_deref() == Some(&self.eye.me))
        {
            spec.holder_identity = Some(String::new());
            // If this is lost, the others wait out the duration.
            let _ = swap(&self.leases, &lease).await;
        }
        self.was = false;
    }
}

impl Eye {
    fn find(&mut self, lease: &Lease) -> Found {
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        if holder == self.me || holder.is_empty() {
            return Found::Mine;
        }
        let nodes = lease.metadata.annotations.as_ref().and_then(|all| all.get(NODES));
        self.nodes = nodes.and_then(|nodes| nodes.parse().ok()).unwrap_or(self.nodes);
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        if let Some((seen, since)) = &self.seen
            && *seen == version
        {
            let left = DURATION.saturating_sub(since.elapsed());
            return if left.is_zero() {
                Found::Mine
            } else {
                Found::Old(left)
            };
        }
        self.seen = Some((version, Instant::now()));
        // Clocks may differ: this only decides when to look again.
        let silent = spec
            .renew_time
            .map(|MicroTime(at)| Timestamp::now().duration_since(at));
        match silent.map(Duration::try_from) {
            Some(Ok(silent)) if silent < DURATION => Found::Kept,
            _ => Found::Old(DURATION),
        }
    }
}

/// How long a candidate waits. `chance` (0 to 1) keeps those that started together from looking together.
fn pause(found: Found, nodes: u64, chance: f64) -> Duration {
    let turn = Duration::from_secs(nodes / LOOKS_A_SECOND);
    match found {
        Found::Mine => DURATION / 3,
        // Those that have found it old do not all come for it at once; the first of so many comes soon.
        Found::Old(left) => left + turn.min(SELDOM).mul_f64(chance),
        Found::Kept => turn.clamp(DURATION / 3, SELDOM).mul_f64(0.5 + chance),
    }
}

#[cfg(test)]
mod tests;
