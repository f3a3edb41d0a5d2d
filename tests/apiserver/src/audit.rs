// SPDX-License-Identifier: Apache-2.0
//! The requests to the API server, from its audit log.

use crate::Server;
use serde::Deserialize;
use std::io::{BufRead, BufReader, Seek, SeekFrom};

/// A request that was answered.
#[derive(Clone, Debug, Deserialize)]
pub struct Request {
    /// The verb, such as `create`.
    pub verb: String,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub uri: String,
    user: User,
    #[serde(rename = "responseStatus")]
    status: Option<Status>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    extra: std::collections::BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Status {
    code: Option<u16>,
}

/// A place in the log.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

impl Mark {
    /// Before the first request.
    pub const BEGINNING: Self = Self(0);
}

impl Request {
    /// Who asked.
    pub fn user(&self) -> &str {
        &self.user.username
    }

    /// The node whose agent asked.
    pub fn node(&self) -> Option<&str> {
        let names = self.user.extra.get("authentication.kubernetes.io/node-name")?;
        names.first().map(String::as_str)
    }

    /// The status code of the answer.
    pub fn code(&self) -> u16 {
        self.status
            .as_ref()
            .and_then(|status| status.code)
            .unwrap_or_default()
    }
}

impl Server {
    /// The end of the log as it is now.
    pub fn mark(&self) -> Mark {
        Mark(std::fs::metadata(self.dir().join("audit.log")).map_or(0, |data| data.len()))
    }

    /// The requests that were answered after `mark`.
    pub fn requests_since(&self, mark: Mark) -> Vec<Request> {
        let mut file = std::fs::File::open(self.dir().join("audit.log")).unwrap();
        file.seek(SeekFrom::Start(mark.0)).unwrap();
        BufReader::new(file)
            .lines()
            .map(|line| line.unwrap())
            // The last line may be half written.
            .filter_map(|line| serde_json::from_str(&line).ok())
            .collect()
    }
}
