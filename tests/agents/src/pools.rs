// SPDX-License-Identifier: Apache-2.0
//! The API server of a test and the objects of the test.

use crate::{Controller, Member};
use api::block_layout::BlockCidr;
use api::convert::{new_block, owner};
use api::{Counters, IpAddress, IpBlock, IpPool, NodeRef};
use apiserver::identity::NAMESPACE;
use apiserver::install::until;
use apiserver::objects;
use apiserver::{Proxy, Server};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tests::Call;
use tokio::runtime::Runtime;

/// The cluster of one test.
pub struct Site {
    /// The controller, which runs from the start.
    pub controller: Controller,
    /// The API server.
    pub server: Server,
    /// A client with the administrator's rights.
    pub admin: Client,
}

/// A cluster that several tests share, one after the other.
pub struct InTurn {
    flags: &'static [&'static str],
    cluster: OnceLock<(Runtime, Site)>,
    turn: Mutex<()>,
}

impl InTurn {
    /// A cluster that starts with the first test, with these flags of its controller.
    pub const fn new(flags: &'static [&'static str]) -> Self {
        Self {
            flags,
            cluster: OnceLock::new(),
            turn: Mutex::new(()),
        }
    }

    /// Runs `test` while no other test uses the cluster.
    pub fn run<T>(&self, test: impl FnOnce(&Runtime, &Site) -> T) -> T {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let (runtime, site) = self.cluster.get_or_init(|| {
            let runtime = Runtime::new().unwrap();
            let site = runtime.block_on(Site::with(self.flags));
            (runtime, site)
        });
        test(runtime, site)
    }
}

impl Site {
    /// A new cluster with all manifests of `conf/`.
    pub async fn new() -> Self {
        Self::with(&[]).await
    }

    /// Like [`Self::new`], with these flags of the controller.
    pub async fn with(flags: &[&str]) -> Self {
        let server = Server::installed().await;
        let admin = server.admin().await;
        // A pod needs this account, and no controller of Kubernetes runs here to create it.
        objects::account(&admin, "default", "default").await;
        let controller = Controller::new(&server, "a").await;
        controller.start(&server, flags);
        Self {
            controller,
            server,
            admin,
        }
    }

    /// A new site with the node `a`, whose agent runs.
    pub async fn with_node() -> (Self, Member) {
        let site = Self::new().await;
        let node = Member::running(&site.server, "a", &[]).await;
        (site, node)
    }

    /// A node whose agent reaches the API server through a proxy. The agent does not run yet.
    pub async fn behind_proxy(&self, name: &str, flags: &[&str]) -> (Member, Proxy) {
        let proxy = Proxy::start(&self.server).await;
        let node = Member::new(&self.server, name, flags).await;
        node.go_through(&proxy, &self.server);
        (node, proxy)
    }

    /// Two nodes `a` and `b` with running agents.
    pub async fn two_nodes(&self) -> [Member; 2] {
        self.two_nodes_with(&[]).await
    }

    /// The same with these flags of the agents.
    pub async fn two_nodes_with(&self, flags: &[&str]) -> [Member; 2] {
        [
            Member::running(&self.server, "a", flags).await,
            Member::running(&self.server, "b", flags).await,
        ]
    }

    /// The pools.
    pub fn pools(&self) -> Api<IpPool> {
        Api::all(self.admin.clone())
    }

    /// Whether the cluster has no pool.
    pub async fn has_no_pool(&self) -> bool {
        let all = self.pools().list(&ListParams::default()).await.unwrap();
        all.items.is_empty()
    }

    /// Creates a pool with this spec.
    pub async fn pool(&self, name: &str, spec: Value) {
        objects::create(&self.pools(), objects::pool(name, &spec)).await;
    }

    /// Creates a pool of one range without gateway, in blocks of 16 addresses.
    pub async fn simple(&self, name: &str, subnet: &str) {
        self.pool(name, simple(subnet)).await;
    }

    /// Creates a pool of 10.1.0.0/24 that reserves 10.1.0.200 to 10.1.0.210, and waits until each node has a block of it.
    pub async fn pool_with_reserved(&self, name: &str, nodes: &[Member]) {
        let mut spec = simple("10.1.0.0/24");
        spec["reserved"] = json!(["10.1.0.200-10.1.0.210"]);
        self.pool(name, spec).await;
        for node in nodes {
            node.wait_active(name).await;
        }
    }

    /// Merges `change` into a pool.
    pub async fn edit(&self, name: &str, change: Value) {
        self.pools()
            .patch(name, &PatchParams::default(), &Patch::Merge(change))
            .await
            .unwrap();
    }

    /// Deletes a pool.
    pub async fn delete(&self, name: &str) {
        self.pools().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Deletes a pool and removes its finalizer, as a person may do while pods have addresses of it. Returns once it is gone.
    pub async fn lose_pool(&self, name: &str) {
        self.delete(name).await;
        self.edit(name, json!({ "metadata": { "finalizers": null } }))
            .await;
        until("the pool is gone", async || self.has_no_pool().await).await;
    }

    /// The blocks of a pool.
    pub async fn blocks(&self, pool: &str) -> Vec<IpBlock> {
        let all: Api<IpBlock> = Api::all(self.admin.clone());
        let mut blocks = Vec::new();
        // An API server that has just started answers 429 until its cache of the blocks is filled.
        until("the API server lists the blocks", async || {
            let listed = all.list(&ListParams::default()).await;
            let too_early = matches!(&listed, Err(kube::Error::Api(status)) if status.code == 429);
            if !too_early {
                blocks = listed.unwrap().items;
            }
            !too_early
        })
        .await;
        blocks.retain(|block| block.spec.pool == pool);
        blocks
    }

    /// Creates `count` blocks of 16 addresses, starting at `first`, for nodes without an agent. A block that exists
    /// stays unchanged.
    pub async fn crowd(&self, pool: &str, first: Ipv4Addr, count: u32, node: impl Fn(u32) -> NodeRef) {
        let blocks: Api<IpBlock> = Api::all(self.admin.clone());
        for i in 0..count {
            let ip = Ipv4Addr::from_bits(first.to_bits() + i * 16);
            let cidr = BlockCidr::containing(ip.into(), 4).unwrap();
            let owner = owner(&node(i));
            let mut block = new_block(&cidr.name("default"), pool, cidr, &owner, Duration::ZERO);
            // No agent would remove the finalizer.
            block.metadata.finalizers = None;
            block.spec.quarantine_seconds = None;
            let made = blocks.create(&PostParams::default(), &block).await;
            let is_there = matches!(&made, Err(kube::Error::Api(status)) if status.code == 409);
            assert!(is_there || made.is_ok(), "{made:?}");
        }
    }

    /// The identity of the leading replica of the controller. Empty if none leads, or before the first replica creates the Lease.
    pub async fn leader(&self) -> String {
        let leases: Api<Lease> = Api::namespaced(self.admin.clone(), NAMESPACE);
        let lease = leases.get_opt("rdmanet-controller").await.unwrap();
        let holder = lease.and_then(|lease| lease.spec?.holder_identity);
        holder.unwrap_or_default()
    }

    /// The address objects.
    pub async fn addresses(&self) -> Vec<IpAddress> {
        let all: Api<IpAddress> = Api::all(self.admin.clone());
        all.list(&ListParams::default()).await.unwrap().items
    }

    /// The counters of a pool, from its status.
    pub async fn counters(&self, pool: &str) -> Counters {
        let pool = self.pools().get(pool).await.unwrap();
        pool.status.unwrap_or_default().counters.unwrap_or_default()
    }

    /// The status, reason and message of a pool's condition.
    pub async fn condition(&self, pool: &str, kind: &str) -> (String, String, String) {
        let pool = self.pools().get_opt(pool).await.unwrap();
        let conditions = pool.and_then(|pool| pool.status).unwrap_or_default().conditions;
        let found = conditions.into_iter().find(|condition| condition.type_ == kind);
        found.map(|c| (c.status, c.reason, c.message)).unwrap_or_default()
    }

    /// The status of a pool as Flux and Helm compute it, from their own code: kstatus.
    pub async fn kstatus(&self, pool: &str) -> String {
        let pool = self.pools().get(pool).await.unwrap();
        let program = tests::programs::checks().join("kstatus");
        let answer = Call::new(&program)
            .stdin(serde_json::to_vec(&pool).unwrap())
            .run();
        assert!(answer.status.success(), "{answer}");
        answer.stdout.split(' ').next().unwrap().to_owned()
    }

    /// Waits until a condition has this status.
    pub async fn wait_condition(&self, pool: &str, kind: &str, status: &str) {
        until(&format!("{kind} of {pool} is {status}"), async || {
            self.condition(pool, kind).await.0 == status
        })
        .await;
    }

    /// Waits until the pool has `count` blocks.
    pub async fn wait_blocks(&self, pool: &str, count: usize) {
        until(&format!("{pool} has {count} blocks"), async || {
            self.blocks(pool).await.len() == count
        })
        .await;
    }

    /// Deletes a Node object.
    pub async fn remove_node(&self, name: &str) {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.admin.clone());
        nodes
            .delete(name, &DeleteParams::default().grace_period(0))
            .await
            .unwrap();
    }

    /// Creates a pod on a node.
    pub async fn pod(&self, name: &str, node: &str) -> String {
        self.create_pod(json!({ "name": name }), node).await
    }

    /// Creates a pod with this metadata on a node. Returns its UID.
    async fn create_pod(&self, metadata: Value, node: &str) -> String {
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::default_namespaced(self.admin.clone());
        let pod = objects::create(&pods, objects::pod(&metadata, node)).await;
        pod.uid().unwrap()
    }

    /// Creates a `StatefulSet`. Only [`Site::replica`] creates its pods.
    pub async fn stateful_set(&self, name: &str, replicas: usize) {
        let sets: Api<StatefulSet> = Api::default_namespaced(self.admin.clone());
        objects::create(&sets, objects::stateful_set(name, replicas)).await;
    }

    /// Sets the number of replicas.
    pub async fn scale(&self, name: &str, replicas: u32) {
        let sets: Api<StatefulSet> = Api::default_namespaced(self.admin.clone());
        let scale = json!({ "spec": { "replicas": replicas } });
        sets.patch(name, &PatchParams::default(), &Patch::Merge(scale))
            .await
            .unwrap();
    }

    /// Deletes a `StatefulSet`.
    pub async fn remove_set(&self, name: &str) {
        let sets: Api<StatefulSet> = Api::default_namespaced(self.admin.clone());
        sets.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Creates the pod of `set` with this ordinal on a node, as the controller and the scheduler do. Returns its UID.
    pub async fn replica(&self, set: &str, ordinal: u32, node: &str) -> String {
        let sets: Api<StatefulSet> = Api::default_namespaced(self.admin.clone());
        let owner = sets.get(set).await.unwrap();
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": owner.uid(), "controller": true,
        });
        let metadata = json!({ "name": format!("{set}-{ordinal}"), "ownerReferences": [owner] });
        self.create_pod(metadata, node).await
    }

    /// Sets the Ready condition of a node, as the node lifecycle controller does when a kubelet stops or starts reporting.
    pub async fn set_node_ready(&self, name: &str, ready: bool) {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.admin.clone());
        let status = if ready { "True" } else { "Unknown" };
        let change = json!({ "status": { "conditions": [{
            "type": "Ready", "status": status, "reason": "Test", "message": "",
            "lastHeartbeatTime": null, "lastTransitionTime": null,
        }] } });
        nodes
            .patch_status(name, &PatchParams::default(), &Patch::Merge(change))
            .await
            .unwrap();
    }

    /// Deletes a pod without a grace period.
    pub async fn remove_pod(&self, name: &str) {
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::default_namespaced(self.admin.clone());
        pods.delete(name, &DeleteParams::default().grace_period(0))
            .await
            .unwrap();
    }
}

/// A spec with one range, no gateway, blocks of 16 addresses and no cooldown.
pub fn simple(subnet: &str) -> Value {
    json!({
        "ranges": [{ "subnet": subnet, "gateway": "none" }],
        "blockSize": { "v4": 16 },
        "cooldownSeconds": 0,
    })
}

/// Like [`simple`], without blocks.
pub fn per_address(subnet: &str) -> Value {
    let mut spec = simple(subnet);
    spec["allocation"] = json!("PerAddress");
    spec.as_object_mut().unwrap().remove("blockSize");
    spec
}

/// Like [`simple`], without blocks. A pod of a `StatefulSet` keeps its address.
pub fn sticky_per_address(subnet: &str) -> Value {
    let mut spec = simple(subnet);
    spec["allocation"] = json!("PerAddress");
    spec["sticky"] = json!("StatefulSet");
    spec
}
