// SPDX-License-Identifier: Apache-2.0
//! Calls `rdma-ipam` as a runtime does, one process for each call.

use super::{Living, Machine};
use agents::Attachment;
use serde_json::Value;
use std::net::IpAddr;
use std::time::Duration;

/// The end of a call.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It succeeded: ADD with its first address, or DEL.
    Done(Option<IpAddr>),
    /// It returned an error: its code and its full text.
    Refused(u64, String),
    /// The test killed it.
    Killed,
}

impl Machine {
    /// Calls a verb. Kills the process after `killed`.
    pub(crate) async fn call(&self, verb: &str, living: &Living, killed: Option<Duration>) -> Answer {
        let attachment = Attachment {
            container: living.container.clone(),
            pod: format!("default/{}", living.pod),
            uid: living.uid.clone(),
            netns: self.netns(&living.container),
            ips: Vec::new(),
            probes: false,
        };
        let call = attachment
            .call(verb, crate::POOL, &self.data())
            .env("RDMANET_AGENT_SOCKET", self.dir.join("s"));
        let run = move || match killed {
            None => call.run(),
            Some(after) => call.killed_after(after),
        };
        let answer = tokio::task::spawn_blocking(run).await.unwrap();
        if answer.was_killed() && killed.is_some() {
            return Answer::Killed;
        }
        if answer.status.success() {
            let address = (verb == "ADD").then(|| answer.addresses().remove(0).parse().unwrap());
            return Answer::Done(address);
        }
        let error: Value = serde_json::from_str(&answer.stdout)
            .unwrap_or_else(|e| panic!("{verb} ended without an error document: {e}: {answer}"));
        Answer::Refused(error["code"].as_u64().unwrap(), error.to_string())
    }
}
