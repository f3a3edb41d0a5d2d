// SPDX-License-Identifier: Apache-2.0
//! How simulated agents reach the API server.
//!
//! Up to some thousands, each has connections of its own, as the daemon has. A process may not have as many files open as
//! ten thousand agents have connections, so beyond that they share connections by HTTP/2; what a connection costs the API
//! server is known from the smaller run.

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::sync::Mutex;
use tower::ServiceBuilder;

/// More agents than this share connections.
const OWN: usize = 3000;

/// Agents that share one: two watches each, and the server lets a connection have 250 streams.
const SHARE: usize = 50;

type Shared = Http<HttpsConnector<HttpConnector>, Body>;

/// Makes clients.
pub(crate) struct Ways {
    share: bool,
    last: Mutex<Option<(Shared, usize)>>,
}

impl Ways {
    /// For so many agents.
    pub(crate) fn of(agents: usize) -> Self {
        Self {
            share: agents > OWN,
            last: Mutex::new(None),
        }
    }

    /// A client like the daemon's.
    pub(crate) async fn client(&self, config: Kubeconfig) -> Client {
        if !self.share {
            return bench_kube::agents::client(config).await;
        }
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
            .await
            .unwrap();
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer().unwrap())
            .map_err(tower::BoxError::from)
            .service(self.shared(&config));
        Client::new(service, config.default_namespace)
    }

    fn shared(&self, config: &Config) -> Shared {
        let mut last = self.last.lock().unwrap();
        if let Some((shared, users)) = last.as_mut()
            && *users < SHARE
        {
            *users += 1;
            return shared.clone();
        }
        let tls = config.rustls_client_config().unwrap();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only()
            .enable_http2()
            .wrap_connector(tcp);
        let shared = Http::builder(TokioExecutor::new())
            .http2_only(true)
            .build(connector);
        *last = Some((shared.clone(), 1));
        shared
    }
}
