// SPDX-License-Identifier: Apache-2.0
//! Who is the keeper: a Lease that is renewed, and taken once it has not changed for its whole duration by the clock of
//! whoever takes it (as client-go's leader election does).
//!
//! Every agent is a candidate, and there may be thousands: together they look at the Lease [`LOOKS_A_SECOND`] times a
//! second. How many nodes there are stands on the Lease itself ([`NODES`]), where the keeper writes it. Whoever finds it old
//! looks again after its duration, so that a keeper that dies is replaced within twice that duration and a moment, however
//! many candidates there are.
//!
//! The keeper renews by one request, whatever work it has under way, and goes on for as long as nobody else can have taken the
//! Lease: an API server that is short of time would only have more to do if the role went round.

use crate::agent::Agent;
use crate::cluster::{Trouble, Written, create, get, swap};
use crate::patience::{self, QUESTION, until_stopped};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

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
    /// As long as this agent is the keeper.
    held: Option<Held>,
}

/// The Lease of a keeper.
#[derive(Clone)]
struct Held {
    /// As it was written last.
    lease: Lease,
    /// Until when nobody else can have taken it.
    until: Instant,
}

/// What a candidate remembers.
struct Eye {
    me: String,
    /// How long a keeper may be silent.
    duration: Duration,
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
        let leases = Api::namespaced(agent.cluster.client.clone(), &agent.config.namespace);
        Self::of(leases, &agent.config.node, DURATION)
    }

    fn of(leases: Api<Lease>, me: &str, duration: Duration) -> Self {
        Self {
            leases,
            eye: Eye {
                me: me.to_owned(),
                duration,
                seen: None,
                nodes: 0,
            },
            held: None,
        }
    }

    /// Takes part until `stop`, and lets another be the keeper then. Says whenever this agent becomes the keeper or is it no more;
    /// `nodes`: how many there are, if this agent knows.
    pub(super) async fn run(
        mut self,
        nodes: watch::Receiver<Option<u64>>,
        says: watch::Sender<bool>,
        stop: CancellationToken,
    ) {
        while !stop.is_cancelled() {
            self.eye.nodes = nodes.borrow().unwrap_or(self.eye.nodes);
            self.held.take_if(|held| held.until <= Instant::now());
            self.tell(&says);
            let pause = until_stopped(&stop, Box::pin(self.turn())).await;
            self.tell(&says);
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        patience::until(Instant::now() + QUESTION, self.resign()).await;
    }

    fn tell(&self, says: &watch::Sender<bool>) {
        let is_keeper = self.held.is_some();
        let turned = says.send_if_modified(|said| std::mem::replace(said, is_keeper) != is_keeper);
        if turned {
            tracing::info!(is_keeper, "the keeper has changed");
        }
    }

    /// Renews, takes or looks at the Lease. Returns when there is something to do next.
    async fn turn(&mut self) -> Duration {
        let began = Instant::now();
        let chance = fastrand::f64();
        let found = match self.held.clone() {
            Some(held) => {
                let end = held.until.min(began + QUESTION);
                patience::until(end, self.renew(began, held.lease)).await
            }
            None => self.look(began).await,
        };
        match found {
            Ok(found) => self.eye.pause(found, chance).saturating_sub(began.elapsed()),
            Err(trouble) => {
                tracing::debug!(error = %trouble, "no word about who is the keeper");
                match &self.held {
                    Some(held) => {
                        (self.eye.duration / 15).min(held.until.saturating_duration_since(Instant::now()))
                    }
                    // Candidates would only add to what keeps the API server from answering.
                    None => self.eye.pause(Found::Kept, chance),
                }
            }
        }
    }

    async fn renew(&mut self, began: Instant, before: Lease) -> Result<Found, Trouble> {
        match swap(&self.leases, &self.lease(Some(before))).await? {
            Written::Done(lease) => Ok(self.hold(lease, began)),
            // Somebody has it; or this agent itself, by an earlier request that was not answered.
            Written::Late => self.look(began).await,
        }
    }

    async fn look(&mut self, began: Instant) -> Result<Found, Trouble> {
        let written = match get(&self.leases, NAME).await? {
            None => create(&self.leases, &self.lease(None)).await?,
            Some(lease) => match self.eye.find(&lease) {
                Found::Mine => swap(&self.leases, &self.lease(Some(lease))).await?,
                found => {
                    self.held = None;
                    return Ok(found);
                }
            },
        };
        Ok(match written {
            Written::Done(lease) => self.hold(lease, began),
            Written::Late => {
                self.held = None;
                Found::Kept
            }
        })
    }

    fn hold(&mut self, lease: Lease, began: Instant) -> Found {
        let until = began + self.eye.duration;
        self.held = Some(Held { lease, until });
        Found::Mine
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
                lease_duration_seconds: i32::try_from(self.eye.duration.as_secs()).ok(),
                renew_time: Some(MicroTime(Timestamp::now())),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Lets another be the keeper at once.
    async fn resign(self) {
        let Some(Held { mut lease, .. }) = self.held else {
            return;
        };
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
        }
        // If this is lost, the others wait out the duration.
        let _ = swap(&self.leases, &lease).await;
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
            let left = self.duration.saturating_sub(since.elapsed());
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
            Some(Ok(silent)) if silent < self.duration => Found::Kept,
            _ => Found::Old(self.duration),
        }
    }

    /// How long a candidate waits. `chance` (0 to 1) keeps those that started together from looking together.
    fn pause(&self, found: Found, chance: f64) -> Duration {
        let turn = Duration::from_secs(self.nodes / LOOKS_A_SECOND);
        let third = self.duration / 3;
        match found {
            Found::Mine => third,
            // Those that have found it old do not all come for it at once; the first of so many comes soon.
            Found::Old(left) => left + turn.min(SELDOM).mul_f64(chance),
            Found::Kept => turn.clamp(third, SELDOM).mul_f64(0.5 + chance),
        }
    }
}

#[cfg(test)]
mod tests;
