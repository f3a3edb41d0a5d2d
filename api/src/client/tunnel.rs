// SPDX-License-Identifier: Apache-2.0
//! Connects through an HTTP proxy with CONNECT (RFC 9110, section 9.3.6). The proxy then carries data that it cannot
//! read.

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue, PROXY_AUTHORIZATION};
use hyper::rt::{Read, Write};
use hyper::{Request, StatusCode, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use std::pin::Pin;
use std::task::{Context, Poll};
use tower::{BoxError, Service};

/// Why a connection through a proxy failed.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The scheme of the proxy URL is neither http nor https.
    #[error(
        "the proxy {0} is not of a known kind: proxy-url of the kubeconfig, or HTTPS_PROXY, must begin with http:// or https://"
    )]
    Unknown(String),
    /// The connection to the proxy itself failed.
    #[error(
        "the proxy {proxy} cannot be reached; is it the right one in proxy-url of the kubeconfig, or HTTPS_PROXY?"
    )]
    Unreachable {
        /// Its URL.
        proxy: String,
        /// The cause.
        source: BoxError,
    },
    /// The proxy refused CONNECT.
    #[error("the proxy {proxy} rejects CONNECT {server}: {status}; {}", remedy(*.status))]
    Refused {
        /// Its URL.
        proxy: String,
        /// Host and port of the API server.
        server: String,
        /// The status of its response.
        status: StatusCode,
    },
    /// The response of the proxy is not that of an HTTP proxy.
    #[error("the proxy {proxy} does not answer CONNECT {server} as an HTTP proxy does")]
    Silent {
        /// Its URL.
        proxy: String,
        /// Host and port of the API server.
        server: String,
        /// The cause.
        source: BoxError,
    },
}

impl ProxyError {
    /// The error about a proxy at this `url`. The user information of the URL is left out, since it may hold a password.
    pub(super) fn unknown(url: &str) -> Self {
        let (kind, place) = url.split_once("://").unwrap_or(("", url));
        let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
        Self::Unknown(format!("{kind}://{place}"))
    }
}

fn remedy(status: StatusCode) -> &'static str {
    if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        "write a name and a password that it knows into its URL: http://NAME:PASSWORD@HOST:PORT"
    } else if status.is_server_error() {
        "can the proxy reach that server? If it need not be asked, name the server in NO_PROXY"
    } else {
        "let the proxy allow it, or name another one in proxy-url of the kubeconfig, or HTTPS_PROXY; NO_PROXY lists the servers that need none"
    }
}

/// A connector that opens connections through the proxy.
#[derive(Clone)]
pub(super) struct Tunnel<C> {
    proxy: Intercept,
    connector: C,
}

impl<C> Tunnel<C> {
    /// Uses the proxy at `url`, with the user name and password in that URL. `connector` opens connections to the proxy.
    pub(super) fn new(url: &Uri, connector: C) -> Result<Self, ProxyError> {
        let proxy = Matcher::builder().all(url.to_string()).build().intercept(url);
        match proxy {
            Some(proxy) => Ok(Self { proxy, connector }),
            None => Err(ProxyError::unknown(&url.to_string())),
        }
    }
}

impl<C> Service<Uri> for Tunnel<C>
where
    C: Service<Uri>,
    C::Response: Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    type Response = C::Response;
    type Error = ProxyError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ProxyError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        let ready = self.connector.poll_ready(context);
        ready.map_err(|e| unreachable(&self.proxy, e.into()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let connecting = self.connector.call(self.proxy.uri().clone());
        let proxy = self.proxy.clone();
        Box::pin(async move {
            let stream = connecting.await.map_err(|e| unreachable(&proxy, e.into()))?;
            ask(stream, &proxy, &server).await
        })
    }
}

fn unreachable(proxy: &Intercept, source: BoxError) -> ProxyError {
    ProxyError::Unreachable {
        proxy: proxy.uri().to_string(),
        source,
    }
}

/// Asks the proxy at the other end of `stream` to open a tunnel to `server`.
async fn ask<S>(stream: S, proxy: &Intercept, server: &Uri) -> Result<S, ProxyError>
where
    S: Read + Write + Send + Unpin + 'static,
{
    let usual = if server.scheme_str() == Some("http") {
        80
    } else {
        443
    };
    let port = server.port_u16().unwrap_or(usual);
    let server = format!("{}:{port}", server.host().unwrap_or_default());
    let silent = |source: BoxError| ProxyError::Silent {
        proxy: proxy.uri().to_string(),
        server: server.clone(),
        source,
    };
    let (mut sender, connection) = http1::handshake(stream).await.map_err(|e| silent(e.into()))?;
    // The task ends with the response, or when the request is dropped.
    tokio::spawn(connection.with_upgrades());
    let request = connect(&server, proxy.basic_auth()).map_err(|e| silent(e.into()))?;
    let answer = sender.send_request(request).await.map_err(|e| silent(e.into()))?;
    if !answer.status().is_success() {
        return Err(ProxyError::Refused {
            proxy: proxy.uri().to_string(),
            server: server.clone(),
            status: answer.status(),
        });
    }
    let carried = hyper::upgrade::on(answer).await.map_err(|e| silent(e.into()))?;
    match carried.downcast::<S>() {
        // In TLS and in HTTP the client speaks first.
        Ok(parts) if parts.read_buf.is_empty() => Ok(parts.io),
        _ => Err(silent("it sent data before the client did".into())),
    }
}

fn connect(server: &str, words: Option<&HeaderValue>) -> Result<Request<Empty<Bytes>>, hyper::http::Error> {
    let request = Request::connect(server).header(HOST, server);
    let request = match words {
        Some(words) => request.header(PROXY_AUTHORIZATION, words),
        None => request,
    };
    request.body(Empty::new())
}
