// SPDX-License-Identifier: Apache-2.0
//! The measurements of a phase: time, requests, bytes, processor time, memory.

use apiserver::Server;
use apiserver::identity::{ACCOUNT, NAMESPACE};
use kube::Client;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// The sources of the measurements.
pub struct Gauges<'s> {
    server: &'s Server,
    admin: Client,
}

/// The counters at the start of a phase.
pub struct Start {
    at: Instant,
    mark: apiserver::audit::Mark,
    bytes: Bytes,
    server_cpu: Duration,
    etcd_cpu: Duration,
}

/// The API server's counters: sent bytes and ended watches.
#[derive(Clone, Copy, Default)]
struct Bytes {
    answers: f64,
    watches: f64,
    ended: f64,
}

/// The measurements of a phase.
#[derive(Clone)]
pub struct Phase {
    /// The name of the phase.
    pub name: String,
    /// The duration.
    pub time: Duration,
    /// The agents' requests by verb and resource. Lists of all objects of a kind and lists with a selector are counted
    /// separately.
    pub requests: BTreeMap<String, usize>,
    /// The refused requests, by status code.
    pub refused: BTreeMap<u16, usize>,
    /// CREATEs of blocks whose name was taken.
    pub conflicts: usize,
    /// Megabytes of responses.
    pub answers: f64,
    /// Megabytes of watch events.
    pub watches: f64,
    /// Processor time of API server and etcd.
    pub server_cpu: Duration,
    /// Processor time of etcd.
    pub etcd_cpu: Duration,
    /// Resident memory of API server and etcd at the end, in MiB.
    pub server_rss: u64,
    /// Resident memory of etcd.
    pub etcd_rss: u64,
    /// Resident memory of this process: all agents together.
    pub own_rss: u64,
    /// Watches that the API server ended because the client was too slow.
    pub ended: f64,
    /// The size of etcd's file, in MiB.
    pub etcd_file: u64,
}

impl<'s> Gauges<'s> {
    /// The gauges of `server`.
    pub async fn new(server: &'s Server) -> Self {
        Self {
            server,
            admin: crate::agents::admin(server).await,
        }
    }

    /// Reads all counters.
    pub async fn start(&self) -> Start {
        Start {
            bytes: self.bytes().await,
            mark: self.server.mark(),
            server_cpu: self.cpu("kube-apiserver"),
            etcd_cpu: self.cpu("etcd"),
            at: Instant::now(),
        }
    }

    /// The measurements since `start`.
    pub async fn stop(&self, name: impl Into<String>, start: Start) -> Phase {
        let time = start.at.elapsed();
        let (server_cpu, etcd_cpu) = (self.cpu("kube-apiserver"), self.cpu("etcd"));
        let bytes = self.bytes().await;
        let agent = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
        let (mut requests, mut refused, mut conflicts) = (BTreeMap::new(), BTreeMap::new(), 0);
        for request in self.server.requests_since(start.mark) {
            if request.user() != agent {
                continue;
            }
            let what = what(&request.verb, &request.uri);
            conflicts += usize::from(what == "create ipblocks" && request.code() == 409);
            *requests.entry(what).or_default() += 1;
            if request.code() >= 400 {
                *refused.entry(request.code()).or_default() += 1;
            }
        }
        Phase {
            name: name.into(),
            time,
            requests,
            refused,
            conflicts,
            answers: (bytes.answers - start.bytes.answers) / 1e6,
            watches: (bytes.watches - start.bytes.watches) / 1e6,
            server_cpu: server_cpu.saturating_sub(start.server_cpu),
            etcd_cpu: etcd_cpu.saturating_sub(start.etcd_cpu),
            server_rss: rss(self.server.pid("kube-apiserver").as_raw().cast_unsigned()),
            etcd_rss: rss(self.server.pid("etcd").as_raw().cast_unsigned()),
            own_rss: rss(std::process::id()),
            ended: bytes.ended - start.bytes.ended,
            etcd_file: self.etcd_file(),
        }
    }

    async fn bytes(&self) -> Bytes {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = self.admin.request_text(request).await.unwrap();
        let sum = |name: &str| {
            let lines = text.lines().filter(|line| line.starts_with(name));
            lines
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .sum()
        };
        Bytes {
            answers: sum("apiserver_response_sizes_sum"),
            watches: sum("apiserver_watch_events_sizes_sum"),
            ended: sum("apiserver_terminated_watchers_total"),
        }
    }

    /// User and system time of a process (proc(5)). One tick is a hundredth of a second.
    fn cpu(&self, name: &str) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.server.pid(name))).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }

    fn etcd_file(&self) -> u64 {
        let file = self.server.dir().join("etcd/member/snap/db");
        std::fs::metadata(file).map_or(0, |data| data.len() >> 20)
    }
}

/// The resident memory of a process, in MiB.
fn rss(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<u64>().unwrap() / 1024
}

/// The kind of a request.
fn what(verb: &str, uri: &str) -> String {
    let mut selectors = uri
        .split(['?', '&'])
        .filter_map(|part| part.strip_prefix("fieldSelector="));
    if verb == "list" && selectors.all(str::is_empty) {
        return format!("list all {}", resource(uri));
    }
    format!("{verb} {}", resource(uri))
}

/// The resource in the path of a request, with its subresource.
fn resource(uri: &str) -> String {
    let parts: Vec<&str> = uri.split('?').next().unwrap().split('/').collect();
    let (["", "api", _, rest @ ..] | ["", "apis", _, _, rest @ ..]) = parts.as_slice() else {
        return uri.to_owned();
    };
    let parts = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        parts => parts,
    };
    match parts {
        [kind, _, sub] => format!("{kind}/{sub}"),
        [kind, ..] => (*kind).to_owned(),
        [] => uri.to_owned(),
    }
}

impl Phase {
    /// How many requests of each kind the API server had.
    pub fn each_request(&self) -> String {
        let each: Vec<String> = self
            .requests
            .iter()
            .map(|(what, n)| format!("{n} {what}"))
            .collect();
        each.join(", ")
    }

    /// The number of all requests.
    pub fn total(&self) -> usize {
        self.requests.values().sum()
    }

    /// A summary on stderr.
    pub fn line(&self) -> String {
        let mut line = format!(
            "{}: {:.1} s, {} requests {:?}",
            self.name,
            self.time.as_secs_f64(),
            self.total(),
            self.requests
        );
        let _ = write!(
            line,
            ", refused {:?}, {} watches ended, {:.1} + {:.1} MB, CPU {:.1} + {:.1} s, {} + {} MiB, etcd's file {} MiB, agents {} MiB",
            self.refused,
            self.ended,
            self.answers,
            self.watches,
            self.server_cpu.as_secs_f64(),
            self.etcd_cpu.as_secs_f64(),
            self.server_rss,
            self.etcd_rss,
            self.etcd_file,
            self.own_rss
        );
        line
    }
}

#[cfg(test)]
mod tests;
