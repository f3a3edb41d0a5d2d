// SPDX-License-Identifier: Apache-2.0
//! The labels of all namespaces, for pools with a `namespaceSelector`.
//!
//! One metadata watch per agent serves all pools. It runs while an accepted pool has a `namespaceSelector`, and begins when a
//! reconciler first asks. A list per pool and period would cost the API server as many full lists as there are nodes, for ever.
//!
//! Invariant: names are returned only after the API server has listed all namespaces. After that they follow the watch, which may
//! lag. A pod is rejected only after a GET of its own namespace (`pool_reconciler::requests`).

use api::IpPool;
use api::client::{Clients, WatchResult};
use api::deadline::{Deadline, TimedOut};
use api::requests::ApiError;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::core::{PartialObjectMeta, Selector, SelectorExt};
use kube::runtime::reflector::Store;
use kube::runtime::watcher::{self, Event};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;

/// How often the agent checks whether a pool still selects namespaces.
const IDLE_CHECK: Duration = Duration::from_secs(60);

type Labels = BTreeMap<String, String>;

/// The state of the watch.
#[derive(Debug)]
pub struct Namespaces(watch::Sender<State>);

#[derive(Debug, Default)]
struct State {
    /// A reconciler has asked since the watch last ended.
    wanted: bool,
    /// By name; none before the first list is complete.
    known: Option<BTreeMap<String, Labels>>,
    /// The list that is under way.
    listing: BTreeMap<String, Labels>,
    /// The last error of the watch.
    why: Option<String>,
}

impl Default for Namespaces {
    fn default() -> Self {
        Self(watch::Sender::new(State::default()))
    }
}

impl State {
    /// The names that `selector` selects, in order.
    fn selected(&self, selector: &Selector) -> Vec<String> {
        let known = self.known.iter().flatten();
        let selected = known.filter(|(_, labels)| selector.matches(labels));
        selected.map(|(name, _)| name.clone()).collect()
    }

    /// Handles an event of the watch. Returns whether names or labels have changed.
    fn take(&mut self, event: Event<PartialObjectMeta<Namespace>>) -> bool {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(one) => {
                self.listing.insert(one.name_any(), labels(one));
            }
            Event::InitDone => {
                self.why = None;
                let listed = Some(std::mem::take(&mut self.listing));
                let changed = listed != self.known;
                self.known = listed;
                return changed;
            }
            Event::Apply(one) => {
                let (name, labels) = (one.name_any(), labels(one));
                let known = self.known.get_or_insert_default();
                return known.insert(name, labels.clone()) != Some(labels);
            }
            Event::Delete(one) => {
                let known = self.known.get_or_insert_default();
                return known.remove(&one.name_any()).is_some();
            }
        }
        false
    }
}

fn labels(one: PartialObjectMeta<Namespace>) -> Labels {
    one.metadata.labels.unwrap_or_default()
}

/// Whether nodes need the labels of namespaces for `pool`.
fn selects(pool: &IpPool) -> bool {
    let accepted = pool.status.as_ref().and_then(|status| status.accepted.as_ref());
    accepted.is_some_and(|spec| spec.namespace_selector.is_some())
}

impl Namespaces {
    /// The names of the namespaces that `selector` selects, in order. Waits for the first list.
    ///
    /// # Errors
    /// [`ApiError::NoResponse`], if the namespaces cannot be listed in time; [`ApiError::NotSent`].
    pub async fn selected(&self, deadline: &Deadline, selector: &Selector) -> Result<Vec<String>, ApiError> {
        self.0
            .send_if_modified(|state| !std::mem::replace(&mut state.wanted, true));
        let mut state = self.0.subscribe();
        let what = "LIST and WATCH namespaces".to_owned();
        let names = async {
            let ready = state.wait_for(|state| state.known.is_some()).await;
            ready.map(|state| state.selected(selector))
        };
        match deadline.limit(names).await {
            Ok(Ok(names)) => Ok(names),
            Err(TimedOut::After(after)) => {
                let why = self.0.borrow().why.clone();
                let why = why.unwrap_or_else(|| format!("nothing within {:.1} s", after.as_secs_f64()));
                Err(ApiError::NoResponse { what, why })
            }
            // The sender is part of the agent, so there is one.
            Err(TimedOut::NotSent) | Ok(Err(_)) => Err(ApiError::NotSent { what }),
        }
    }

    fn take(&self, event: WatchResult<PartialObjectMeta<Namespace>>) -> bool {
        let mut changed = false;
        self.0.send_if_modified(|state| match event {
            Ok(event) => {
                changed = state.take(event);
                changed
            }
            Err(e) => {
                state.why = Some(common::cni::error::causes(&e));
                false
            }
        });
        changed
    }

    /// Watches namespaces whenever a reconciler needs them, for ever. If names or labels have changed, calls `changed` with each
    /// of `pools` that selects namespaces.
    pub(crate) async fn run(&self, clients: &Clients, pools: &Store<IpPool>, changed: impl Fn(&IpPool)) {
        let mut state = self.0.subscribe();
        while state.wait_for(|state| state.wanted).await.is_ok() {
            self.watch(clients, pools, &changed).await;
            self.0.send_replace(State::default());
        }
    }

    /// Watches namespaces until no pool selects any.
    async fn watch(&self, clients: &Clients, pools: &Store<IpPool>, changed: &impl Fn(&IpPool)) {
        let selecting = || pools.state().into_iter().filter(|pool| selects(pool));
        // Served from the API server's cache: thousands of agents may list at once.
        let config = watcher::Config::default().any_semantic();
        // For this type `kube` requests only the metadata.
        let mut events = std::pin::pin!(clients.watch::<PartialObjectMeta<Namespace>>(config));
        let mut check = tokio::time::interval(IDLE_CHECK);
        check.reset();
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(event) => if self.take(event) {
                        selecting().for_each(|pool| changed(&pool));
                    },
                    // A watcher has no end.
                    None => return,
                },
                _ = check.tick() => if selecting().next().is_none() {
                    return;
                },
            }
        }
    }
}

#[cfg(test)]
mod tests;
