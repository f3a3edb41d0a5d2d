// SPDX-License-Identifier: Apache-2.0
//! A reconciler whose API server never responds. The clock stands still while a task can run, so load changes no time.

use super::super::{PluginRequest, Response};
use super::*;
use crate::agent::Agent;
use crate::config::Config;
use api::deadline::{GRACE, PLUGIN_LIMIT};
use api::http::Health;
use api::testing::silent_clients;
use clap::Parser;
use common::cni::Code;
use ipam::agent::{Request, Verb};
use ipam::pool::PoolName;
use kube::runtime::reflector::store;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// The reconciler of pool rail0, and the sender of its messages.
struct Silent {
    agent: Arc<Agent>,
    sender: mpsc::Sender<Message>,
    listed: CancellationToken,
    stop: CancellationToken,
    worker: JoinHandle<()>,
    _dir: TempDir,
}

fn pool() -> PoolName {
    "rail0".to_owned().try_into().unwrap()
}

fn config(data_dir: &str) -> Config {
    let words = [
        "agent",
        "--node",
        "n",
        "--data-dir",
        data_dir,
        "--reconcile-interval",
        "1h",
    ];
    Config::parse_from(words)
}

impl Silent {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path().to_str().unwrap());
        let agent = Arc::new(Agent::new(
            config,
            silent_clients(),
            store().0,
            store().0,
            unbounded_channel().0,
        ));
        let (sender, messages) = mpsc::channel(16);
        let (listed, stop) = (CancellationToken::new(), CancellationToken::new());
        let worker = PoolReconciler::new(agent.clone(), pool());
        let worker = tokio::spawn(worker.run(messages, listed.clone(), stop.clone()));
        Self {
            agent,
            sender,
            listed,
            stop,
            worker,
            _dir: dir,
        }
    }

    /// Sends a request that arrived this long `ago`.
    async fn ask(&self, ago: Duration) -> oneshot::Receiver<Response> {
        let (answer, receiver) = oneshot::channel();
        let request = Request {
            verb: Verb::Claim,
            pool: pool(),
            attachment: None,
            pod: None,
            ips: Vec::new(),
            families: Vec::new(),
            early: false,
            within_ms: None,
        };
        let question = PluginRequest {
            request,
            answer,
            asked: Instant::now() - ago,
            pool_version: 0,
            waits: false,
        };
        self.sender
            .send(Message::Request(Box::new(question)))
            .await
            .unwrap();
        receiver
    }

    fn has_interrupted_a_round(&self) -> bool {
        let metrics = self.agent.metrics();
        metrics.contains("rdmanet_rounds_interrupted_total{pool=\"rail0\"}")
    }

    fn says(&self, line: &str) -> bool {
        self.agent.metrics().lines().any(|there| there == line)
    }
}

/// The time limit of a request, less this number of milliseconds.
fn all_but(left: u64) -> Duration {
    PLUGIN_LIMIT.saturating_sub(Duration::from_millis(left))
}

/// Asserts that less than twice this number of milliseconds has passed: a timer of tokio may be late by one of them.
fn assert_in_time(begun: Instant, left: u64) {
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(left * 2), "{took:?}");
}

fn code(answer: Response) -> Code {
    let Response::Reply(reply) = answer else {
        panic!("not now: {answer:?}");
    };
    reply.accepted().unwrap_err().code
}

#[tokio::test(start_paused = true)]
async fn a_plugin_gets_an_error_in_time_while_a_round_hangs() {
    let silent = Silent::new();
    silent.listed.cancel();
    // The round has already begun.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!silent.has_interrupted_a_round());
    let begun = Instant::now();
    let answer = silent.ask(all_but(1500)).await;
    assert_eq!(code(answer.await.unwrap()), Code::API_UNREACHABLE);
    assert_in_time(begun, 1500);
    assert!(
        !silent.agent.metrics().contains("rdmanet_rounds_failed_total{"),
        "a round that was in the way has not failed"
    );
    assert!(silent.has_interrupted_a_round());
}

#[tokio::test(start_paused = true)]
async fn plugins_that_wait_together_all_get_an_answer_in_time() {
    let silent = Silent::new();
    silent.listed.cancel();
    let begun = Instant::now();
    let mut answers = Vec::new();
    for _ in 0..10 {
        answers.push(silent.ask(all_but(1500)).await);
    }
    for answer in answers {
        assert_eq!(code(answer.await.unwrap()), Code::API_UNREACHABLE);
    }
    assert_in_time(begun, 1500);
}

#[tokio::test(start_paused = true)]
async fn the_request_of_a_timed_out_plugin_is_skipped() {
    let silent = Silent::new();
    drop(silent.ask(Duration::from_secs(6)).await);
    silent.listed.cancel();
    let last = silent.ask(PLUGIN_LIMIT).await;
    assert_eq!(code(last.await.unwrap()), Code::API_UNREACHABLE);
    assert!(silent.says("rdmanet_plugin_requests_timed_out_total{pool=\"rail0\"} 1"));
    assert!(silent.says("rdmanet_plugin_requests_total{pool=\"rail0\",verb=\"claim\",code=\"119\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_calls_before_pools_are_listed_gets_an_error_in_time() {
    let silent = Silent::new();
    let begun = Instant::now();
    let answer = silent.ask(all_but(300)).await;
    assert_eq!(code(answer.await.unwrap()), Code::API_UNREACHABLE);
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert_in_time(begun, 300);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_worker_leaves_a_hanging_round_soon() {
    let silent = Silent::new();
    silent.listed.cancel();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let begun = Instant::now();
    silent.stop.cancel();
    silent.worker.await.unwrap();
    let took = begun.elapsed();
    assert!(took < GRACE * 2, "{took:?}");
}
