// SPDX-License-Identifier: Apache-2.0
//! whereabouts, with one range for all nodes, or with a slice for each node.

use super::{Given, NETWORK, Sandbox, Side, Witness};
use crate::call::Call;
use crate::exact::{Exact, Slices};
use crate::whereabouts::ACCOUNT;
use crate::witness::{Assignment, compare};
use crate::{account, nodes};
use apiserver::Server;
use ipnetwork::Ipv4Network;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

/// The namespace of the objects of whereabouts.
const NAMESPACE: &str = "kube-system";

/// The plugin with its range.
pub struct Peer {
    title: &'static str,
    plugin: PathBuf,
    ipam: Value,
    /// The subnet, which no other side has.
    subnet: Ipv4Network,
    addresses: u32,
    admin: Client,
}

impl Peer {
    /// One range with so many addresses.
    pub async fn plain(server: &Server, plugin: &Path, defaults: &Path, addresses: u32) -> Self {
        let exact = Exact::new(Ipv4Addr::new(10, 62, 0, 0), addresses);
        Self {
            title: "whereabouts v0.9.4",
            plugin: plugin.to_owned(),
            ipam: json!({
                "type": "whereabouts", "range": exact.subnet.to_string(), "range_start": exact.first(),
                "range_end": exact.last, "configuration_path": defaults,
            }),
            subnet: exact.subnet,
            addresses,
            admin: server.admin().await,
        }
    }

    /// A slice for each of so many nodes, with room for so many pods. Slices are equal subnets, so they have more
    /// addresses than there are pods.
    pub async fn with_slices(
        server: &Server,
        plugin: &Path,
        defaults: &Path,
        (nodes, pods): (u32, u32),
    ) -> Self {
        let slices = Slices::new(Ipv4Addr::new(10, 63, 0, 0), nodes, pods);
        let length = format!("/{}", slices.nodes[0].prefix());
        let peer = Self {
            title: "whereabouts v0.9.4, node slices",
            plugin: plugin.to_owned(),
            ipam: json!({
                "type": "whereabouts", "range": slices.subnet.to_string(), "node_slice_size": length,
                "configuration_path": defaults,
            }),
            subnet: slices.subnet,
            addresses: slices.nodes.iter().map(|slice| slice.size() - 2).sum(),
            admin: server.admin().await,
        };
        peer.assign(&slices, &length).await;
        peer
    }

    /// Creates the object in which whereabouts' controller assigns a slice to each node.
    async fn assign(&self, slices: &Slices, length: &str) {
        let slice = |(i, slice): (usize, &Ipv4Network)| json!({ "nodeName": nodes::name(i), "sliceRange": slice.to_string() });
        let allocations: Vec<Value> = slices.nodes.iter().enumerate().map(slice).collect();
        let object = json!({
            "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "NodeSlicePool",
            "metadata": { "name": NETWORK, "namespace": NAMESPACE },
            "spec": { "range": slices.subnet.to_string(), "sliceSize": length },
            "status": { "allocations": allocations },
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        apiserver::install::apply(&self.admin, &object).await;
    }

    async fn list(&self, kind: &str, plural: &str) -> Vec<DynamicObject> {
        let kind = GroupVersionKind::gvk("whereabouts.cni.cncf.io", "v1alpha1", kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        let api: Api<DynamicObject> = Api::namespaced_with(self.admin.clone(), NAMESPACE, &resource);
        super::list(api).await
    }

    /// The addresses with an allocation or a reservation.
    pub async fn recorded(&self) -> BTreeSet<IpAddr> {
        let records = self
            .allocations()
            .await
            .into_iter()
            .chain(self.reservations().await);
        records.map(|record| record.address).collect()
    }

    /// The allocations in the pools of this side.
    async fn allocations(&self) -> Vec<Assignment> {
        let pools = self.list("IPPool", "ippools").await;
        let all = pools.iter().flat_map(|pool| allocations(&pool.data["spec"]));
        self.own(all.collect())
    }

    /// The reservations of addresses of this side.
    async fn reservations(&self) -> Vec<Assignment> {
        let objects = self.list("OverlappingRangeIPReservation", "overlappingrangeipreservations");
        let reservation = |object: DynamicObject| Assignment {
            address: object.metadata.name.unwrap().parse().unwrap(),
            pod: object.data["spec"]["podref"].as_str().unwrap().to_owned(),
        };
        self.own(objects.await.into_iter().map(reservation).collect())
    }

    fn own(&self, mut all: Vec<Assignment>) -> Vec<Assignment> {
        all.retain(|assignment| matches!(assignment.address, IpAddr::V4(ip) if self.subnet.contains(ip)));
        all
    }
}

impl Side for Peer {
    fn title(&self) -> &'static str {
        self.title
    }

    fn user(&self) -> String {
        account::user(ACCOUNT)
    }

    fn addresses(&self) -> u32 {
        self.addresses
    }

    fn call(&self, verb: &'static str, sandbox: Sandbox<'_>) -> Call {
        Call {
            node: Some(nodes::name(sandbox.node)),
            ..sandbox.call(&self.plugin, verb, &self.ipam)
        }
    }

    async fn witnesses(&self, given: &[Given]) -> Vec<Witness> {
        let results: Vec<Assignment> = given.iter().map(|given| given.assignment.clone()).collect();
        vec![
            Witness {
                name: "IPPools",
                difference: compare(&results, &self.allocations().await),
            },
            Witness {
                name: "OverlappingRangeIPReservations",
                difference: compare(&results, &self.reservations().await),
            },
        ]
    }
}

/// The allocations of a pool with this spec: each has the offset of its address in the range as its name.
fn allocations(spec: &Value) -> Vec<Assignment> {
    let range: Ipv4Network = spec["range"].as_str().unwrap().parse().unwrap();
    let allocations = spec["allocations"].as_object().into_iter().flatten();
    let assignment = |(offset, allocation): (&String, &Value)| Assignment {
        address: Ipv4Addr::from(u32::from(range.ip()) + offset.parse::<u32>().unwrap()).into(),
        pod: allocation["podref"].as_str().unwrap().to_owned(),
    };
    allocations.map(assignment).collect()
}
