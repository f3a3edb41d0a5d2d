// SPDX-License-Identifier: Apache-2.0
//! A lease as a file: one line of JSON when it is made, one more when it ends.
//!
//! ```text
//! {"container":"3f…","ifname":"net1","network":"rail0","pod":"default/a","uid":"0d6c…","netns":{"path":"/run/netns/b","device":4,"inode":4026532},
//!  "since":"2026-01-01T00:00:00Z","boottime_ms":912345,"result":{…}}
//! {"released":"2026-01-01T01:00:00Z","boottime_ms":4512345}
//! ```

use super::sandbox::{NetnsFile, Sandbox};
use common::cni::{Attachment, CniResult, ContainerId, IfName, Version};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

/// What an attachment was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Whose it is.
    pub owner: Attachment,
    /// The name of the network configuration it was made under.
    pub network: String,
    /// The pod and its namespace, as far as the runtime named them.
    pub sandbox: Sandbox,
    /// Those of its addresses that an object of the cluster holds as well (`IPAddress`).
    pub api: Vec<IpAddr>,
    /// When it was made, for people.
    pub since: String,
    /// When it was made, on the kernel's clock.
    pub since_boot: Duration,
    /// The answer to ADD.
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
    since: String,
    boottime_ms: u64,
    result: Value,
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

impl Lease {
    /// The addresses it holds.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.result.ips.iter().map(|ip| ip.address.ip())
    }

    /// Who has it, for a person.
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
            since: self.since.clone(),
            // Rounded up, so that a lease never seems older than what happened before it.
            boottime_ms: millis(self.since_boot + Duration::from_nanos(999_999)),
            result: self.result.to_json(Version::LATEST),
        })?;
        line.push(b'\n');
        Ok(line)
    }

    /// Reads a file's first line; the error says what is wrong with it.
    pub(super) fn from_file(content: &[u8]) -> Result<Self, String> {
        let line: Line = match content.split(|byte| *byte == b'\n').next() {
            None | Some([]) => return Err("the file is empty".to_owned()),
            Some(line) => serde_json::from_slice(line).map_err(|e| e.to_string())?,
        };
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
            since: line.since,
            since_boot: Duration::from_millis(line.boottime_ms),
            result: CniResult::from_json(&line.result).map_err(|e| e.msg)?,
        })
    }
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

/// When a lease ended, on the kernel's clock; none if it has not, or nobody can tell.
pub(super) fn ended(content: &[u8]) -> Option<Duration> {
    let last = content
        .split(|byte| *byte == b'\n')
        .rfind(|line| !line.is_empty())?;
    serde_json::from_slice::<End>(last)
        .ok()
        .map(|end| Duration::from_millis(end.boottime_ms))
}
