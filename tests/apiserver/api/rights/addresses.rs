// SPDX-License-Identifier: Apache-2.0
//! An agent may write addresses of its own node, and the status of pools.

use super::{Agent, put};
use crate::{address, pool, refusal};
use api::{AddressState, IpAddress, IpPool};
use apiserver::Server;
use apiserver::objects::{create, try_create};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

#[tokio::test]
async fn an_agent_can_write_only_the_addresses_of_its_own_node() {
    let (mine, other) = (Agent::of("addresses-1").await, Agent::of("addresses-2").await);
    let name = "addresses-0a000005";
    let wanted: IpAddress = serde_json::from_value(address(name, "10.0.0.5", "addresses-1")).unwrap();
    let message = refusal(other.addresses().create(&PostParams::default(), &wanted).await).message;
    assert!(
        message.contains("may take addresses for that node alone"),
        "{message}"
    );
    let had = mine
        .addresses()
        .create(&PostParams::default(), &wanted)
        .await
        .unwrap();
    refusal(other.addresses().delete(name, &DeleteParams::default()).await);
    let mut orphaned = had.clone();
    orphaned.spec.state = AddressState::Orphaned;
    refusal(put(&other.addresses(), &had, &orphaned).await);
    let orphaned = put(&mine.addresses(), &had, &orphaned).await.unwrap();
    let mut taken = orphaned.clone();
    taken.spec.state = AddressState::Bound;
    taken.spec.node = other.identity.node.clone();
    refusal(put(&other.addresses(), &orphaned, &taken).await);
    refusal(other.addresses().delete(name, &DeleteParams::default()).await);
    mine.addresses()
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_kept_address_can_be_bound_only_for_its_own_pod() {
    let (mine, other) = (Agent::of("stays-1").await, Agent::of("stays-2").await);
    let name = "stays-0a000005";
    let mut kept: IpAddress = serde_json::from_value(address(name, "10.0.0.5", "stays-1")).unwrap();
    let attachment = kept.spec.attachment.clone();
    let holder = |pod: &str| {
        Some(api::Holder {
            namespace: "train".to_owned(),
            stateful_set: "db".to_owned(),
            pod: pod.to_owned(),
            network: "rail0".to_owned(),
            ifname: "net1".to_owned(),
        })
    };
    kept.spec.holder = holder("db-0");
    let post = PostParams::default();
    let bound = mine.addresses().create(&post, &kept).await.unwrap();
    let mut kept = bound.clone();
    kept.spec.state = AddressState::Kept;
    kept.spec.attachment = None;
    let kept = put(&mine.addresses(), &bound, &kept).await.unwrap();
    let mut taken = kept.clone();
    taken.spec.state = AddressState::Bound;
    taken.spec.attachment = attachment;
    taken.spec.node = other.identity.node.clone();
    for stranger in [holder("db-1"), None] {
        taken.spec.holder = stranger;
        refusal(put(&other.addresses(), &kept, &taken).await);
    }
    refusal(other.addresses().delete(name, &DeleteParams::default()).await);
    taken.spec.holder = holder("db-0");
    put(&other.addresses(), &kept, &taken).await.unwrap();
}

#[tokio::test]
async fn an_agent_can_change_only_its_own_request_in_a_pool() {
    let agent = Agent::of("pools").await;
    let made = pool("written", &json!([{ "subnet": "10.0.0.0/16" }]));
    let admin: Api<IpPool> = Api::all(Server::shared().admin().await);
    create(&admin, made).await;
    let pools: Api<IpPool> = Api::all(agent.client.clone());
    let parameters = PatchParams::default();
    for change in [
        json!({ "metadata": { "finalizers": ["rdmanet.io/addresses"] } }),
        json!({ "spec": { "priority": 7 } }),
    ] {
        refusal(pools.patch("written", &parameters, &Patch::Merge(change)).await);
    }
    let status = async |change| {
        let patch = Patch::Merge(json!({ "status": change }));
        pools.patch_status("written", &parameters, &patch).await
    };
    let message = refusal(status(json!({ "observedGeneration": 1 })).await).message;
    assert!(
        message.contains("an agent may change requests alone"),
        "{message}"
    );
    let request = json!({ "v4": "2026-01-01T00:00:00Z" });
    let message = refusal(status(json!({ "requests": { "another": request } })).await).message;
    assert!(
        message.contains("of node pools may change that of its node alone"),
        "{message}"
    );
    status(json!({ "requests": { "pools": request } })).await.unwrap();
    refusal(pools.delete("written", &DeleteParams::default()).await);
}

/// `kubectl delete ipaddress` of an administrator would let another pod get the address.
#[tokio::test]
async fn a_bound_address_is_deleted_by_the_agent_of_its_node_alone() {
    let agent = Agent::of("keeper").await;
    let admin: Api<IpAddress> = Api::all(Server::shared().admin().await);
    let name = "default-0a0a0a05";
    let bound = address(name, "10.10.10.5", "keeper");
    let create = async || try_create(&agent.addresses(), bound.clone()).await.unwrap();
    let now = DeleteParams::default();
    create().await;
    let message = refusal(admin.delete(name, &now).await).message;
    assert!(
        message.contains("10.10.10.5 belongs to a pod on node keeper: delete the pod"),
        "{message}"
    );
    refusal(
        admin
            .delete_collection(&now, &ListParams::default().fields("spec.node.node=keeper"))
            .await,
    );
    agent.addresses().delete(name, &now).await.unwrap();
    // As `rdmanet release` does.
    create().await;
    let orphaned = Patch::Merge(json!({ "spec": { "state": "Orphaned" } }));
    let parameters = PatchParams::default();
    admin.patch(name, &parameters, &orphaned).await.unwrap();
    admin.delete(name, &now).await.unwrap();
}
