// SPDX-License-Identifier: Apache-2.0
//! The way to the API server: one connection for everything that the agent asks and is told.
//!
//! kube's own client speaks HTTP/1.1, where each watch and each request under way has a connection to itself, and a request that
//! is given up takes its connection with it. This one speaks HTTP/2 wherever the server does, as kubelet and all programs
//! made with client-go do, and HTTP/1.1 elsewhere. Layers, credentials, limits and proxies are those of kube's client.

pub mod proxy;
mod tunnel;

pub use tunnel::Blocked;

use hyper::Uri;
use hyper::rt::{Read, Write};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt};
use kube::config::Kubeconfig;
use kube::{Client, Config};
use std::time::Duration;
use tower::retry::RetryLayer;
use tower::{BoxError, Service, ServiceBuilder};
use tunnel::Tunnel;

/// A connection that has been silent for so long is asked whether it lives, as client-go does.
const SILENCE: Duration = Duration::from_secs(30);

/// How long it may take to answer before everything on it starts again on another.
const ANSWER: Duration = Duration::from_secs(15);

/// What the environment says of the way to the API server: a kubeconfig or a pod's service account, and a proxy.
///
/// # Errors
/// There is neither, or a proxy that cannot be used: a sentence.
pub async fn configuration() -> Result<Config, String> {
    let mut config = Config::infer().await.map_err(|e| {
        format!("no way to the API server: {e}; set KUBECONFIG, or run in a pod with a service account")
    })?;
    // Only a service account has its certificates in a file; a kubeconfig that was passed over says nothing of its server.
    let in_pod = config.root_cert_file.is_some();
    let kubeconfig = Kubeconfig::read().ok().filter(|_| !in_pod);
    let proxy = proxy::meant(kubeconfig.as_ref(), None, &config.cluster_url);
    config.proxy_url = proxy.map_err(|e| format!("no way to the API server: {e}"))?;
    Ok(config)
}

/// The clients of an agent. Each has a connection of its own, which is opened with its first request.
#[derive(Clone)]
pub struct Clients {
    /// For requests, and for the watches that every agent has.
    pub requests: Client,
    /// For more watches than may share a connection with requests (`crate::follow`).
    pub watches: Client,
}

impl Clients {
    /// Clients for `config`. Nothing is connected yet.
    ///
    /// # Errors
    /// As [`new`].
    pub fn new(config: &Config) -> kube::Result<Self> {
        Ok(Self {
            requests: new(config.clone())?,
            watches: new(config.clone())?,
        })
    }
}

/// Everything by one client.
impl From<Client> for Clients {
    fn from(client: Client) -> Self {
        Self {
            requests: client.clone(),
            watches: client,
        }
    }
}

/// A client for `config`. Nothing is connected yet.
///
/// # Errors
/// Certificates or credentials that cannot be read; a proxy that is neither `http://` nor `https://`.
pub fn new(config: Config) -> kube::Result<Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let Some(url) = config.proxy_url.clone() else {
        return connecting_by(tcp, config);
    };
    match url.scheme_str() {
        Some("http") => connecting_by(Tunnel::new(&url, tcp).map_err(unusable)?, config),
        Some("https") => {
            let tls = HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?);
            // CONNECT is said in HTTP/1.1.
            let tls = tls.https_only().enable_http1().wrap_connector(tcp);
            connecting_by(Tunnel::new(&url, tls).map_err(unusable)?, config)
        }
        _ => Err(unusable(Blocked::unknown(&url.to_string()))),
    }
}

fn unusable(proxy: Blocked) -> kube::Error {
    kube::Error::Service(Box::new(proxy))
}

/// A client whose connections begin with those of `connector`.
fn connecting_by<C>(connector: C, config: Config) -> kube::Result<Client>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let mut tls = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
    // A kubeconfig may name whose certificate it is, where the address is a relay's or a load balancer's.
    if let Some(name) = config.tls_server_name.clone() {
        let name = name.try_into().map_err(|e| kube::Error::Service(Box::new(e)))?;
        tls = tls.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let mut connector = TimeoutConnector::new(tls.enable_all_versions().wrap_connector(connector));
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

#[cfg(test)]
mod tests;
