// SPDX-License-Identifier: Apache-2.0
//! The agent's client behind an HTTP proxy, with TLS to the API server.

use api::IpBlock;
use api::client;
use api::deadline::Deadline;
use api::requests::Requests;
use apiserver::{Gateway, Identity, Server};
use common::cni::error::causes;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

async fn client_of(config: Kubeconfig) -> Client {
    let options = KubeConfigOptions::default();
    client::new(Config::from_custom_kubeconfig(config, &options).await.unwrap()).unwrap()
}

fn by_way_of(gateway: &Gateway, mut config: Kubeconfig) -> Kubeconfig {
    let cluster = config.clusters[0].cluster.as_mut().unwrap();
    cluster.proxy_url = Some(gateway.url());
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_reaches_a_tls_api_server_through_one_proxy_connection() {
    let server = Server::shared();
    let gateway = Gateway::start().await;
    let identity = Identity::new(&server.admin().await, "far-away").await;
    let client = client_of(by_way_of(&gateway, identity.config(server))).await;
    let requests = Requests::new(client, Deadline::background());
    let node = requests.registration("far-away").await.unwrap().unwrap();
    assert_eq!(*node.owner.uid, *identity.node.node_uid);
    requests.list_names::<IpBlock>().await.unwrap();
    let asked = format!("CONNECT 127.0.0.1:{} HTTP/1.1", server.port());
    assert_eq!(gateway.asked(), [asked]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_gets_the_name_and_the_password_of_its_url_and_no_error_shows_them() {
    let server = Server::shared();
    let gateway = Gateway::start().await;
    gateway.require("Basic cmFpbDpzZWNyZXQ=");
    let identity = Identity::new(&server.admin().await, "behind-a-password").await;
    let by_way_of = async |credentials: &str| {
        let mut config = by_way_of(&gateway, identity.config(server));
        let url = gateway.url().replace("http://", &format!("http://{credentials}"));
        config.clusters[0].cluster.as_mut().unwrap().proxy_url = Some(url);
        client_of(config).await.apiserver_version().await
    };
    by_way_of("rail:secret@").await.unwrap();
    for wrong in ["", "rail:guess@"] {
        let text = causes(&by_way_of(wrong).await.unwrap_err());
        assert!(
            text.contains("407 Proxy Authentication Required; write a name and a password"),
            "{text}"
        );
        assert!(!text.contains("guess") && !text.contains("rail:"), "{text}");
    }
}

/// The proxy forwards bytes and adds no identity.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_behind_a_proxy_must_present_the_expected_certificate() {
    let server = Server::shared();
    let gateway = Gateway::start().await;
    let mut config = by_way_of(&gateway, server.config_with("any"));
    config.clusters[0].cluster.as_mut().unwrap().tls_server_name = Some("elsewhere".to_owned());
    let error = client_of(config).await.apiserver_version().await.unwrap_err();
    assert!(causes(&error).contains("elsewhere"), "{}", causes(&error));
    assert_eq!(gateway.asked().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_names_the_proxy_that_refused_a_request_and_the_reason() {
    let server = Server::shared();
    let gateway = Gateway::start().await;
    gateway.refuse(Some("403 Forbidden"));
    let client = client_of(by_way_of(&gateway, server.config_with("any"))).await;
    let requests = Requests::new(client, Deadline::background());
    let trouble = requests.registration("far-away").await.unwrap_err();
    let words = format!(
        "the proxy {}/ rejects CONNECT 127.0.0.1:{}: 403 Forbidden; let the proxy allow it",
        gateway.url(),
        server.port()
    );
    assert!(trouble.is_unanswered());
    assert!(trouble.to_string().contains(&words), "{trouble}");
}
