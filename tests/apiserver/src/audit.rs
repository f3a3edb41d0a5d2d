// SPDX-License-Identifier: Apache-2.0
//! The requests to the API server, from its audit log.

use crate::Server;
use serde::Deserialize;
use std::io::{BufRead, BufReader, Seek, SeekFrom};

/// A request with a response.
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
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
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

/// A position in the log.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

impl Mark {
    /// Before the first request.
    pub const BEGINNING: Self = Self(0);
}

impl Request {
    /// The name of the client's user.
    pub fn user(&self) -> &str {
        &self.user.username
    }

    /// The node whose agent sent the request.
    pub fn node(&self) -> Option<&str> {
        let names = self.user.extra.get("authentication.kubernetes.io/node-name")?;
        names.first().map(String::as_str)
    }

    /// Whether the client lacks the right to this request.
    pub fn is_unauthorized(&self) -> bool {
        let decision = self.annotations.get("authorization.k8s.io/decision");
        decision.is_some_and(|decision| decision == "forbid")
    }

    /// The status code of the response.
    pub fn code(&self) -> u16 {
        self.status
            .as_ref()
            .and_then(|status| status.code)
            .unwrap_or_default()
    }
}

impl Server {
    /// The current end of the log.
    pub fn mark(&self) -> Mark {
        Mark(std::fs::metadata(self.dir().join("audit.log")).map_or(0, |data| data.len()))
    }

    /// The requests with a response after `mark`.
    pub fn requests_since(&self, mark: Mark) -> Vec<Request> {
        let mut file = std::fs::File::open(self.dir().join("audit.log")).unwrap();
        file.seek(SeekFrom::Start(mark.0)).unwrap();
        BufReader::new(file)
            .lines()
            .map(|line| line.unwrap())
            // The last line may be incomplete.
            .filter_map(|line| serde_json::from_str(&line).ok())
            .collect()
    }

    /// The number of open watches of `resource`, of all clients and of the API server itself. The audit log has a watch only
    /// after its end.
    pub async fn watches(&self, resource: &str) -> usize {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = self.admin().await.request_text(request).await.unwrap();
        let is_watch = |line: &&str| {
            line.starts_with("apiserver_longrunning_requests{")
                && line.contains(&format!("resource=\"{resource}\""))
                && line.contains("verb=\"WATCH\"")
        };
        let values = text
            .lines()
            .filter(is_watch)
            .filter_map(|line| line.rsplit(' ').next());
        values.map(|value| value.parse::<usize>().unwrap()).sum()
    }
}
