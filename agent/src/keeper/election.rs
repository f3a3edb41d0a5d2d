// SPDX-License-Identifier: Apache-2.0
//! Who is the keeper: a Lease that is renewed, and taken once it has not changed for its whole duration by the clock of
//! whoever takes it (as client-go's leader election does).

use crate::agent::Agent;
use crate::cluster::{Trouble, Written, create, get, swap};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use std::time::{Duration, Instant};

const NAME: &str = "rdmanet-keeper";

/// How long a keeper may be silent.
const DURATION: Duration = Duration::from_secs(15);

/// One candidate.
pub(super) struct Election {
    leases: Api<Lease>,
    me: String,
    /// The version that was seen last, and since when.
    seen: Option<(String, Instant)>,
    renewed: Option<Instant>,
    was: bool,
}

impl Election {
    pub(super) fn new(agent: &Agent) -> Self {
        Self {
            leases: Api::namespaced(agent.cluster.client.clone(), &agent.config.namespace),
            me: agent.config.node.clone(),
            seen: None,
            renewed: None,
            was: false,
        }
    }

    /// Whether this agent is the keeper now; renews or takes the Lease when it is time.
    pub(super) async fn renew(&mut self) -> Result<bool, Trouble> {
        if self.was && self.renewed.is_some_and(|at| at.elapsed() < DURATION / 3) {
            return Ok(true);
        }
        let is_keeper = self.attempt().await?;
        if is_keeper != self.was {
            tracing::info!(is_keeper, "the keeper has changed");
        }
        self.was = is_keeper;
        Ok(is_keeper)
    }

    async fn attempt(&mut self) -> Result<bool, Trouble> {
        let began = Instant::now();
        let written = match get(&self.leases, NAME).await? {
            None => create(&self.leases, &self.lease(None)).await?,
            Some(lease) => {
                if !self.may_take(&lease) {
                    return Ok(false);
                }
                swap(&self.leases, &self.lease(Some(lease))).await?
            }
        };
        let mine = matches!(written, Written::Done(_));
        self.renewed = mine.then_some(began);
        Ok(mine)
    }

    fn may_take(&mut self, lease: &Lease) -> bool {
        let holder = lease
            .spec
            .as_ref()
            .and_then(|spec| spec.holder_identity.as_deref())
            .unwrap_or_default();
        if holder == self.me || holder.is_empty() {
            return true;
        }
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        match &self.seen {
            Some((seen, since)) if *seen == version => since.elapsed() >= DURATION,
            _ => {
                self.seen = Some((version, Instant::now()));
                false
            }
        }
    }

    fn lease(&self, before: Option<Lease>) -> Lease {
        let metadata = before.map_or_else(
            || ObjectMeta {
                name: Some(NAME.to_owned()),
                ..ObjectMeta::default()
            },
            |lease| lease.metadata,
        );
        Lease {
            metadata,
            spec: Some(LeaseSpec {
                holder_identity: Some(self.me.clone()),
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
                .filter(|spec| spec.holder_identity.as_deref() == Some(&self.me))
        {
            spec.holder_identity = Some(String::new());
            // If this is lost, the others wait out the duration.
            let _ = swap(&self.leases, &lease).await;
        }
        self.was = false;
    }
}
