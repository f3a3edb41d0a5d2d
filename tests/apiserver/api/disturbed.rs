// SPDX-License-Identifier: Apache-2.0
//! Tests the faults that the other suites inject into a server.

use crate::{block, refusal};
use api::IpBlock;
use apiserver::install::LIMIT;
use apiserver::{Fault, Identity, Proxy, Server};
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use std::time::{Duration, Instant};

async fn by_way_of(proxy: &Proxy, identity: &Identity) -> Client {
    apiserver::server::client(proxy.before(identity.config(Server::shared()))).await
}

fn some(name: &str, node: &str) -> IpBlock {
    serde_json::from_value(block(name, "10.0.0.0/26", node)).unwrap()
}

/// Applies `fault` to each later request that creates an object.
fn spoil_creation(proxy: &Proxy, fault: Fault) {
    proxy.decide(move |method, _| if method == "POST" { fault } else { Fault::None });
}

#[tokio::test]
async fn the_test_proxy_forwards_the_identity_of_the_caller_and_the_response() {
    let server = Server::shared();
    let identity = Identity::new(&server.admin().await, "proxied").await;
    let proxy = Proxy::start(server).await;
    let api: Api<IpBlock> = Api::all(by_way_of(&proxy, &identity).await);
    api.create(&PostParams::default(), &some("proxied-4-0a000000-26", "proxied"))
        .await
        .unwrap();
    let status = refusal(
        api.create(&PostParams::default(), &some("foreign-4-0a000000-26", "another"))
            .await,
    );
    assert_eq!(status.code, 403);
}

#[tokio::test]
async fn the_test_proxy_can_lose_a_request_or_only_its_response() {
    let server = Server::shared();
    let identity = Identity::new(&server.admin().await, "losing").await;
    let proxy = Proxy::start(server).await;
    let api: Api<IpBlock> = Api::all(by_way_of(&proxy, &identity).await);
    let wanted = some("losing-4-0a000000-26", "losing");
    spoil_creation(&proxy, Fault::LoseRequest);
    let lost = api.create(&PostParams::default(), &wanted).await.unwrap_err();
    assert!(!matches!(lost, kube::Error::Api(_)), "{lost}");
    assert!(api.get_opt("losing-4-0a000000-26").await.unwrap().is_none());
    spoil_creation(&proxy, Fault::LoseAnswer);
    let lost = api.create(&PostParams::default(), &wanted).await.unwrap_err();
    assert!(!matches!(lost, kube::Error::Api(_)), "{lost}");
    assert!(api.get_opt("losing-4-0a000000-26").await.unwrap().is_some());
}

#[tokio::test]
async fn the_test_proxy_delivers_a_held_request_after_its_sender_gave_up() {
    let server = Server::shared();
    let identity = Identity::new(&server.admin().await, "late").await;
    let proxy = Proxy::start(server).await;
    let api: Api<IpBlock> = Api::all(by_way_of(&proxy, &identity).await);
    let wanted = some("late-4-0a000000-26", "late");
    spoil_creation(&proxy, Fault::Hold);
    let lost = api.create(&PostParams::default(), &wanted).await.unwrap_err();
    assert!(!matches!(lost, kube::Error::Api(_)), "{lost}");
    assert!(api.get_opt("late-4-0a000000-26").await.unwrap().is_none());
    assert_eq!(proxy.withheld(), 1);
    assert_eq!(proxy.deliver().await, [201]);
    assert!(api.get_opt("late-4-0a000000-26").await.unwrap().is_some());
    assert_eq!(proxy.withheld(), 0);
}

#[tokio::test]
async fn an_error_of_the_test_proxy_looks_like_one_of_the_api_server() {
    let server = Server::shared();
    let identity = Identity::new(&server.admin().await, "refusing").await;
    let proxy = Proxy::start(server).await;
    for code in [429, 500] {
        proxy.decide(move |_, _| Fault::Status(code));
        let api: Api<IpBlock> = Api::all(by_way_of(&proxy, &identity).await);
        let status = refusal(api.get("none").await);
        assert_eq!(status.code, code);
    }
}

#[tokio::test]
async fn cutting_the_test_proxy_breaks_watches_and_refuses_new_connections() {
    use futures::StreamExt;
    use kube::runtime::{WatchStreamExt, watcher};
    use std::pin::pin;
    let server = Server::shared();
    let identity = Identity::new(&server.admin().await, "cutting").await;
    let proxy = Proxy::start(server).await;
    let client = by_way_of(&proxy, &identity).await;
    let api: Api<IpBlock> = Api::all(client);
    let config = watcher::Config::default().fields("spec.owner.node=cutting");
    let mut watch = pin!(watcher(api.clone(), config).touched_objects());
    let quiet = tokio::time::timeout(Duration::from_secs(1), watch.next()).await;
    assert!(quiet.is_err(), "nothing happens: {quiet:?}");
    proxy.cut();
    let broken = tokio::time::timeout(LIMIT, watch.next()).await;
    let broken = broken.expect("the watch breaks").unwrap();
    assert!(broken.is_err(), "{broken:?}");
    assert!(api.list(&ListParams::default().limit(1)).await.is_err());
    proxy.mend();
    assert!(api.list(&ListParams::default().limit(1)).await.is_ok());
}

#[tokio::test]
async fn requests_are_counted_by_node() {
    let server = Server::shared();
    let identity = Identity::new(&server.admin().await, "counted").await;
    let api: Api<IpBlock> = Api::all(server.with_token(&identity.token).await);
    let mark = server.mark();
    api.create(&PostParams::default(), &some("counted-4-0a000000-26", "counted"))
        .await
        .unwrap();
    refusal(
        api.create(&PostParams::default(), &some("counted-4-0a000000-26", "counted"))
            .await,
    );
    let asked = || -> Vec<(String, u16)> {
        let requests = server.requests_since(mark);
        requests
            .iter()
            .filter(|r| r.node() == Some("counted"))
            .map(|r| (r.verb.clone(), r.code()))
            .collect()
    };
    apiserver::install::until("both are in the log", async || asked().len() >= 2).await;
    assert_eq!(asked(), [("create".to_owned(), 201), ("create".to_owned(), 409)]);
}

#[tokio::test]
async fn a_killed_api_server_restarts_with_its_objects() {
    let server = Server::installed().await;
    let identity = Identity::new(&server.admin().await, "surviving").await;
    let api: Api<IpBlock> = Api::all(server.with_token(&identity.token).await);
    api.create(
        &PostParams::default(),
        &some("surviving-4-0a000000-26", "surviving"),
    )
    .await
    .unwrap();
    server.kill();
    assert!(api.get("surviving-4-0a000000-26").await.is_err());
    server.start_again();
    // The client may send its first requests on connections to the ended process.
    let answers = async || api.get("surviving-4-0a000000-26").await.is_ok();
    apiserver::install::until("it answers again", answers).await;
    server.freeze();
    let start = Instant::now();
    let stuck = tokio::time::timeout(Duration::from_millis(500), api.get("surviving-4-0a000000-26")).await;
    assert!(
        stuck.is_err() && start.elapsed() >= Duration::from_millis(500),
        "{stuck:?}"
    );
    server.resume();
    apiserver::install::until("the watch continues", answers).await;
}
