// SPDX-License-Identifier: Apache-2.0
//! An HTTP proxy, as companies have in front of their clusters: it forwards the connections that CONNECT requests, and does not read
//! their data.

use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A running gateway. It ends when the value is dropped; its open connections continue.
pub struct Gateway {
    port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    /// The first line of each request.
    asked: Mutex<Vec<String>>,
    /// The status of its rejections, such as `403 Forbidden`. It rejects every request if this is set.
    refusal: Mutex<Option<&'static str>>,
    /// The credentials that each request must have (RFC 7617), such as `Basic cmFpbDpzZWNyZXQ=`.
    credentials: Mutex<Option<&'static str>>,
    /// Changes when the open connections go silent.
    silenced: watch::Sender<()>,
}

impl Gateway {
    /// Starts a gateway that forwards all connections.
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Self {
            port,
            shared,
            accepting,
        }
    }

    /// The gateway's URL.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The first line of each request so far.
    pub fn asked(&self) -> Vec<String> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// Rejects requests with this status from now on, such as `403 Forbidden`. Without a status, forwards them.
    pub fn refuse(&self, status: Option<&'static str>) {
        *self.shared.refusal.lock().unwrap() = status;
    }

    /// Rejects requests without these credentials from now on, such as `Basic cmFpbDpzZWNyZXQ=`.
    pub fn require(&self, credentials: &'static str) {
        *self.shared.credentials.lock().unwrap() = Some(credentials);
    }

    /// Keeps the open connections and forwards none of their bytes from now on, as a firewall does that has forgotten them.
    /// Forwards later connections.
    pub fn silence(&self) {
        self.shared.silenced.send_replace(());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        // An error means that the client or the server has closed its connection.
        tokio::spawn(async move {
            let _ = carry(stream, &shared).await;
        });
    }
}

async fn carry(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut client = BufReader::new(stream);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if client.read_until(b'\n', &mut head).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8_lossy(&head);
    let line = head.lines().next().unwrap_or_default();
    shared.asked.lock().unwrap().push(line.to_owned());
    let required = *shared.credentials.lock().unwrap();
    let given = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("proxy-authorization").then_some(value)
    });
    let refusal = if required.is_some() && given != required {
        Some("407 Proxy Authentication Required")
    } else {
        *shared.refusal.lock().unwrap()
    };
    if let Some(status) = refusal {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        return client.write_all(answer.as_bytes()).await;
    }
    let place = line.split(' ').nth(1).unwrap_or_default();
    let mut server = TcpStream::connect(place).await?;
    client
        .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
        .await?;
    let mut silenced = shared.silenced.subscribe();
    tokio::select! {
        copied = tokio::io::copy_bidirectional(&mut client, &mut server) => copied.map(drop),
        _ = silenced.changed() => std::future::pending().await,
    }
}
