// SPDX-License-Identifier: Apache-2.0
//! A node for the tests of the components of a reconciler.

use super::addresses::Claimant;
use super::context::{PoolContext, RequestScope, Target};
use crate::agent::Agent;
use crate::config::Config;
use crate::node::entry;
use api::IpBlock;
use api::accepted_pool::{AcceptedPool, Writer};
use api::block_layout::{BlockCidr, address_name};
use api::convert::new_block;
use api::deadline::Deadline;
use api::testing::{answering_clients, small_pool};
use block::owner::NodeIdentity;
use block::{LocalBlock, Mode, Owner};
use clap::Parser;
use common::cni::{Attachment, CniResult, IpConfig};
use ipam::agent::AskedBy;
use ipam::clock::{Clock, KernelClock};
use ipam::pool::{Counters, PoolFile};
use ipam::store::{Lease, Sandbox, Store};
use kube::runtime::reflector::store;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc::unbounded_channel;

/// As [`registered_node`], whose observations of one thing are `interval` apart at least.
pub(super) async fn observing_node(interval: Duration) -> (PoolContext, Target, TempDir) {
    let interval = format!("{}ms", interval.as_millis());
    node_with(&["--observation-interval", &interval], |_, _| refusal(404)).await
}

/// A registered node with the pool `rail0`, the desired state of that pool, and the directory of the node's files. `answer`: the
/// response of the API server to requests for other objects than the Node, by URI.
pub(super) async fn registered_node(
    mut answer: impl FnMut(&str) -> (u16, Value) + Send + 'static,
) -> (PoolContext, Target, TempDir) {
    node_with(&[], move |uri, _| answer(uri)).await
}

/// As [`registered_node`], with these flags of the agent. `answer` gets the URI and the body.
pub(super) async fn node_with(
    flags: &[&str],
    mut answer: impl FnMut(&str, &Value) -> (u16, Value) + Send + 'static,
) -> (PoolContext, Target, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let words = ["agent", "--node", "n", "--data-dir", dir.path().to_str().unwrap()];
    let words = words.iter().chain(flags);
    let clients = answering_clients(move |_, uri, body| {
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n", "uid": "u" } });
        if uri.contains("/nodes/") {
            (200, node)
        } else {
            answer(uri, body)
        }
    });
    let agent = Arc::new(Agent::new(
        Config::parse_from(words),
        clients,
        store().0,
        store().0,
        unbounded_channel().0,
    ));
    let api = agent.clients.requests(Deadline::background());
    agent.refresh_node(&api, Duration::ZERO).await.unwrap();
    let target = Target {
        api,
        accepted: Some(small_pool()),
        open: true,
        counters: Counters::default(),
        blocks: 0,
        sharing: Vec::new(),
        has_shortage: false,
    };
    let pool = "rail0".to_owned().try_into().unwrap();
    (PoolContext { agent, pool }, target, dir)
}

/// The response of an API server that refuses a request with this status code.
pub(super) fn refusal(code: u16) -> (u16, Value) {
    (
        code,
        json!({ "kind": "Status", "status": "Failure", "code": code }),
    )
}

/// The attachment `net1` of `container`, which requests an address.
pub(super) fn asked(container: &str) -> AskedBy {
    serde_json::from_value(json!({ "containerID": container, "ifname": "net1", "network": "rail" })).unwrap()
}

/// That attachment, of an unknown pod.
pub(super) fn claimant(asked: &AskedBy) -> Claimant<'_> {
    Claimant {
        asked,
        pod: None,
        holder: None,
    }
}

/// A request that no plugin waits for.
pub(super) fn scope_of<'a>(target: &'a Target, accepted: &'a AcceptedPool) -> RequestScope<'a> {
    RequestScope {
        target,
        accepted,
        pending: None,
    }
}

/// The object of `ip` of the pool `rail0`, which `net1` of `container` on `node` has.
pub(super) fn address_object(ip: &str, container: &str, node: &str) -> Value {
    json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddress",
        "metadata": { "name": address_name("default", ip.parse().unwrap()), "uid": "1", "resourceVersion": "1" },
        "spec": {
            "pool": "rail0", "address": ip, "block": "10.1.0.0/28", "node": { "node": node, "nodeUID": "u" },
            "state": "Bound", "attachment": { "containerID": container, "ifname": "net1", "network": "rail" },
        },
    })
}

/// The registration of the node.
pub(super) fn registration(context: &PoolContext) -> Owner {
    match context.agent.identity() {
        Some(NodeIdentity::Registered(owner)) => owner,
        other => panic!("the node is registered: {other:?}"),
    }
}

/// The file that an agent wrote in an earlier boot for `accepted`: it admits no namespace, and has the active block 10.1.0.0/28.
pub(super) fn file_of_earlier_boot(context: &PoolContext, accepted: &AcceptedPool) -> PoolFile {
    let writer = Writer {
        owner: registration(context),
        boot_id: "00000000-0000-4000-8000-000000000000".to_owned(),
        quarantine: Duration::from_secs(60),
    };
    let mut file = accepted.file(&writer, Some(Vec::new()), Counters::default());
    let local = LocalBlock {
        epoch: 1,
        mode: Mode::Active,
    };
    let cidr = BlockCidr::of("10.1.0.0/28".parse().unwrap()).unwrap();
    file.blocks = vec![entry(&cidr.name("default"), cidr.network(), local)];
    file
}

/// The object of that block, which the node has.
pub(super) fn own_block() -> IpBlock {
    let owner = Owner {
        node: "n".into(),
        uid: "u".into(),
    };
    let cidr = BlockCidr::of("10.1.0.0/28".parse().unwrap()).unwrap();
    let mut block = new_block(&cidr.name("default"), "rail0", cidr, &owner, Duration::ZERO);
    block.metadata.resource_version = Some("1".to_owned());
    block
}

/// The response of an API server that has `block`, accepts each change of it, and has no other object.
pub(super) fn answer_with_block(block: &IpBlock, uri: &str) -> (u16, Value) {
    if uri.contains("/ipblocks/") {
        return (200, serde_json::to_value(block).unwrap());
    }
    (200, json!({ "kind": "List", "metadata": {}, "items": [] }))
}

/// Replaces the file of the pool.
pub(super) async fn replace_file(context: &PoolContext, file: &PoolFile) {
    let (stores, file) = (&context.agent.stores, file.clone());
    let edited = stores.edit(&context.pool, move |_, _| Ok(Some(file))).await;
    assert!(edited.unwrap());
}

/// Makes a lease of `net1` of a container on `ip`. `is_object`: the address was allocated as an object of the cluster.
pub(super) fn commit_lease(store: &Store<'_>, container: &str, ip: &str, is_object: bool) {
    commit_lease_of(store, container, Sandbox::default(), (ip, is_object));
}

/// As [`commit_lease`], for the interface of a pod.
pub(super) fn commit_lease_of(
    store: &Store<'_>,
    container: &str,
    sandbox: Sandbox,
    (ip, is_object): (&str, bool),
) {
    let ip: IpAddr = ip.parse().unwrap();
    let result = CniResult {
        ips: vec![IpConfig {
            address: ip.into(),
            gateway: None,
            interface: None,
            probe: false,
        }],
        ..CniResult::default()
    };
    let owner = Attachment {
        container_id: container.to_owned().try_into().unwrap(),
        ifname: "net1".to_owned().try_into().unwrap(),
    };
    let locked = store.enter().unwrap();
    let draft = locked.draft(&owner, sandbox, result).unwrap();
    let api = if is_object { vec![ip] } else { Vec::new() };
    locked.commit(&Lease { api, ..draft }).unwrap();
}

/// A lease of `net1` of the container `c1` on `ip`, whose file is damaged then.
pub(super) async fn damage_lease(context: &PoolContext, dir: &TempDir, ip: &'static str) {
    let made = context.agent.stores.with(&context.pool, move |store| {
        commit_lease(store, "c1", ip, false);
        Ok(())
    });
    made.await.unwrap();
    std::fs::write(boot_directory(dir).join("leases/c1@net1"), "{").unwrap();
}

/// Makes the file of `ip` as an administrator does. The store exists.
pub(super) fn touch_address(dir: &TempDir, ip: &str) {
    std::fs::write(boot_directory(dir).join("addresses").join(ip), "").unwrap();
}

/// The directory of the leases of the pool `rail0`.
pub(super) fn boot_directory(dir: &TempDir) -> PathBuf {
    let boot_id = KernelClock.boot_id().unwrap();
    dir.path().join("pools/rail0").join(format!("boot-{boot_id}"))
}
