// SPDX-License-Identifier: Apache-2.0
//! The way to the API server: one connection for everything that the agent asks and is told.
//!
//! kube's own client speaks HTTP/1.1, where each watch and each request under way has a connection to itself, and a request that
//! is given up takes its connection with it. This one speaks HTTP/2 wherever the server does, as kubelet and all programs
//! made with client-go do, and HTTP/1.1 elsewhere. Layers, credentials and limits are those of kube's client.

use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use std::time::Duration;
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

/// A connection that has been silent for so long is asked whether it lives, as client-go does.
const SILENCE: Duration = Duration::from_secs(30);

/// How long it may take to answer before everything on it starts again on another.
const ANSWER: Duration = Duration::from_secs(15);

/// A client for `config`. Nothing is connected yet.
///
/// # Errors
/// Certificates or credentials that cannot be read.
pub fn new(config: Config) -> kube::Result<Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let mut tls = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
    // A kubeconfig may name whose certificate it is, where the address is a relay's or a load balancer's.
    if let Some(name) = config.tls_server_name.clone() {
        let name = name.try_into().map_err(|e| kube::Error::Service(Box::new(e)))?;
        tls = tls.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let mut connector = TimeoutConnector::new(tls.enable_all_versions().wrap_connector(tcp));
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let http: Http<_, Body> = Http::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(SILENCE)
        .http2_keep_alive_timeout(ANSWER)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(
            config
                .default_retry
                .then(|| RetryLayer::new(RetryPolicy::server_retry())),
        )
        .option_layer(config.auth_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}
