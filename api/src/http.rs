// SPDX-License-Identifier: Apache-2.0
//! `/metrics`, `/healthz` and `/readyz`.

use crate::supervisor::Supervisor;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::errno::Errno;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// The format of the metrics, which `prometheus_client` writes. Prometheus 3 refuses a target that does not name one.
///
/// Source: `OpenMetrics` 1.0, "Overall structure"; prometheus, `model/textparse/interface.go`.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PLAIN: &str = "text/plain; charset=utf-8";

/// The metrics and the readiness of a daemon.
pub trait Health: Send + Sync + 'static {
    /// The metrics in the text format of `OpenMetrics`.
    fn metrics(&self) -> String;

    /// Whether the daemon is ready.
    ///
    /// # Errors
    /// What is missing, one sentence per line.
    fn ready(&self) -> Result<(), String>;
}

/// The port for metrics and health cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address}: {source}; `ss -ltnp` names the process that has the port, --listen chooses another address"
)]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// The cause.
    pub source: io::Error,
}

/// Opens the port for metrics and health. `[::]` accepts connections of both families. On a kernel without IPv6 it means
/// `0.0.0.0`.
///
/// # Errors
/// [`ListenError`].
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    listen_with(address, TcpListener::bind).await
}

async fn listen_with<L>(
    address: SocketAddr,
    bind: impl AsyncFn(SocketAddr) -> io::Result<L>,
) -> Result<L, ListenError> {
    let any = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let bound = match bind(address).await {
        Err(e) if any && e.raw_os_error() == Some(Errno::EAFNOSUPPORT as i32) => {
            bind((Ipv4Addr::UNSPECIFIED, address.port()).into()).await
        }
        bound => bound,
    };
    bound.map_err(|source| ListenError { address, source })
}

/// Serves until the supervisor stops.
pub async fn run(listener: TcpListener, daemon: Arc<impl Health>, supervisor: Supervisor) {
    loop {
        let stream = tokio::select! {
            () = supervisor.stop().cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(e) => {
                    tracing::warn!(error = %e, "accept on the metrics port failed");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let daemon = daemon.clone();
        supervisor.spawn_brief("metrics request", async move {
            let service = service_fn(|request| {
                let response = respond(&*daemon, &request);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(5))
                .serve_connection(TokioIo::new(stream), service);
            // A client may close its connection at any time.
            let _ = connection.await;
        });
    }
}

fn respond<B>(daemon: &impl Health, request: &Request<B>) -> Response<Full<Bytes>> {
    let (status, format, body) = match request.uri().path() {
        "/metrics" => (StatusCode::OK, OPEN_METRICS, daemon.metrics()),
        // A process that responds is alive. It is useful even without the API server.
        "/healthz" => (StatusCode::OK, PLAIN, "ok\n".to_owned()),
        "/readyz" => match daemon.ready() {
            Ok(()) => (StatusCode::OK, PLAIN, "ok\n".to_owned()),
            Err(missing) => (StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{missing}\n")),
        },
        _ => (
            StatusCode::NOT_FOUND,
            PLAIN,
            "there are /metrics, /healthz and /readyz\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(format));
    response
}

#[cfg(test)]
mod tests;
