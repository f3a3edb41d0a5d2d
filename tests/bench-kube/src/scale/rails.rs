// SPDX-License-Identifier: Apache-2.0
//! Nodes with several rails, each with a pool for the pods of one namespace; and a failure of the fabric that all nodes
//! report.

use crate::fleet::{Fleet, POOL, TIMEOUT};
use agent::agent::event;
use agent::links;
use agent::links::condition::{delay, kind};
use api::deadline::Deadline;
use api::recorder::NewEvent;
use api::requests::NodeCondition;
use bench_kube::gauge::{Gauges, Phase};
use futures::future::join_all;
use serde_json::json;
use std::time::{Duration, Instant};

/// The age at which an agent reads its Node again before a report.
const LOOK: Duration = Duration::from_secs(60);

impl Fleet<'_> {
    /// Creates pools for all rails except the first: each selects a namespace, and each node claims a block of it.
    pub(crate) async fn more_rails(&self, gauges: &Gauges<'_>) -> Phase {
        let start = gauges.start().await;
        for rail in 1..self.rails {
            let spec = json!({
                "ranges": [{ "subnet": format!("{}.0.0.0/{}", 10 + rail, self.prefix()), "gateway": "none" }],
                "blockSize": { "v4": self.block },
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "default" } },
            });
            self.pool(&name(rail), spec).await;
        }
        let begun = Instant::now();
        let has = |i: usize, rail: usize| {
            let file = self.file(i, &name(rail));
            file["blocks"].as_array().is_some_and(|blocks| !blocks.is_empty())
        };
        let mut left: Vec<usize> = (0..self.size).collect();
        while !left.is_empty() {
            assert!(begun.elapsed() < TIMEOUT, "{} nodes lack a block", left.len());
            tokio::time::sleep(Duration::from_millis(200)).await;
            left.retain(|i| !(1..self.rails).all(|rail| has(*i, rail)));
        }
        let more = self.rails - 1;
        gauges
            .stop(
                format!("{more} pools more, each with a namespaceSelector: a block of each on every node"),
                start,
            )
            .await
    }

    /// The ports of all rails of every node lose their carrier at the same time. The agents report without a message of the
    /// kernel: each waits for its turn, then writes the condition of its Node and an Event for each port.
    pub(crate) async fn fabric(&self, gauges: &Gauges<'_>) -> Phase {
        let start = gauges.start().await;
        let report = |i: usize| async move {
            let share = |of: usize| f64::from(u32::try_from(of).unwrap());
            let (agent, chance) = (&self.agents[i], share(i) / share(self.size));
            tokio::time::sleep(delay(agent, chance)).await;
            let api = agent.clients.requests(Deadline::background());
            agent.refresh_node(&api, LOOK).await.unwrap();
            let lost = NodeCondition {
                status: "False".to_owned(),
                reason: "LinkDown".to_owned(),
                message: self.without_carrier(),
            };
            agent
                .write_node_condition(&api, kind::LINKS_READY, Some(lost))
                .await
                .unwrap();
            for rail in 0..self.rails {
                let event = NewEvent {
                    is_warning: true,
                    reason: event::LINK_DOWN,
                    note: format!("link ib{rail} has lost carrier"),
                };
                links::publish_event(agent, event).await;
            }
        };
        join_all((0..self.agents.len()).map(report)).await;
        gauges
            .stop(
                format!(
                    "a link event on all nodes, until each Node has its condition and {} Events",
                    self.rails
                ),
                start,
            )
            .await
    }

    fn without_carrier(&self) -> String {
        let ports: Vec<String> = (0..self.rails).map(|rail| format!("ib{rail}")).collect();
        format!(
            "{} have no carrier: check cables and switch ports",
            ports.join(", ")
        )
    }
}

/// The name of the pool of a rail.
pub(crate) fn name(rail: usize) -> String {
    match rail {
        0 => POOL.to_owned(),
        _ => format!("rail{rail}"),
    }
}
