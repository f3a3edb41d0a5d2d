// SPDX-License-Identifier: Apache-2.0
//! Which requests use the queues of the agents and of the controller (`conf/policies/fairness.yaml`). Each response of the API server names the `FlowSchema`
//! and `PriorityLevelConfiguration` (Kubernetes, "API Priority and Fairness", "Diagnostics").

use apiserver::identity::{ACCOUNT, CONTROLLER, NAMESPACE, controller_token};
use apiserver::install::until;
use apiserver::{Identity, Server, objects};
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use kube::client::Body;
use kube::{Api, Client, ResourceExt};

/// The UIDs of the flow schema and the priority level that the API server used for a request of `client`.
async fn queue_of(client: &Client, request: http::request::Builder) -> [String; 2] {
    let answer = client.send(request.body(Body::empty()).unwrap()).await.unwrap();
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

fn list_of_pools() -> http::request::Builder {
    http::Request::get("/apis/rdmanet.io/v1alpha1/ippools?limit=1")
}

/// The UIDs of the flow schema and the priority level `name`.
async fn queue(admin: &Client, name: &str) -> [String; 2] {
    let schemas: Api<FlowSchema> = Api::all(admin.clone());
    let levels: Api<PriorityLevelConfiguration> = Api::all(admin.clone());
    let (schema, level) = (schemas.get(name).await.unwrap(), levels.get(name).await.unwrap());
    [schema.uid().unwrap(), level.uid().unwrap()]
}

/// A client of another account, in the namespace of the agents.
async fn stranger(server: &Server, admin: &Client) -> Client {
    objects::account(admin, NAMESPACE, "stranger").await;
    let token = objects::token(admin, NAMESPACE, "stranger", None).await.unwrap();
    server.with_token(&token).await
}

#[tokio::test]
async fn agents_and_the_controller_have_their_own_request_queues() {
    let server = Server::shared();
    let admin = server.admin().await;
    let (agents, controllers) = (queue(&admin, ACCOUNT).await, queue(&admin, CONTROLLER).await);
    let agent = server
        .with_token(&Identity::new(&admin, "fairness").await.token)
        .await;
    let controller = server
        .with_token(&controller_token(&admin, "fairness").await)
        .await;
    // The API server applies a flow schema with a delay.
    until("agents have their queue", async || {
        queue_of(&agent, list_of_pools()).await == agents
    })
    .await;
    until("the controller has its queue", async || {
        queue_of(&controller, list_of_pools()).await == controllers
    })
    .await;
    for other in [stranger(server, &admin).await, admin.clone()] {
        let theirs = queue_of(&other, list_of_pools()).await;
        for ours in [&agents, &controllers] {
            assert_ne!(theirs[0], ours[0]);
            assert_ne!(theirs[1], ours[1]);
        }
    }
}
