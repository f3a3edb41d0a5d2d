// SPDX-License-Identifier: Apache-2.0
//! The compared sides, each with its records and its cleaners.

use crate::cleaners::Cleaners;
use bench_kube::nodes;
use bench_kube::sides::Side;
use bench_kube::sides::ours::Ours;
use bench_kube::sides::peer::Peer;
use k8s_openapi::api::core::v1::Node;
use kube::api::DeleteParams;
use kube::{Api, Client};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// A side with its cleaners.
pub(crate) trait Subject {
    /// The plugin.
    fn side(&self) -> &impl Side;

    /// The addresses that a record keeps from other pods.
    async fn recorded(&self) -> BTreeSet<IpAddr>;

    /// Ends what runs on a node for this side. A repeated call is safe.
    async fn stop(&self, node: usize);

    /// Deletes a Node object.
    async fn delete(&self, node: usize);

    /// Runs the cleaner that has a schedule. Returns whether this side has one.
    async fn clean(&self) -> bool;
}

impl Subject for Ours {
    fn side(&self) -> &impl Side {
        self
    }

    async fn recorded(&self) -> BTreeSet<IpAddr> {
        self.recorded().await
    }

    async fn stop(&self, node: usize) {
        self.stop(node).await;
    }

    async fn delete(&self, node: usize) {
        self.delete(node).await;
    }

    async fn clean(&self) -> bool {
        false
    }
}

/// whereabouts with its cleaners.
pub(crate) struct Whereabouts {
    pub(crate) plugin: Peer,
    pub(crate) cleaners: Cleaners,
    pub(crate) admin: Client,
}

impl Subject for Whereabouts {
    fn side(&self) -> &impl Side {
        &self.plugin
    }

    async fn recorded(&self) -> BTreeSet<IpAddr> {
        self.plugin.recorded().await
    }

    async fn stop(&self, node: usize) {
        self.cleaners.stop(node);
    }

    async fn delete(&self, node: usize) {
        let nodes: Api<Node> = Api::all(self.admin.clone());
        nodes
            .delete(&nodes::name(node), &DeleteParams::default())
            .await
            .unwrap();
    }

    async fn clean(&self) -> bool {
        self.cleaners.reconcile().await;
        true
    }
}
