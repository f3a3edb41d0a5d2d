// SPDX-License-Identifier: Apache-2.0
//! Asks the collector of this node.

use common::collector::{DeadAttachment, Reply, Request};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// The collector waits some seconds for the kernel to return a link.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A reply has at most this many bytes: tens of thousands of attachments.
const REPLY_MAX: u64 = 32 << 20;

/// Why the collector did not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// No collector runs on this node.
    #[error("no collector listens")]
    Absent,
    /// The connection.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The reply.
    #[error("the reply cannot be read: {0}; are agent and collector of one image?")]
    Decode(#[from] serde_json::Error),
    /// The collector refused, or answered another request.
    #[error("{0}")]
    Refused(String),
}

/// The attachments of pods whose namespaces are gone.
pub(super) async fn list(socket: &Path) -> Result<Vec<DeadAttachment>, ClientError> {
    match ask(socket, &Request::List).await? {
        Reply::Dead(dead) => Ok(dead),
        Reply::Failed(why) => Err(ClientError::Refused(why)),
        other => Err(ClientError::Refused(format!("unexpected reply {other:?}"))),
    }
}

/// Removes one of them, which has been unused for `suspected`.
pub(super) async fn collect(
    socket: &Path,
    dead: &DeadAttachment,
    suspected: Duration,
) -> Result<Reply, ClientError> {
    let request = Request::Collect {
        dead: dead.clone(),
        seconds: suspected.as_secs(),
    };
    ask(socket, &request).await
}

async fn ask(socket: &Path, request: &Request) -> Result<Reply, ClientError> {
    let answer = tokio::time::timeout(TIMEOUT, exchange(socket, request)).await;
    answer.unwrap_or_else(|_| Err(io::Error::from(ErrorKind::TimedOut).into()))
}

async fn exchange(socket: &Path, request: &Request) -> Result<Reply, ClientError> {
    let mut stream = match UnixStream::connect(socket).await {
        Ok(stream) => stream,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Err(ClientError::Absent);
        }
        Err(e) => return Err(e.into()),
    };
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut reply = Vec::new();
    BufReader::new(stream.take(REPLY_MAX))
        .read_until(b'\n', &mut reply)
        .await?;
    Ok(serde_json::from_slice(&reply)?)
}
