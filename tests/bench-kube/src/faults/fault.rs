// SPDX-License-Identifier: Apache-2.0
//! The faults. Each starts pods, disturbs them, and ends them.

use crate::NODES;
use crate::bed::{Bed, Pod};
use crate::subject::Subject;
use apiserver::Server;
use bench_kube::call::{Call, Done, at_once};
use std::time::Duration;

/// How long the API server is away: longer than a DEL of whereabouts waits for it.
const AWAY: Duration = Duration::from_secs(75);

/// The time until an agent has reported the addresses in use: its interval of 30 s, and some more.
const REPORTED: Duration = Duration::from_secs(40);

/// A fault.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    AddKilled,
    AddKilledWithRuntime,
    DelKilled,
    ServerHangs,
    ServerAway,
    DelLost,
    Replaced,
    NodeDeleted,
    NodeDeletedUnreported,
}

impl Fault {
    pub(crate) const ALL: [Self; 9] = [
        Self::Replaced,
        Self::ServerAway,
        Self::DelKilled,
        Self::DelLost,
        Self::AddKilled,
        Self::AddKilledWithRuntime,
        Self::ServerHangs,
        // The last ones, because the nodes do not return.
        Self::NodeDeleted,
        Self::NodeDeletedUnreported,
    ];

    /// Its name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AddKilled => "kill -9 of ADD; DEL follows",
            Self::AddKilledWithRuntime => "kill -9 of ADD; no DEL follows",
            Self::DelKilled => "kill -9 of DEL; DEL is repeated",
            Self::ServerHangs => "the API server hangs during ADD and DEL",
            Self::ServerAway => "the API server is away for 75 s during DEL",
            Self::DelLost => "no DEL",
            Self::Replaced => "a pod is replaced on another node while its old sandbox runs",
            Self::NodeDeleted => "a Node with pods is deleted, and its machine answers no more",
            Self::NodeDeletedUnreported => {
                "the same; agent and control loop of this node had ended before its pods started"
            }
        }
    }

    /// Injects the fault for `count` pods. No pod is left afterwards.
    pub(crate) async fn inject<S: Subject>(self, bed: &mut Bed<'_, S>, count: usize) {
        if matches!(self, Self::ServerAway) {
            // The other side may have just ended its outage.
            bed.await_cleaners().await;
        }
        let doomed = match self {
            Self::NodeDeleted | Self::NodeDeletedUnreported => bed.doomed.pop(),
            _ => None,
        };
        let mut pods = Vec::new();
        for i in 0..count {
            pods.push(bed.create(doomed.unwrap_or(i % NODES)).await);
        }
        if let (Self::NodeDeletedUnreported, Some(node)) = (self, doomed) {
            // The last report is that no address is in use.
            tokio::time::sleep(REPORTED).await;
            bed.subject.stop(node).await;
        }
        match self {
            Self::AddKilled | Self::AddKilledWithRuntime => self.kill_adds(bed, &mut pods).await,
            Self::ServerHangs => hang(bed, &mut pods).await,
            _ => {
                for pod in &mut pods {
                    bed.start(pod).await;
                }
            }
        }
        self.disturb(bed, &mut pods).await;
        if let Some(node) = doomed {
            bed.lose(node, &pods).await;
        }
        for pod in &pods {
            bed.remove(pod).await;
        }
    }

    /// Disturbs and ends pods that have started.
    async fn disturb<S: Subject>(self, bed: &mut Bed<'_, S>, pods: &mut [Pod]) {
        match self {
            Self::DelKilled => {
                for pod in &*pods {
                    bed.die(pod);
                    bed.kill("DEL", pod);
                    bed.del(pod);
                }
            }
            Self::ServerAway => away(bed, pods),
            Self::DelLost => {
                for pod in &*pods {
                    bed.die(pod);
                    bed.unmount(pod);
                }
            }
            Self::Replaced => replace(bed, pods).await,
            Self::NodeDeleted => tokio::time::sleep(REPORTED).await,
            Self::AddKilled
            | Self::AddKilledWithRuntime
            | Self::ServerHangs
            | Self::NodeDeletedUnreported => {}
        }
    }

    /// Kills each ADD. Then either DEL and another sandbox follow, or the pod is gone.
    async fn kill_adds<S: Subject>(self, bed: &mut Bed<'_, S>, pods: &mut [Pod]) {
        for pod in pods {
            if let Some(answer) = bed.kill("ADD", pod).filter(|answer| answer.succeeded) {
                bed.started(pod, &answer).await;
            } else if matches!(self, Self::AddKilled) {
                bed.del(pod);
                pod.sandbox.push_str("-next");
                bed.start(pod).await;
            }
            if matches!(self, Self::AddKilled) {
                bed.del(pod);
            } else {
                bed.die(pod);
                bed.unmount(pod);
            }
        }
    }
}

/// All ADDs at once, then all DELs at once, while the API server hangs three times for up to 4 s.
async fn hang<S: Subject>(bed: &mut Bed<'_, S>, pods: &mut [Pod]) {
    let server = bed.server;
    let adds = calls(bed, "ADD", pods);
    let waits = waits(bed);
    let done = with(server, &adds, move |server| hangs(server, waits));
    for (pod, answer) in pods.iter_mut().zip(&done.answers) {
        if answer.succeeded {
            bed.started(pod, answer).await;
        } else {
            bed.failed(pod);
            bed.start(pod).await;
        }
    }
    for pod in &*pods {
        bed.die(pod);
    }
    let dels = calls(bed, "DEL", pods);
    let waits = self::waits(bed);
    let done = with(server, &dels, move |server| hangs(server, waits));
    for (pod, answer) in pods.iter().zip(&done.answers) {
        if !answer.succeeded {
            bed.del(pod);
        }
        bed.unmount(pod);
    }
}

/// All DELs at once, while the API server does not run.
fn away<S: Subject>(bed: &mut Bed<'_, S>, pods: &[Pod]) {
    for pod in pods {
        bed.die(pod);
    }
    let dels = calls(bed, "DEL", pods);
    let server = bed.server;
    server.kill();
    let done = with(server, &dels, |server| {
        std::thread::sleep(AWAY);
        server.start_again();
    });
    for (pod, answer) in pods.iter().zip(&done.answers) {
        if !answer.succeeded {
            bed.del(pod);
        }
        bed.unmount(pod);
    }
}

/// Each pod is deleted by force and starts again under its name on the next node. Then the DEL of its old sandbox comes.
async fn replace<S: Subject>(bed: &mut Bed<'_, S>, pods: &mut [Pod]) {
    let mut new = Vec::new();
    for pod in &*pods {
        bed.remove(pod).await;
        let next = (pod.node + 1) % NODES;
        let mut again = bed.create_named(pod.name.clone(), next).await;
        bed.start(&mut again).await;
        new.push(again);
    }
    for (pod, again) in pods.iter_mut().zip(new) {
        bed.del(pod);
        bed.del(&again);
        *pod = again;
    }
}

fn calls<S: Subject>(bed: &Bed<'_, S>, verb: &'static str, pods: &[Pod]) -> Vec<Call> {
    pods.iter().map(|pod| bed.call(verb, pod)).collect()
}

/// Runs all calls at once, and `fault` beside them. Ends when both have ended.
fn with(server: &Server, calls: &[Call], fault: impl FnOnce(&Server) + Send) -> Done {
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let fault = scope.spawn(|| fault(server));
            let done = at_once(calls);
            fault.join().unwrap();
            done
        })
    })
}

/// Three times: how long the API server answers, and how long it hangs then.
fn waits<S>(bed: &mut Bed<'_, S>) -> [(Duration, Duration); 3] {
    let mut next = |most| Duration::from_millis(bed.random.u64(0..most));
    std::array::from_fn(|_| (next(1000), next(4000)))
}

fn hangs(server: &Server, waits: [(Duration, Duration); 3]) {
    for (answers, hangs) in waits {
        std::thread::sleep(answers);
        server.freeze();
        std::thread::sleep(hangs);
        server.resume();
    }
}
