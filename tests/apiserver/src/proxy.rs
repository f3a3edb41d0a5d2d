// SPDX-License-Identifier: Apache-2.0
//! A proxy between clients and the API server that injects faults.
//!
//! Clients use plain HTTP on loopback, with their own tokens; the proxy uses TLS to the server.

use crate::Server;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use kube::config::Kubeconfig;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How a request is handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// It is answered with this status code, without reaching the server.
    Status(u16),
    /// It reaches the server after this time.
    Delay(Duration),
    /// The server does it, and the client sees the connection break instead of an answer.
    LoseAnswer,
    /// The connection breaks before the request reaches the server.
    LoseRequest,
    /// The connection breaks, and the request reaches the server much later: at [`Proxy::deliver`].
    Hold,
    /// It reaches the server once [`Proxy::open`] was called.
    Wait,
}

/// Decides about a request, by its method and path.
pub type Decide = Box<dyn FnMut(&str, &str) -> Fault + Send>;

/// A running proxy.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: tokio::task::JoinHandle<()>,
}

struct Shared {
    upstream: Client,
    decide: Mutex<Decide>,
    held: Mutex<Vec<Request<Body>>>,
    /// While true, every connection is broken and none is accepted.
    cut: watch::Sender<bool>,
    /// While false, requests with [`Fault::Wait`] wait.
    open: watch::Sender<bool>,
}

/// Breaks the connection.
#[derive(Debug)]
struct Lost;

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("lost on purpose")
    }
}

impl std::error::Error for Lost {}

impl Proxy {
    /// Starts one before `server` that spoils nothing.
    pub async fn start(server: &Server) -> Self {
        let mut anonymous = server.config_with("");
        anonymous.auth_infos[0].auth_info = Some(serde_json::from_str("{}").unwrap());
        let shared = Arc::new(Shared {
            upstream: crate::server::client(anonymous).await,
            decide: Mutex::new(Box::new(|_, _| Fault::None)),
            held: Mutex::new(Vec::new()),
            cut: watch::Sender::new(false),
            open: watch::Sender::new(false),
        });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Self {
            port,
            shared,
            accepting,
        }
    }

    /// The configuration `direct`, by way of this proxy.
    pub fn before(&self, mut direct: Kubeconfig) -> Kubeconfig {
        let cluster = direct.clusters[0].cluster.as_mut().unwrap();
        cluster.server = Some(format!("http://127.0.0.1:{}", self.port));
        cluster.certificate_authority = None;
        direct
    }

    /// From now on `decide` is asked about each request.
    pub fn decide(&self, decide: impl FnMut(&str, &str) -> Fault + Send + 'static) {
        *self.shared.decide.lock().unwrap() = Box::new(decide);
    }

    /// How many requests are kept.
    pub fn held(&self) -> usize {
        self.shared.held.lock().unwrap().len()
    }

    /// Lets the server have the requests that were kept, in their order; returns the status codes of its answers.
    pub async fn deliver(&self) -> Vec<u16> {
        let held = std::mem::take(&mut *self.shared.held.lock().unwrap());
        let mut codes = Vec::new();
        for request in held {
            let answer = self.shared.upstream.send(request).await.unwrap();
            codes.push(answer.status().as_u16());
        }
        codes
    }

    /// Lets the requests that wait go on, and those to come.
    pub fn open(&self) {
        self.shared.open.send_replace(true);
    }

    /// Breaks every connection and takes no new one until [`Proxy::mend`].
    pub fn cut(&self) {
        self.shared.cut.send_replace(true);
    }

    /// Undoes [`Proxy::cut`].
    pub fn mend(&self) {
        self.shared.cut.send_replace(false);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        if !*shared.cut.borrow() {
            tokio::spawn(connection(stream, shared.clone()));
        }
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let mut cut = shared.cut.subscribe();
    let service = service_fn(|request| {
        let shared = shared.clone();
        async move { forward(request, &shared).await }
    });
    let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // An error is a client that went away, or an answer that was lost on purpose.
        _ = serving => {}
        _ = cut.wait_for(|cut| *cut) => {}
    }
}

async fn forward(request: Request<Incoming>, shared: &Shared) -> Result<Response<Body>, Lost> {
    let fault = {
        let mut decide = shared.decide.lock().unwrap();
        decide(request.method().as_str(), request.uri().path())
    };
    match fault {
        Fault::LoseRequest => return Err(Lost),
        Fault::Status(code) => return Ok(refusal(code)),
        Fault::Delay(time) => tokio::time::sleep(time).await,
        Fault::Wait => drop(shared.open.subscribe().wait_for(|open| *open).await),
        Fault::None | Fault::LoseAnswer | Fault::Hold => {}
    }
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
    let request = Request::from_parts(parts, Body::from(body.to_vec()));
    if fault == Fault::Hold {
        shared.held.lock().unwrap().push(request);
        return Err(Lost);
    }
    match shared.upstream.send(request).await {
        Ok(answer) if fault == Fault::LoseAnswer => {
            drop(answer);
            Err(Lost)
        }
        Ok(answer) => Ok(answer),
        Err(_) => Err(Lost),
    }
}

/// An answer as the API server gives it when it cannot serve.
fn refusal(code: u16) -> Response<Body> {
    let reason = if code == 429 {
        "TooManyRequests"
    } else {
        "InternalError"
    };
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": "refused on purpose", "reason": reason, "code": code,
    });
    let mut answer = Response::new(Body::from(status.to_string().into_bytes()));
    *answer.status_mut() = StatusCode::from_u16(code).unwrap();
    let headers = answer.headers_mut();
    headers.insert("content-type", "application/json".parse().unwrap());
    if code == 429 {
        headers.insert("retry-after", "1".parse().unwrap());
    }
    answer
}
