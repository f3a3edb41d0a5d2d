// SPDX-License-Identifier: Apache-2.0
//! The pods of a side: their objects, their namespaces, and the addresses of those that live.

use crate::NODES;
use crate::subject::Subject;
use apiserver::install::until;
use apiserver::{Server, objects};
use bench_kube::call::{Answer, Call, killed_after, run};
use bench_kube::nodes;
use bench_kube::sides::{NETWORK, Sandbox, Side};
use bench_kube::tally::Tally;
use fastrand::Rng;
use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The number of ADDs after which a pod stays without an address.
const TRIES: u32 = 4;

/// How long DEL is repeated. A DEL that fails for longer is an error of the bench.
const REPEATED: Duration = Duration::from_secs(300);

/// How long the cleaners get to remove what a pod without DEL left: the agents need two observations that are up to 30 s
/// apart.
const CLEANED: Duration = Duration::from_secs(60);

/// A pod and its last sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) node: usize,
    pub(crate) sandbox: String,
}

/// The pods of a side.
pub(crate) struct Bed<'s, S> {
    pub(crate) subject: &'s S,
    pub(crate) server: &'s Server,
    pub(crate) random: Rng,
    /// The nodes that this side will lose.
    pub(crate) doomed: Vec<usize>,
    pub(crate) tally: Tally,
    /// Pods that got no address.
    pub(crate) without: usize,
    admin: Client,
    /// The directory of the network namespaces, which are plain files here.
    namespaces: PathBuf,
    counter: usize,
    /// The time of an undisturbed ADD and DEL.
    usual: [Duration; 2],
}

impl<'s, S: Subject> Bed<'s, S> {
    /// A side without pods. Measures the times of its calls, so that a kill hits the middle of a call.
    pub(crate) async fn new(
        server: &'s Server,
        subject: &'s S,
        dir: &Path,
        (seed, doomed): (u64, Vec<usize>),
    ) -> Self {
        let namespaces = dir.join(format!("netns-{}", subject.side().title().replace(' ', "-")));
        std::fs::create_dir_all(&namespaces).unwrap();
        let mut bed = Self {
            subject,
            server,
            random: Rng::with_seed(seed),
            doomed,
            tally: Tally::default(),
            without: 0,
            admin: bench_kube::agents::admin(server).await,
            namespaces,
            counter: 0,
            usual: [Duration::ZERO; 2],
        };
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..5 {
            let mut pod = bed.create(0).await;
            let begun = Instant::now();
            bed.start(&mut pod).await;
            times[0].push(begun.elapsed());
            let begun = Instant::now();
            bed.del(&pod);
            times[1].push(begun.elapsed());
            bed.remove(&pod).await;
        }
        for (usual, mut times) in bed.usual.iter_mut().zip(times) {
            times.sort_unstable();
            *usual = times[2];
        }
        bed
    }

    /// Creates the object of a new pod on a node.
    pub(crate) async fn create(&mut self, node: usize) -> Pod {
        self.counter += 1;
        let kind = self.subject.side().title().split(' ').next().unwrap();
        let name = format!("{kind}-{}", self.counter);
        self.create_named(name, node).await
    }

    /// Creates the object of a pod with this name.
    pub(crate) async fn create_named(&self, name: String, node: usize) -> Pod {
        let pod = objects::pod(&json!({ "name": name }), &nodes::name(node));
        objects::create(&self.objects(), pod).await;
        let sandbox = format!("{name}-on-{node}");
        Pod { name, node, sandbox }
    }

    fn objects(&self) -> Api<PodObject> {
        Api::namespaced(self.admin.clone(), "default")
    }

    /// The call for a pod's sandbox.
    pub(crate) fn call(&self, verb: &'static str, pod: &Pod) -> Call {
        let netns = self.namespaces.join(&pod.sandbox);
        if verb == "ADD" {
            std::fs::write(&netns, "").unwrap();
        }
        let sandbox = Sandbox {
            node: pod.node,
            pod: &pod.name,
            id: &pod.sandbox,
        };
        Call {
            netns: Some(netns),
            ..self.subject.side().call(verb, sandbox)
        }
    }

    /// Starts a pod. After an error it calls DEL, and ADD for another sandbox.
    pub(crate) async fn start(&mut self, pod: &mut Pod) {
        for _ in 0..TRIES {
            let call = self.call("ADD", pod);
            let answer = tokio::task::block_in_place(|| run(&call));
            if answer.succeeded {
                return self.started(pod, &answer).await;
            }
            self.failed(pod);
        }
        self.without += 1;
    }

    /// Ends the sandbox of an ADD without a result. The pod gets another sandbox.
    pub(crate) fn failed(&mut self, pod: &mut Pod) {
        self.del(pod);
        pod.sandbox.push_str("-again");
    }

    /// Records the address of a pod, and writes it into the object as Multus does.
    pub(crate) async fn started(&mut self, pod: &Pod, answer: &Answer) {
        let text = answer.address();
        let address: IpAddr = text.split('/').next().unwrap().parse().unwrap();
        self.tally.start(&pod.sandbox, address);
        let status = json!([{ "name": format!("default/{NETWORK}"), "interface": "net1", "ips": [address] }]);
        let annotation = json!({ "k8s.v1.cni.cncf.io/network-status": status.to_string() });
        let change = Patch::Merge(json!({ "metadata": { "annotations": annotation } }));
        self.objects()
            .patch(&pod.name, &PatchParams::default(), &change)
            .await
            .unwrap();
    }

    /// Kills a call at a random moment of its usual time. `None` if it was killed.
    pub(crate) fn kill(&mut self, verb: &'static str, pod: &Pod) -> Option<Answer> {
        let usual = self.usual[usize::from(verb == "DEL")];
        let after = usual.mul_f64(1.1 * self.random.f64());
        let call = self.call(verb, pod);
        tokio::task::block_in_place(|| killed_after(&call, after))
    }

    /// Ends the living sandbox: its address may be allocated again.
    pub(crate) fn die(&mut self, pod: &Pod) {
        self.tally.end(&pod.sandbox);
    }

    /// Ends a sandbox with DEL.
    pub(crate) fn del(&mut self, pod: &Pod) {
        self.die(pod);
        let call = self.call("DEL", pod);
        let begun = Instant::now();
        while !tokio::task::block_in_place(|| run(&call)).succeeded {
            assert!(begun.elapsed() < REPEATED, "DEL of {} fails", pod.sandbox);
            std::thread::sleep(Duration::from_secs(1));
        }
        self.unmount(pod);
    }

    /// Waits until the cleaners of all nodes work: each removes what a pod without DEL left. After an outage a client watches
    /// again only when its backoff ends, and it never sees a pod that was created and deleted before that.
    pub(crate) async fn await_cleaners(&mut self) {
        for _ in 0..TRIES {
            for node in 0..NODES {
                let mut pod = self.create(node).await;
                self.start(&mut pod).await;
                self.die(&pod);
                self.unmount(&pod);
                self.remove(&pod).await;
            }
            if self.leaks(CLEANED).await.is_empty() {
                return;
            }
            self.subject.clean().await;
        }
        panic!("{}: the cleaners do not work", self.subject.side().title());
    }

    /// Removes the network namespace.
    pub(crate) fn unmount(&self, pod: &Pod) {
        let _ = std::fs::remove_file(self.namespaces.join(&pod.sandbox));
    }

    /// Deletes the object.
    pub(crate) async fn remove(&self, pod: &Pod) {
        let now = DeleteParams::default().grace_period(0);
        // The first request after a restart of the API server may fail.
        until("the pod is deleted", async || {
            match self.objects().delete(&pod.name, &now).await {
                Err(kube::Error::Api(status)) => status.code == 404,
                deleted => deleted.is_ok(),
            }
        })
        .await;
    }

    /// The leaked addresses, when there are none or after `limit`.
    pub(crate) async fn leaks(&self, limit: Duration) -> BTreeSet<IpAddr> {
        let begun = Instant::now();
        loop {
            let leaks = self.tally.leaks(&self.subject.recorded().await);
            if leaks.is_empty() || begun.elapsed() >= limit {
                return leaks;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Ends what runs on a node with these pods, and deletes its Node object.
    pub(crate) async fn lose(&mut self, node: usize, pods: &[Pod]) {
        self.subject.stop(node).await;
        self.subject.delete(node).await;
        for pod in pods {
            self.tally.lose(&pod.sandbox);
        }
    }
}
