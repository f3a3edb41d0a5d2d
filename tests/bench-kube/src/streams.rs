// SPDX-License-Identifier: Apache-2.0
//! The watches that the API server serves, and the connections that they use.

use apiserver::Server;
use kube::Client;
use std::collections::BTreeSet;
use std::path::Path;

/// The watches and connections of a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    /// The watches of blocks, those of the controller included.
    pub block_watches: usize,
    /// The connections from this process to the API server: of all agents, the controller and the bench itself.
    pub connections: usize,
}

impl Streams {
    /// Counts them.
    pub async fn now(server: &Server, admin: &Client) -> Self {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let metrics = admin.request_text(request).await.unwrap();
        let tcp = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        Self {
            block_watches: block_watches(&metrics),
            connections: established(&tcp, server.port(), &own_sockets()),
        }
    }
}

/// The number of watches of blocks, from the API server's metrics.
fn block_watches(metrics: &str) -> usize {
    let watches = metrics.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{")
            && line.contains("resource=\"ipblocks\"")
            && line.contains("verb=\"WATCH\"")
    });
    watches
        .filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok())
        .sum()
}

/// The number of established connections to `port` among the sockets `own`, from the content of `/proc/net/tcp` (proc(5)).
fn established(tcp: &str, port: u16, own: &BTreeSet<String>) -> usize {
    const ESTABLISHED: &str = "01";
    let remote = format!(":{port:04X}");
    let matches = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.len() > 9
            && fields[2].ends_with(&remote)
            && fields[3] == ESTABLISHED
            && own.contains(fields[9])
    };
    tcp.lines().skip(1).filter(matches).count()
}

/// The inodes of this process' sockets.
fn own_sockets() -> BTreeSet<String> {
    let entries = std::fs::read_dir(Path::new("/proc/self/fd")).unwrap();
    entries
        .filter_map(|entry| {
            let link = std::fs::read_link(entry.ok()?.path()).ok()?;
            let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests;
