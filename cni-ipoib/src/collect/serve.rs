// SPDX-License-Identifier: Apache-2.0
//! The process `cni-ipoib collect`: serves the agent on a unix socket, one request after the other.
//!
//! The process has no state, so that a kill at any point is the kill of a DEL: the journal has the rest.

use super::answer;
use super::reach::Reach;
use crate::node::Node;
use common::cni::{self, Env};
use common::collector::{Reply, Request, SOCKET, SOCKET_VARIABLE};
use nix::sys::signal::{SigSet, Signal};
use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// A request has at most this many bytes.
const REQUEST_MAX: u64 = 64 << 10;

/// A client that sends or reads nothing for this long is dropped.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the collector ended.
#[derive(Debug, thiserror::Error)]
enum CollectorError {
    /// Its environment.
    #[error("{}", .0.msg)]
    Environment(#[from] cni::Error),
    /// The socket.
    #[error("cannot serve the socket {}: {source}; does its directory exist, and may this process write there?", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The signals.
    #[error("cannot wait for signals: {0}")]
    Signals(#[from] nix::Error),
}

/// Serves the agent of this node until SIGTERM or SIGINT. `RDMANET_COLLECTOR` names the socket, `RDMANET_STATE`
/// the state directory, `RDMANET_LOG` the level of the log on stderr.
pub fn run_process() -> ExitCode {
    let env = Env::of_process();
    common::log::init(env.get("RDMANET_LOG").unwrap_or_default().or(Some("info")));
    match serve(&env) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the collector failed");
            ExitCode::FAILURE
        }
    }
}

fn serve(env: &Env) -> Result<(), CollectorError> {
    let node = Node::of_process(env)?;
    let path = Path::new(env.get(SOCKET_VARIABLE)?.unwrap_or(SOCKET));
    end_on_signal()?;
    let failed = |source| CollectorError::Socket {
        path: path.to_owned(),
        source,
    };
    let listener = bind(path).map_err(failed)?;
    let reach = Reach::of_process();
    tracing::info!(socket = %path.display(), ?reach, "the collector listens");
    for stream in listener.incoming() {
        if let Err(error) = serve_client(&node, reach, &stream.map_err(failed)?) {
            tracing::debug!(%error, "a request of the agent failed");
        }
    }
    Ok(())
}

/// The first process of a container ignores signals without a handler. A thread ends the process instead.
#[expect(
    clippy::exit,
    reason = "an end at any point is safe, and the main thread may wait for the kernel"
)]
fn end_on_signal() -> nix::Result<()> {
    let ends = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    ends.thread_block()?;
    thread::spawn(move || {
        let _ = ends.wait();
        std::process::exit(0);
    });
    Ok(())
}

/// Creates the socket for root alone, in the place of one that a dead collector left.
fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

pub(super) fn serve_client(node: &Node, reach: Reach, stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut line = Vec::new();
    BufReader::new(stream.take(REQUEST_MAX)).read_until(b'\n', &mut line)?;
    let reply = match serde_json::from_slice::<Request>(&line) {
        Ok(request) => answer(node, reach, &request),
        Err(e) => Reply::Failed(format!(
            "the collector cannot read the request: {e}; are agent and collector of one image?"
        )),
    };
    let mut text = serde_json::to_vec(&reply)?;
    text.push(b'\n');
    (&*stream).write_all(&text)
}
