// SPDX-License-Identifier: Apache-2.0
//! The pods, their addresses, and the time of each call.

use crate::{POOL, TIMEOUT};
use bench_kube::call::{Answer, Call, run};
use bench_kube::nodes::Nodes;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The number of pods that start in parallel.
const AT_ONCE: usize = 8;

/// The time before a pod's retry: a fifth of kubelet's.
const PAUSE: Duration = Duration::from_secs(2);

/// The start of one pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    /// The time from its first call until it has its address.
    pub(crate) time: Duration,
    /// The number of calls.
    pub(crate) calls: usize,
    /// The number of attempts that reported an exhausted pool although it had free addresses.
    pub(crate) wrong: usize,
}

/// All pods.
pub(crate) struct Pods<'n> {
    plugin: PathBuf,
    nodes: &'n Nodes,
    given: Mutex<BTreeSet<String>>,
}

impl<'n> Pods<'n> {
    pub(crate) fn new(plugin: &Path, nodes: &'n Nodes) -> Self {
        Self {
            plugin: plugin.to_owned(),
            nodes,
            given: Mutex::default(),
        }
    }

    fn call(&self, verb: &'static str, pod: usize) -> Answer {
        let node = pod % self.nodes.data.len();
        run(&Call {
            program: self.plugin.clone(),
            verb,
            id: format!("pod-{pod}"),
            pod: format!("pod-{pod}"),
            conf: json!({
                "cniVersion": "1.0.0", "name": "bench", "type": "macvlan",
                "ipam": { "type": "rdma-ipam", "pool": POOL, "dataDir": self.nodes.data[node] },
            })
            .to_string(),
            agent: Some(self.nodes.sockets[node].clone()),
            node: None,
            netns: None,
        })
    }

    /// Starts the pods `range`, some in parallel.
    pub(crate) fn add(&self, range: Range<usize>) -> Vec<Started> {
        Self::each(range, |pod| self.start(pod))
    }

    fn start(&self, pod: usize) -> Started {
        let begun = Instant::now();
        let (mut calls, mut wrong) = (1, 0);
        loop {
            let answer = self.call("ADD", pod);
            if answer.succeeded {
                let address = answer.address();
                assert!(
                    self.given.lock().unwrap().insert(address.clone()),
                    "{address} is allocated twice"
                );
                return Started {
                    time: begun.elapsed(),
                    calls,
                    wrong,
                };
            }
            wrong += usize::from(code(&answer) == 110);
            assert!(begun.elapsed() < TIMEOUT, "pod {pod}: {}", answer.stdout);
            calls += 1;
            std::thread::sleep(PAUSE);
        }
    }

    /// Fails unless every address of the pool is allocated.
    pub(crate) fn assert_all_given(&self, size: usize) {
        assert_eq!(self.given.lock().unwrap().len(), size);
    }

    /// Starts one more pod on each node, which must fail. Returns the time of each call.
    pub(crate) fn refuse(&self) -> Vec<Duration> {
        let first = self.given.lock().unwrap().len();
        Self::each(first..first + self.nodes.data.len(), |pod| {
            let answer = self.call("ADD", pod);
            assert_eq!(code(&answer), 110, "ADD of pod {pod}: {}", answer.stdout);
            answer.time
        })
    }

    /// Ends all pods.
    pub(crate) fn del(&self) -> Vec<Duration> {
        let count = self.given.lock().unwrap().len();
        Self::each(0..count, |pod| {
            let answer = self.call("DEL", pod);
            assert!(answer.succeeded, "DEL of pod {pod}: {}", answer.stdout);
            answer.time
        })
    }

    fn each<T: Send>(range: Range<usize>, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let next = AtomicUsize::new(range.start);
        let done = Mutex::new(Vec::new());
        // The agents are tasks of this process and continue meanwhile.
        tokio::task::block_in_place(|| {
            std::thread::scope(|scope| {
                for _ in 0..AT_ONCE {
                    scope.spawn(|| {
                        loop {
                            let pod = next.fetch_add(1, Ordering::Relaxed);
                            if pod >= range.end {
                                return;
                            }
                            let result = work(pod);
                            done.lock().unwrap().push(result);
                        }
                    });
                }
            });
        });
        done.into_inner().unwrap()
    }
}

fn code(answer: &Answer) -> u64 {
    let error: Value = serde_json::from_str(&answer.stdout).unwrap_or_default();
    error["code"].as_u64().unwrap_or_default()
}
