// SPDX-License-Identifier: Apache-2.0
//! Addresses of its own node, and of pools what a person did not write.

use super::Agent;
use crate::{address, pool, refusal};
use api::{IpAddress, IpPool};
use cluster::Server;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

#[tokio::test]
async fn an_agent_has_the_addresses_of_its_own_node_alone() {
    let (mine, other) = (Agent::of("addresses-1").await, Agent::of("addresses-2").await);
    let name = "addresses-0a000005";
    let wanted: IpAddress = serde_json::from_value(address(name, "10.0.0.5", "addresses-1")).unwrap();
    let said = refusal(other.addresses().create(&PostParams::default(), &wanted).await).message;
    assert!(said.contains("may take addresses for that node alone"), "{said}");
    let had = mine
        .addresses()
        .create(&PostParams::default(), &wanted)
        .await
        .unwrap();
    let said = refusal(other.addresses().delete(name, &DeleteParams::default()).await).message;
    assert!(said.contains("node addresses-1 still has this address"), "{said}");

    let mut orphaned = had.clone();
    orphaned.spec.state = api::AddressState::Orphaned;
    let orphaned = other
        .addresses()
        .replace(name, &PostParams::default(), &orphaned)
        .await
        .unwrap();
    let mut given = orphaned.clone();
    given.spec.attachment.as_mut().unwrap().ifname = "stolen".to_owned();
    given.spec.state = api::AddressState::Bound;
    let said = refusal(
        other
            .addresses()
            .replace(name, &PostParams::default(), &given)
            .await,
    )
    .message;
    assert!(said.contains("may only say that it is Orphaned"), "{said}");
    let mut kept = orphaned.clone();
    kept.spec.state = api::AddressState::Kept;
    kept.spec.holder = Some(api::Holder {
        namespace: "train".to_owned(),
        stateful_set: "db".to_owned(),
        pod: "db-0".to_owned(),
        network: "rail0".to_owned(),
        ifname: "net1".to_owned(),
    });
    let orphaned = other
        .addresses()
        .replace(name, &PostParams::default(), &kept)
        .await
        .unwrap();
    let mut stolen = orphaned.clone();
    stolen.spec.node.node = "addresses-3".to_owned();
    refusal(
        other
            .addresses()
            .replace(name, &PostParams::default(), &stolen)
            .await,
    );
    other
        .addresses()
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn an_agent_cannot_change_what_a_person_wrote_in_a_pool() {
    let agent = Agent::of("pools").await;
    let made = pool("written", &json!([{ "subnet": "10.0.0.0/16" }]));
    let admin: Api<IpPool> = Api::all(Server::shared().admin().await);
    admin
        .create(&PostParams::default(), &serde_json::from_value(made).unwrap())
        .await
        .unwrap();
    let pools: Api<IpPool> = Api::all(agent.client.clone());
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": ["rdmanet.io/addresses"] } }));
    pools
        .patch("written", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let patch = Patch::Merge(json!({ "spec": { "priority": 7 } }));
    let said = refusal(pools.patch("written", &PatchParams::default(), &patch).await).message;
    assert!(said.contains("the spec of a pool is for people"), "{said}");
    let patch = Patch::Merge(json!({ "status": { "observedGeneration": 1 } }));
    pools
        .patch_status("written", &PatchParams::default(), &patch)
        .await
        .unwrap();
    refusal(pools.delete("written", &DeleteParams::default()).await);
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": [] } }));
    pools
        .patch("written", &PatchParams::default(), &patch)
        .await
        .unwrap();
}
