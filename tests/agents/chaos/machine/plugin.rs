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
    /// It succeeded: ADD with its addresses, or DEL.
    Done(Vec<Given>),
    /// It returned an error: its code and its full text.
    Refused(u64, String),
    /// The test killed it.
    Killed,
}

/// An address of a result.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) ip: IpAddr,
    /// Whether the main plugin must probe it.
    pub(crate) probe: bool,
}

/// The addresses of the result of an ADD.
fn given(result: &Value) -> Vec<Given> {
    let ips = result["ips"].as_array().unwrap().iter();
    ips.map(|ip| {
        let (address, _) = ip["address"].as_str().unwrap().split_once('/').unwrap();
        Given {
            ip: address.parse().unwrap(),
            probe: ip["rdmanet.io/probe"] == true,
        }
    })
    .collect()
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
            probes: living.probes,
            // The ADD of a pod without an address failed or was killed.
            unfinished: living.probes && verb == "DEL" && living.addresses.is_empty(),
        };
        let call = attachment
            .call(verb, living.pool.name(), &self.data())
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
            return Answer::Done(match verb {
                "ADD" => given(&answer.result()),
                _ => Vec::new(),
            });
        }
        let error: Value = serde_json::from_str(&answer.stdout)
            .unwrap_or_else(|e| panic!("{verb} ended without an error document: {e}: {answer}"));
        Answer::Refused(error["code"].as_u64().unwrap(), error.to_string())
    }
}
