// SPDX-License-Identifier: Apache-2.0
//! The file of a lease: one line of JSON when it is made, one more for each new namespace of its container,
//! one if it ends without DEL, and one when it ends.
//!
//! ```text
//! {"container":"3f…","ifname":"net1","network":"rail0","pod":"default/a","uid":"0d6c…","netns":{"path":"/run/netns/b","device":4,"inode":4026532},
//!  "since":"2026-01-01T00:00:00Z","boottime_ms":912345,"result":{…}}
//! {"moved":"2026-01-01T00:30:00Z","boottime_ms":2712345,"netns":{"path":"/run/netns/c","device":4,"inode":4026533}}
//! {"without_del":"2026-01-01T01:00:00Z"}
//! {"released":"2026-01-01T01:00:00Z","boottime_ms":4512345}
//! ```
//!
//! A line is appended by one write(2). A line that a killed process or a full disk truncated does not parse
//! and is skipped. The next append starts a new line.

use super::sandbox::{NetnsFile, Sandbox};
use crate::config::Space;
use common::cni::{Attachment, CniResult, ContainerId, IfName, Version};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

/// The addresses of an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The attachment that owns it.
    pub owner: Attachment,
    /// The name of its network configuration.
    pub network: String,
    /// The pod and its namespace, if the runtime named them.
    pub sandbox: Sandbox,
    /// The addresses that are also objects of the cluster (`IPAddress`).
    pub api: Vec<IpAddr>,
    /// Among which networks of the node its addresses are unique.
    pub space: Space,
    /// When it was made, for people.
    pub since: String,
    /// When ADD made it or last moved it to another namespace, on the kernel's clock.
    pub since_boot: Duration,
    /// The result of ADD.
    pub result: CniResult,
}

#[derive(Serialize, Deserialize)]
struct Line {
    container: ContainerId,
    ifname: IfName,
    network: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    netns: Option<NetnsFile>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    api: Vec<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    space: Option<Space>,
    since: String,
    boottime_ms: u64,
    result: Value,
}

/// The new sandbox of a container that restarted under its id.
#[derive(Serialize, Deserialize)]
struct Move {
    moved: String,
    boottime_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    netns: Option<NetnsFile>,
}

/// No DEL ends the lease: the agent or a person does.
#[derive(Serialize, Deserialize)]
struct WithoutDel {
    without_del: String,
}

#[derive(Serialize, Deserialize)]
struct End {
    released: String,
    boottime_ms: u64,
}

/// The time of day for people.
pub(super) fn date(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Rounded up, so that a lease never seems older than an event before it.
fn rounded_up(time: Duration) -> u64 {
    millis(time + Duration::from_nanos(999_999))
}

impl Lease {
    /// The addresses it holds.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.result.ips.iter().map(|ip| ip.address.ip())
    }

    /// The holder, for a person.
    pub fn describe(&self) -> String {
        let pod = self
            .sandbox
            .pod
            .as_ref()
            .map(|pod| format!(" (pod {pod})"))
            .unwrap_or_default();
        format!(
            "{}{pod} of network {} since {}",
            self.owner, self.network, self.since
        )
    }

    /// The file's first line.
    pub(super) fn to_line(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut line = serde_json::to_vec(&Line {
            container: self.owner.container_id.clone(),
            ifname: self.owner.ifname.clone(),
            network: self.network.clone(),
            pod: self.sandbox.pod.clone(),
            uid: self.sandbox.uid.clone(),
            netns: self.sandbox.netns.clone(),
            api: self.api.clone(),
            space: Some(self.space).filter(|space| *space != Space::default()),
            since: self.since.clone(),
            boottime_ms: rounded_up(self.since_boot),
            result: self.result.to_json(Version::LATEST),
        })?;
        line.push(b'\n');
        Ok(line)
    }

    /// Parses a file. The error is the reason why it is not valid.
    pub(super) fn from_file(content: &[u8]) -> Result<Self, String> {
        let mut lines = content.split(|byte| *byte == b'\n');
        let line: Line = match lines.next() {
            None | Some([]) => return Err("the file is empty".to_owned()),
            Some(line) => object(line).map_err(|e| e.to_string())?,
        };
        let mut lease = Self::of_line(line)?;
        for moved in lines.filter_map(|line| object::<Move>(line).ok()) {
            lease.since_boot = Duration::from_millis(moved.boottime_ms);
            lease.sandbox = Sandbox {
                pod: moved.pod,
                uid: moved.uid,
                netns: moved.netns,
            };
        }
        Ok(lease)
    }

    fn of_line(line: Line) -> Result<Self, String> {
        Ok(Self {
            owner: Attachment {
                container_id: line.container,
                ifname: line.ifname,
            },
            network: line.network,
            sandbox: Sandbox {
                pod: line.pod,
                uid: line.uid,
                netns: line.netns,
            },
            api: line.api,
            space: line.space.unwrap_or_default(),
            since: line.since,
            since_boot: Duration::from_millis(line.boottime_ms),
            result: CniResult::from_json(&line.result).map_err(|e| e.msg)?,
        })
    }
}

/// Parses a JSON object; serde alone would accept a list of a struct's fields.
fn object<T: DeserializeOwned>(line: &[u8]) -> Result<T, serde_json::Error> {
    let value: Value = serde_json::from_slice(line)?;
    if value.is_object() {
        return serde_json::from_value(value);
    }
    Err(serde::de::Error::custom("it is not a JSON object"))
}

/// `line`, ready to be appended to a file with `content`, whose last line may be truncated.
pub(super) fn after(content: &[u8], line: Vec<u8>) -> Vec<u8> {
    if content.last().is_none_or(|last| *last == b'\n') {
        return line;
    }
    [b"\n".to_vec(), line].concat()
}

/// The line that moves a lease to `sandbox`.
pub(super) fn move_line(
    sandbox: &Sandbox,
    now: SystemTime,
    since_boot: Duration,
) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(&Move {
        moved: date(now),
        boottime_ms: rounded_up(since_boot),
        pod: sandbox.pod.clone(),
        uid: sandbox.uid.clone(),
        netns: sandbox.netns.clone(),
    })?;
    line.push(b'\n');
    Ok(line)
}

/// The line before the end of a lease that no DEL ends.
pub(super) fn without_del_line(now: SystemTime) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(&WithoutDel {
        without_del: date(now),
    })?;
    line.push(b'\n');
    Ok(line)
}

/// Whether no DEL ended the lease.
pub(super) fn is_without_del(content: &[u8]) -> bool {
    let mut lines = content.split(|byte| *byte == b'\n');
    lines.any(|line| object::<WithoutDel>(line).is_ok())
}

/// The line that ends a lease.
pub(super) fn end_line(now: SystemTime, since_boot: Duration) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(&End {
        released: date(now),
        boottime_ms: millis(since_boot),
    })?;
    line.push(b'\n');
    Ok(line)
}

/// The end of a lease on the kernel's clock; `None` if it has not ended, or the line cannot be read.
pub(super) fn ended(content: &[u8]) -> Option<Duration> {
    let last = content
        .split(|byte| *byte == b'\n')
        .rfind(|line| !line.is_empty())?;
    object::<End>(last)
        .ok()
        .map(|end| Duration::from_millis(end.boottime_ms))
}
