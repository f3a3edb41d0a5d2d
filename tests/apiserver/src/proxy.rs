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

/// The treatment of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// The proxy forwards it.
    #[default]
    None,
    /// The proxy responds with this status code and does not forward it.
    Status(u16),
    /// The proxy forwards it after this time.
    Delay(Duration),
    /// The server executes it, and the connection breaks before the response.
    LoseAnswer,
    /// The connection breaks, and the server does not receive it.
    LoseRequest,
    /// The connection breaks, and the server receives it later, at [`Proxy::deliver`].
    Hold,
    /// The proxy forwards it after a call of [`Proxy::open`].
    Wait,
}

/// Selects the fault of a request by its method and path.
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
    withheld: Mutex<Vec<Request<Body>>>,
    /// While true, the proxy breaks every connection and accepts none.
    cut: watch::Sender<bool>,
    /// While false, requests with [`Fault::Wait`] wait.
    open: watch::Sender<bool>,
}

/// An error that breaks the connection.
#[derive(Debug)]
struct Lost;

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("lost on purpose")
    }
}

impl std::error::Error for Lost {}

impl Proxy {
    /// Starts a proxy before `server` that injects no faults.
    pub async fn start(server: &Server) -> Self {
        let mut anonymous = server.config_with("");
        anonymous.auth_infos[0].auth_info = Some(serde_json::from_str("{}").unwrap());
        let shared = Arc::new(Shared {
            upstream: crate::server::client(anonymous).await,
            decide: Mutex::new(Box::new(|_, _| Fault::None)),
            withheld: Mutex::new(Vec::new()),
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

    /// The configuration `direct` with the address of this proxy.
    pub fn before(&self, mut direct: Kubeconfig) -> Kubeconfig {
        let cluster = direct.clusters[0].cluster.as_mut().unwrap();
        cluster.server = Some(format!("http://127.0.0.1:{}", self.port));
        cluster.certificate_authority = None;
        direct
    }

    /// Calls `decide` for each request from now on.
    pub fn decide(&self, decide: impl FnMut(&str, &str) -> Fault + Send + 'static) {
        *self.shared.decide.lock().unwrap() = Box::new(decide);
    }

    /// The number of requests that the proxy holds back.
    pub fn withheld(&self) -> usize {
        self.shared.withheld.lock().unwrap().len()
    }

    /// Sends the held requests to the server, in their order. Returns the status codes of the responses.
    pub async fn deliver(&self) -> Vec<u16> {
        let withheld = std::mem::take(&mut *self.shared.withheld.lock().unwrap());
        let mut codes = Vec::new();
        for request in withheld {
            let answer = self.shared.upstream.send(request).await.unwrap();
            codes.push(answer.status().as_u16());
        }
        codes
    }

    /// Forwards the requests that wait, and all later ones.
    pub fn open(&self) {
        self.shared.open.send_replace(true);
    }

    /// Breaks every connection and accepts no new one until [`Proxy::mend`].
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
        // An error means that the client closed the connection, or that a response was lost on purpose.
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
        shared.withheld.lock().unwrap().push(request);
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

/// A response in the form in which the API server reports a failure.
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
