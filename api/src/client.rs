// SPDX-License-Identifier: Apache-2.0
//! The HTTP client for the API server: one connection for all requests and watches.
//!
//! kube's own client speaks HTTP/1.1. There each watch and each pending request has its own connection, and a request
//! that times out closes its connection. This client speaks HTTP/2 if the server does, as the kubelet and all client-go
//! programs do, and HTTP/1.1 otherwise. Layers, credentials, limits and proxies are those of kube's client.

pub mod proxy;
mod tunnel;

pub use tunnel::ProxyError;

use crate::deadline::Deadline;
use crate::requests::{Object, Requests};
use futures::Stream;
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
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config};
use std::time::Duration;
use tower::retry::RetryLayer;
use tower::{BoxError, Service, ServiceBuilder};
use tunnel::Tunnel;

/// The client sends a ping on a connection that has been idle for this long, as client-go does.
const SILENCE: Duration = Duration::from_secs(30);

/// If a ping has no response after this time, the connection is closed and everything on it starts again on a new one.
const ANSWER: Duration = Duration::from_secs(15);

/// Reads the configuration from the environment: a kubeconfig or a pod's service account, and a proxy.
///
/// # Errors
/// A sentence: there is neither a kubeconfig nor a service account, or the proxy cannot be used.
pub async fn configuration() -> Result<Config, String> {
    let mut config = Config::infer().await.map_err(|e| {
        format!("cannot configure the connection to the API server: {e}; set KUBECONFIG, or run in a pod with a service account")
    })?;
    // Only the configuration of a service account names a certificate file. If that one is used, the kubeconfig describes
    // a different server, so its proxy does not count.
    let in_pod = config.root_cert_file.is_some();
    let kubeconfig = Kubeconfig::read().ok().filter(|_| !in_pod);
    let proxy = proxy::select(kubeconfig.as_ref(), None, &config.cluster_url);
    config.proxy_url =
        proxy.map_err(|e| format!("cannot configure the connection to the API server: {e}"))?;
    Ok(config)
}

/// The clients of a process. Each has its own connection, which the first request opens.
#[derive(Clone)]
pub struct Clients {
    /// For requests, and for the few watches that every agent has.
    requests: Client,
    /// For more watches than can share a connection with requests (`agent::block_watch`).
    watches: Client,
}

impl Clients {
    /// Makes clients for `config`. They connect later.
    ///
    /// # Errors
    /// As [`new`].
    pub fn new(config: &Config) -> kube::Result<Self> {
        Ok(Self {
            requests: new(config.clone())?,
            watches: new(config.clone())?,
        })
    }

    /// Makes clients for the API server that the environment names: a kubeconfig or a pod's service account.
    ///
    /// # Errors
    /// A sentence.
    pub async fn from_environment() -> Result<Self, String> {
        let config = configuration().await?;
        Self::new(&config).map_err(|e| {
            format!("cannot create a client for the API server from the configuration found: {e}")
        })
    }

    /// Requests until `deadline`.
    pub fn requests(&self, deadline: Deadline) -> Requests {
        Requests::new(self.requests.clone(), deadline)
    }

    /// Watches the objects that `config` selects, for ever, on the connection of requests. Restarts the watch after an
    /// error.
    pub fn watch<K: Watched>(
        &self,
        config: watcher::Config,
    ) -> impl Stream<Item = WatchResult<K>> + Send + use<K> {
        watch(&self.requests, config)
    }

    /// As [`Self::watch`], on the connection that only watches use.
    pub fn watch_apart<K: Watched>(
        &self,
        config: watcher::Config,
    ) -> impl Stream<Item = WatchResult<K>> + Send + use<K> {
        watch(&self.watches, config)
    }

    /// The client of requests, for libraries that send requests themselves: Events and the leader election. Their callers
    /// limit the time.
    pub fn for_libraries(&self) -> Client {
        self.requests.clone()
    }
}

/// An object that can be watched.
pub trait Watched: Object + Send + 'static {}

impl<K: Object + Send + 'static> Watched for K {}

/// An event of a watch, or its error.
pub type WatchResult<K> = watcher::Result<watcher::Event<K>>;

fn watch<K: Watched>(
    client: &Client,
    config: watcher::Config,
) -> impl Stream<Item = WatchResult<K>> + Send + use<K> {
    watcher::watcher(Api::all(client.clone()), config).default_backoff()
}

/// Uses one client for requests and watches.
impl From<Client> for Clients {
    fn from(client: Client) -> Self {
        Self {
            requests: client.clone(),
            watches: client,
        }
    }
}

/// Makes a client for `config`. It connects later.
///
/// # Errors
/// The certificates or credentials cannot be read, or the proxy URL is neither `http://` nor `https://`.
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
            // The CONNECT method is sent in HTTP/1.1.
            let tls = tls.https_only().enable_http1().wrap_connector(tcp);
            connecting_by(Tunnel::new(&url, tls).map_err(unusable)?, config)
        }
        _ => Err(unusable(ProxyError::unknown(&url.to_string()))),
    }
}

fn unusable(proxy: ProxyError) -> kube::Error {
    kube::Error::Service(Box::new(proxy))
}

/// Makes a client that opens its connections with `connector`.
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
    // If the server's address is that of a relay or a load balancer, a kubeconfig may name the host in the certificate.
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
