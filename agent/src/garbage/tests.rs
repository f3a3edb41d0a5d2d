// SPDX-License-Identifier: Apache-2.0
//! An agent with a scripted API server, a scripted collector and a real store of leases.

use super::*;
use crate::config::Config;
use api::http::Health;
use api::testing::scripted_clients;
use clap::{Args as _, FromArgMatches};
use common::cni::dispatch::{Call, Plugin};
use common::cni::{Args, Attachment, Conf};
use common::collector::{DeadAttachment, PodId, Reply, Request};
use ipam::RdmaIpam;
use kube::runtime::reflector::store;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::sync::mpsc::unbounded_channel;

/// What the API server and the collector answer.
#[derive(Default)]
struct World {
    /// The UIDs of the pods of namespace `default`, by name.
    pods: HashMap<String, String>,
    /// The API server answers 503.
    away: bool,
    /// The requests for pods.
    asked: Vec<String>,
    dead: Vec<DeadAttachment>,
    /// The answer to a request to collect; none is [`Reply::Collected`].
    refuses: Option<Reply>,
    collected: Vec<String>,
}

struct Rig {
    world: Arc<Mutex<World>>,
    agent: Arc<Agent>,
    garbage: Garbage,
    dir: TempDir,
}

/// A time between two observations that proves something.
const OBSERVE: Duration = Duration::from_millis(300);

fn pod_answer(world: &mut World, uri: &str) -> (u16, Value) {
    world.asked.push(uri.to_owned());
    if world.away {
        return (503, json!({ "kind": "Status", "code": 503, "status": "Failure" }));
    }
    let name = uri.rsplit('/').next().unwrap().to_owned();
    match world.pods.get(&name) {
        Some(uid) => (
            200,
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default", "uid": uid } }),
        ),
        None => (
            404,
            json!({ "kind": "Status", "code": 404, "reason": "NotFound", "status": "Failure" }),
        ),
    }
}

/// Serves one request after the other, as the collector of a node does.
fn collector(socket: &Path, world: Arc<Mutex<World>>) {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            let reply = collector_answer(&mut world.lock().unwrap(), serde_json::from_str(&line).unwrap());
            let text = format!("{}\n", serde_json::to_string(&reply).unwrap());
            stream.write_all(text.as_bytes()).await.unwrap();
        }
    });
}

fn collector_answer(world: &mut World, request: Request) -> Reply {
    match request {
        Request::List => Reply::Dead(world.dead.clone()),
        Request::Collect(dead) => world.refuses.clone().unwrap_or_else(|| {
            world.collected.push(dead.pod.name.clone());
            world.dead.retain(|other| *other != dead);
            Reply::Collected
        }),
    }
}

impl Rig {
    fn new() -> Self {
        let rig = Self::without_collector();
        collector(&rig.dir.path().join("collector.sock"), rig.world.clone());
        rig
    }

    fn without_collector() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let world = Arc::new(Mutex::new(World::default()));
        let observe = format!("{}ms", OBSERVE.as_millis());
        let (data, socket) = (dir.path().join("data"), dir.path().join("collector.sock"));
        let words = [
            "agent",
            "--node",
            "n",
            "--observation-interval",
            &observe,
            "--data-dir",
            data.to_str().unwrap(),
            "--collector",
            socket.to_str().unwrap(),
        ];
        let command = Config::augment_args(clap::Command::new("agent"));
        let config = Config::from_arg_matches(&command.get_matches_from(words)).unwrap();
        let seen = world.clone();
        let clients = scripted_clients(move |uri| pod_answer(&mut seen.lock().unwrap(), uri));
        let agent = Arc::new(Agent::new(
            config,
            clients,
            store().0,
            store().0,
            unbounded_channel().0,
        ));
        Self {
            garbage: Garbage::new(agent.clone()),
            world,
            agent,
            dir,
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Two rounds that are far enough apart to prove something.
    async fn two_rounds(&mut self) {
        self.garbage.round().await;
        tokio::time::sleep(OBSERVE).await;
        self.garbage.round().await;
    }

    /// ADD of a pod's interface in a network with ranges. The namespace of the sandbox gets a path of its own.
    fn add(&self, container: &str, args: &str) {
        let netns = self.netns(container);
        symlink("/proc/self/ns/net", &netns).unwrap();
        let conf = json!({
            "cniVersion": "1.1.0", "name": "rail0", "type": "cni-ipoib",
            "ipam": { "type": "rdma-ipam", "dataDir": self.dir.path().join("data"),
                "ranges": [[{ "subnet": "10.9.0.0/24" }]] },
        });
        let call = Call {
            program: "rdma-ipam".to_owned(),
            conf: Conf::read(conf.to_string().as_bytes()).unwrap(),
            args: Args::parse(args).unwrap(),
            args_text: args.to_owned(),
            path: Vec::new(),
            netns_override: false,
        };
        RdmaIpam::default().add(&call, &of(container), &netns).unwrap();
    }

    fn netns(&self, container: &str) -> std::path::PathBuf {
        self.dir.path().join(format!("netns-{container}"))
    }

    /// The sandbox ends without DEL.
    fn die(&self, container: &str) {
        std::fs::remove_file(self.netns(container)).unwrap();
    }

    /// The containers that have leases.
    async fn leases(&self) -> Vec<String> {
        let all = self
            .agent
            .stores
            .with_ranges("rail0", |store| Ok(store.leases()?.intact))
            .await;
        let stored = all.unwrap().into_iter();
        let mut stored: Vec<String> = stored
            .map(|stored| stored.lease.owner.container_id.to_string())
            .collect();
        stored.sort();
        stored
    }

    fn says(&self, line: &str) -> bool {
        self.agent.metrics().lines().any(|there| there == line)
    }
}

fn of(container: &str) -> Attachment {
    Attachment {
        container_id: container.parse().unwrap(),
        ifname: "net1".parse().unwrap(),
    }
}

fn args(pod: &str) -> String {
    format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod};K8S_POD_UID=uid-{pod}")
}

fn dead(pod: &str) -> DeadAttachment {
    DeadAttachment {
        network: "rail0".to_owned(),
        attachment: of(pod),
        netns_id: (4, 7),
        pod: PodId {
            namespace: "default".to_owned(),
            name: pod.to_owned(),
            uid: format!("uid-{pod}"),
        },
        replaced: false,
    }
}

#[tokio::test]
async fn an_attachment_is_collected_after_two_observations_without_its_pod() {
    let mut rig = Rig::new();
    rig.world().dead = vec![dead("one")];
    rig.garbage.round().await;
    rig.garbage.round().await;
    assert_eq!(
        rig.world().collected,
        [""; 0],
        "both observations were one moment"
    );
    tokio::time::sleep(OBSERVE).await;
    rig.garbage.round().await;
    assert_eq!(rig.world().collected, ["one"]);
    assert!(rig.says("rdmanet_garbage_collected_total{kind=\"attachment\"} 1"));
    assert!(rig.says("rdmanet_garbage_left 0"));
}

#[tokio::test]
async fn the_attachment_of_a_pod_that_the_api_server_has_is_kept() {
    let mut rig = Rig::new();
    rig.world().dead = vec![dead("one"), dead("two")];
    rig.world().pods = HashMap::from([("one".to_owned(), "uid-one".to_owned())]);
    rig.two_rounds().await;
    assert_eq!(rig.world().collected, ["two"]);
    // The name passed to another pod, as in a StatefulSet.
    rig.world().pods = HashMap::from([("one".to_owned(), "uid-other".to_owned())]);
    rig.two_rounds().await;
    assert_eq!(rig.world().collected, ["two", "one"]);
}

/// A cold cache of the API server may lack the object of a living pod.
#[tokio::test]
async fn pods_are_read_past_every_cache() {
    let mut rig = Rig::new();
    rig.world().dead = vec![dead("one")];
    rig.two_rounds().await;
    let asked = rig.world().asked.clone();
    assert!(!asked.is_empty());
    for uri in asked {
        assert!(uri.ends_with("/api/v1/namespaces/default/pods/one"), "{uri}");
    }
}

#[tokio::test]
async fn nothing_is_collected_while_the_api_server_is_away() {
    let mut rig = Rig::new();
    rig.add("one", &args("one"));
    rig.die("one");
    rig.world().dead = vec![dead("one")];
    rig.world().away = true;
    rig.two_rounds().await;
    assert_eq!(rig.world().collected, [""; 0]);
    assert_eq!(rig.leases().await, ["one"]);
    rig.world().away = false;
    rig.two_rounds().await;
    assert_eq!(rig.world().collected, ["one"]);
    assert_eq!(rig.leases().await, [""; 0]);
}

#[tokio::test]
async fn an_attachment_that_reappears_alive_is_suspected_anew() {
    let mut rig = Rig::new();
    rig.world().dead = vec![dead("one")];
    rig.garbage.round().await;
    rig.world().dead = Vec::new();
    tokio::time::sleep(OBSERVE).await;
    rig.garbage.round().await;
    rig.world().dead = vec![dead("one")];
    rig.garbage.round().await;
    assert_eq!(rig.world().collected, [""; 0]);
}

#[tokio::test]
async fn an_attachment_that_cannot_be_removed_is_counted_and_tried_again() {
    let mut rig = Rig::new();
    rig.world().dead = vec![dead("one")];
    rig.world().refuses = Some(Reply::Failed("ib0 did not come back".to_owned()));
    rig.two_rounds().await;
    assert!(rig.says("rdmanet_garbage_left 1"));
    rig.world().refuses = None;
    rig.garbage.round().await;
    assert_eq!(rig.world().collected, ["one"]);
    assert!(rig.says("rdmanet_garbage_left 0"));
}

#[tokio::test]
async fn leases_of_ranges_are_released_on_a_node_without_a_collector() {
    let mut rig = Rig::without_collector();
    for pod in ["one", "two", "three"] {
        rig.add(pod, &args(pod));
    }
    rig.world().pods = HashMap::from([("two".to_owned(), "uid-two".to_owned())]);
    rig.die("one");
    rig.die("two");
    rig.garbage.round().await;
    rig.garbage.round().await;
    assert_eq!(rig.leases().await.len(), 3, "both observations were one moment");
    tokio::time::sleep(OBSERVE).await;
    rig.garbage.round().await;
    // Pod two exists, and the namespace of pod three exists.
    assert_eq!(rig.leases().await, ["three", "two"]);
    assert!(rig.says("rdmanet_garbage_collected_total{kind=\"lease\"} 1"));
}

#[tokio::test]
async fn a_lease_without_a_pod_is_never_released() {
    let mut rig = Rig::without_collector();
    rig.add("cnitool", "");
    rig.add("nameless", "K8S_POD_NAMESPACE=default;K8S_POD_NAME=one");
    rig.die("cnitool");
    rig.die("nameless");
    rig.two_rounds().await;
    assert_eq!(rig.leases().await, ["cnitool", "nameless"]);
    assert_eq!(rig.world().asked, [""; 0]);
}

#[tokio::test]
async fn the_lease_of_an_old_sandbox_is_released_while_its_pod_lives() {
    let mut rig = Rig::without_collector();
    rig.add("old", &args("one"));
    rig.world().pods = HashMap::from([("one".to_owned(), "uid-one".to_owned())]);
    rig.die("old");
    rig.two_rounds().await;
    assert_eq!(rig.leases().await, ["old"], "its DEL may still come");
    rig.add("new", &args("one"));
    rig.two_rounds().await;
    assert_eq!(rig.leases().await, ["new"]);
}

#[tokio::test]
async fn a_namespace_that_the_agent_cannot_see_proves_nothing() {
    let mut rig = Rig::without_collector();
    rig.add("one", &args("one"));
    rig.die("one");
    // As where the runtime mounted it and the mount did not reach this container.
    std::fs::write(rig.netns("one"), "").unwrap();
    rig.two_rounds().await;
    assert_eq!(rig.leases().await, ["one"]);
}
