// SPDX-License-Identifier: Apache-2.0
//! The pods of a `StatefulSet`: each exists once at a time, on any machine, and keeps its address.

use crate::pool::Pool;
use apiserver::objects;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Mutex;

/// The number of replicas.
pub(crate) const REPLICAS: usize = 12;

/// The pool of the replica with this ordinal.
pub(crate) fn pool_of(ordinal: usize) -> Pool {
    Pool::ALL[ordinal % Pool::ALL.len()]
}

/// A replica of a `StatefulSet`.
#[derive(Default)]
struct Replica {
    exists: bool,
    addresses: Vec<IpAddr>,
}

/// All replicas of the `StatefulSet`.
pub(crate) struct Replicas {
    owner: Value,
    all: Mutex<[Replica; REPLICAS]>,
}

fn sets(admin: &Client) -> Api<StatefulSet> {
    Api::namespaced(admin.clone(), "default")
}

impl Replicas {
    /// Creates the `StatefulSet`.
    pub(crate) async fn new(admin: &Client) -> Self {
        let set = objects::create(&sets(admin), objects::stateful_set("db", REPLICAS)).await;
        Self {
            owner: json!([{
                "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": set.uid(), "controller": true,
            }]),
            all: Mutex::default(),
        }
    }

    /// The `ownerReferences` of the pods.
    pub(crate) fn owner(&self) -> Value {
        self.owner.clone()
    }

    /// Starts a replica that has no pod now. Returns its ordinal.
    pub(crate) fn begin(&self, from: usize) -> Option<usize> {
        let mut all = self.all.lock().unwrap();
        let mut order = (0..REPLICAS).map(|i| (from + i) % REPLICAS);
        let ordinal = order.find(|i| !all[*i].exists)?;
        all[ordinal].exists = true;
        Some(ordinal)
    }

    /// Records that the replica's pod is gone.
    pub(crate) fn end(&self, ordinal: usize) {
        self.all.lock().unwrap()[ordinal].exists = false;
    }

    /// Records the replica's addresses. Returns whether the replica had them before. Fails if it had others.
    pub(crate) fn given(&self, ordinal: usize, addresses: &[IpAddr]) -> bool {
        let mut all = self.all.lock().unwrap();
        let first = &mut all[ordinal].addresses;
        if first.is_empty() {
            first.extend(addresses);
            return false;
        }
        assert!(
            *first == addresses,
            "LOST: db-{ordinal} had {first:?} and has {addresses:?} now"
        );
        true
    }

    /// Scales the `StatefulSet` to zero.
    pub(crate) async fn retire(&self, admin: &Client) {
        let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
        sets(admin)
            .patch("db", &PatchParams::default(), &none)
            .await
            .unwrap();
    }
}
