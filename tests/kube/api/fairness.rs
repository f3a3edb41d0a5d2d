// SPDX-License-Identifier: Apache-2.0
//! Whose requests wait in the agents' queue (`conf/policies/fairness.yaml`). The API server says in each answer which `FlowSchema`
//! and `PriorityLevelConfiguration` it went by (Kubernetes, "API Priority and Fairness", "Diagnostics").

use cluster::identity::{ACCOUNT, NAMESPACE};
use cluster::install::until;
use cluster::{Identity, Server};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use kube::api::PostParams;
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

/// The UIDs of the schema and the level that a request of `client` went by.
async fn queue_of(client: &Client) -> [String; 2] {
    let request = http::Request::get("/apis/rdmanet.io/v1alpha1/ippools?limit=1")
        .body(Body::empty())
        .unwrap();
    let answer = client.send(request).await.unwrap();
    ["flowschema", "prioritylevel"].map(|kind| {
        let header = format!("x-kubernetes-pf-{kind}-uid");
        let value = answer.headers().get(&header);
        value
            .unwrap_or_else(|| panic!("no {header}"))
            .to_str()
            .unwrap()
            .to_owned()
    })
}

async fn agents_queue(admin: &Client) -> [String; 2] {
    let schemas: Api<FlowSchema> = Api::all(admin.clone());
    let levels: Api<PriorityLevelConfiguration> = Api::all(admin.clone());
    let (schema, level) = (
        schemas.get(ACCOUNT).await.unwrap(),
        levels.get(ACCOUNT).await.unwrap(),
    );
    [schema.uid().unwrap(), level.uid().unwrap()]
}

/// A client of another account, in the namespace of the agents.
async fn stranger(server: &Server, admin: &Client) -> Client {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), NAMESPACE);
    let account = serde_json::from_value(json!({ "metadata": { "name": "stranger" } })).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let request = TokenRequest {
        spec: TokenRequestSpec::default(),
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request("stranger", &PostParams::default(), &request)
        .await
        .unwrap();
    server.with_token(&answer.status.unwrap().token).await
}

#[tokio::test]
async fn agents_wait_in_a_queue_of_their_own_and_others_do_not() {
    let server = Server::shared();
    let admin = server.admin().await;
    let agents = agents_queue(&admin).await;
    let agent = server
        .with_token(&Identity::new(&admin, "fairness").await.token)
        .await;
    // A schema is in force some time after it was stored.
    until("agents have their queue", async || {
        queue_of(&agent).await == agents
    })
    .await;
    for other in [stranger(server, &admin).await, admin.clone()] {
        let theirs = queue_of(&other).await;
        assert_ne!(theirs[0], agents[0]);
        assert_ne!(theirs[1], agents[1]);
    }
}
