// SPDX-License-Identifier: Apache-2.0
//! An agent with a scripted API server, a scripted collector and a real store of leases.

use super::*;
use crate::config::Config;
use api::http::Health;
use api::testing::scripted_clients;
use clap::{Args as _, FromArgMatches};
use common::cni::dispatch::{Call, Plugin};
use common::cni::{Args, Attachment, Conf, Reader};
use common::collector::{DeadAttachment, PodId, Reply, Request};
use common::mutate::Random;
use ipam::RdmaIpam;
use kube::runtime::reflector::store;
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::sync::mpsc::unbounded_channel;

/// What the API server and the collector answer.
#[derive(Default)]
struct Script {
    /// The UIDs of the pods of namespace `default`, by name.
    pods: HashMap<String, String>,
    /// The phase of each pod.
    phase: Option<&'static str>,
    /// The API server answers 503.
    unavailable: bool,
    /// It answers 503 to a request for this pod.
    unanswered: Option<String>,
    /// The requests for pods.
    asked: Vec<String>,
    dead: Vec<DeadAttachment>,
    /// The answer to a request to collect; none is [`Reply::Collected`].
    refuses: Option<Reply>,
    collected: Vec<String>,
}

struct Fixture {
    script: Arc<Mutex<Script>>,
    agent: Arc<Agent>,
    garbage: Garbage,
    dir: TempDir,
}

/// A time between two observations that proves something.
const OBSERVE: Duration = Duration::from_secs(1);

/// A time between two observations that no test reaches.
const NEVER: Duration = Duration::from_secs(3600);

fn pod_answer(script: &mut Script, uri: &str) -> (u16, Value) {
    script.asked.push(uri.to_owned());
    let name = uri.rsplit('/').next().unwrap().to_owned();
    if script.unavailable || script.unanswered.as_ref() == Some(&name) {
        return (503, json!({ "kind": "Status", "code": 503, "status": "Failure" }));
    }
    match script.pods.get(&name) {
        Some(uid) => {
            let metadata = json!({ "name": name, "namespace": "default", "uid": uid });
            let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": { "phase": script.phase } });
            (200, pod)
        }
        None => (
            404,
            json!({ "kind": "Status", "code": 404, "reason": "NotFound", "status": "Failure" }),
        ),
    }
}

/// Serves one request after the other, as the collector of a node does.
fn collector(socket: &Path, script: Arc<Mutex<Script>>) {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            let reply = collector_answer(&mut script.lock().unwrap(), serde_json::from_str(&line).unwrap());
            let text = format!("{}\n", serde_json::to_string(&reply).unwrap());
            stream.write_all(text.as_bytes()).await.unwrap();
        }
    });
}

fn collector_answer(script: &mut Script, request: Request) -> Reply {
    match request {
        Request::List => Reply::Dead(script.dead.clone()),
        Request::Collect { dead, .. } => script.refuses.clone().unwrap_or_else(|| {
            script.collected.push(dead.pod.name.clone());
            script.dead.retain(|other| *other != dead);
            Reply::Collected
        }),
    }
}

impl Fixture {
    fn new() -> Self {
        Self::without_collector().with_collector()
    }

    fn with_collector(self) -> Self {
        collector(&self.dir.path().join("collector.sock"), self.script.clone());
        self
    }

    fn without_collector() -> Self {
        Self::observing(OBSERVE)
    }

    /// An agent without a collector, to which two observations `interval` apart prove something.
    fn observing(interval: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = Arc::new(Mutex::new(Script::default()));
        let observe = format!("{}ms", interval.as_millis());
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
        let seen = script.clone();
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
            script,
            agent,
            dir,
        }
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
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
            reader: Reader::PRESENT,
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

    fn has_metric(&self, line: &str) -> bool {
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
    let mut patient = Fixture::observing(NEVER).with_collector();
    patient.script().dead = vec![dead("one")];
    patient.garbage.round().await;
    patient.garbage.round().await;
    assert_eq!(
        patient.script().collected,
        [""; 0],
        "both observations were one moment"
    );
    let mut fixture = Fixture::new();
    fixture.script().dead = vec![dead("one")];
    fixture.two_rounds().await;
    assert_eq!(fixture.script().collected, ["one"]);
    assert!(fixture.has_metric("rdmanet_garbage_collected_total{kind=\"attachment\"} 1"));
    assert!(fixture.has_metric("rdmanet_garbage_left 0"));
}

#[tokio::test]
async fn the_attachment_of_a_pod_that_the_api_server_has_is_kept() {
    let mut fixture = Fixture::new();
    fixture.script().dead = vec![dead("one"), dead("two")];
    fixture.script().pods = HashMap::from([("one".to_owned(), "uid-one".to_owned())]);
    fixture.two_rounds().await;
    assert_eq!(fixture.script().collected, ["two"]);
    // The name passed to another pod, as in a StatefulSet.
    fixture.script().pods = HashMap::from([("one".to_owned(), "uid-other".to_owned())]);
    fixture.two_rounds().await;
    assert_eq!(fixture.script().collected, ["two", "one"]);
}

/// A cold cache of the API server may lack the object of a living pod.
#[tokio::test]
async fn pods_are_read_past_every_cache() {
    let mut fixture = Fixture::new();
    fixture.script().dead = vec![dead("one")];
    fixture.two_rounds().await;
    let asked = fixture.script().asked.clone();
    assert!(!asked.is_empty());
    for uri in asked {
        assert!(uri.ends_with("/api/v1/namespaces/default/pods/one"), "{uri}");
    }
}

#[tokio::test]
async fn nothing_is_collected_while_the_api_server_is_away() {
    let mut fixture = Fixture::new();
    fixture.add("one", &args("one"));
    fixture.die("one");
    fixture.script().dead = vec![dead("one")];
    fixture.script().unavailable = true;
    fixture.two_rounds().await;
    assert_eq!(fixture.script().collected, [""; 0]);
    assert_eq!(fixture.leases().await, ["one"]);
    fixture.script().unavailable = false;
    fixture.two_rounds().await;
    assert_eq!(fixture.script().collected, ["one"]);
    assert_eq!(fixture.leases().await, [""; 0]);
}

#[tokio::test]
async fn an_attachment_that_reappears_alive_is_suspected_anew() {
    let mut fixture = Fixture::new();
    fixture.script().dead = vec![dead("one")];
    fixture.garbage.round().await;
    fixture.script().dead = Vec::new();
    tokio::time::sleep(OBSERVE).await;
    fixture.garbage.round().await;
    fixture.script().dead = vec![dead("one")];
    fixture.garbage.round().await;
    assert_eq!(fixture.script().collected, [""; 0]);
}

/// The first round suspects pod one, the second one finds it and then fails, the third one does not find it again.
#[tokio::test]
async fn a_round_that_fails_ends_the_suspicions_that_it_did_not_confirm() {
    let mut fixture = Fixture::new();
    for pod in ["one", "two"] {
        fixture.add(pod, &args(pod));
        fixture.die(pod);
    }
    fixture.script().dead = vec![dead("one"), dead("two")];
    fixture.garbage.round().await;
    tokio::time::sleep(OBSERVE).await;
    fixture.script().pods = HashMap::from([("one".to_owned(), "uid-one".to_owned())]);
    fixture.script().unanswered = Some("two".to_owned());
    fixture.garbage.round().await;
    fixture.script().pods.clear();
    fixture.script().unanswered = None;
    fixture.garbage.round().await;
    assert_eq!(fixture.script().collected, [""; 0]);
    assert_eq!(fixture.leases().await, ["one", "two"]);
}

/// A node whose collector could not remove an attachment.
async fn one_attachment_left() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.script().dead = vec![dead("one")];
    fixture.script().refuses = Some(Reply::Failed("ib0 did not come back".to_owned()));
    fixture.two_rounds().await;
    assert!(fixture.has_metric("rdmanet_garbage_left 1"));
    fixture
}

#[tokio::test]
async fn an_attachment_that_cannot_be_removed_is_counted_and_tried_again() {
    let mut fixture = one_attachment_left().await;
    fixture.script().refuses = None;
    fixture.garbage.round().await;
    assert_eq!(fixture.script().collected, ["one"]);
    assert!(fixture.has_metric("rdmanet_garbage_left 0"));
}

/// What a collector that is gone could not remove may be gone too.
#[tokio::test]
async fn nothing_counts_as_left_while_no_collector_answers() {
    let mut fixture = one_attachment_left().await;
    std::fs::remove_file(fixture.dir.path().join("collector.sock")).unwrap();
    fixture.garbage.round().await;
    assert!(fixture.has_metric("rdmanet_garbage_left 0"));
}

/// A cluster may leave the collector out.
#[tokio::test]
async fn a_collector_that_stops_answering_is_reported() {
    let mut fixture = Fixture::without_collector();
    fixture.garbage.round().await;
    assert!(!fixture.agent.metrics().contains("rdmanet_collector_up{"));
    let mut fixture = fixture.with_collector();
    fixture.garbage.round().await;
    assert!(fixture.has_metric("rdmanet_collector_up{} 1"));
    let socket = fixture.dir.path().join("collector.sock");
    std::fs::remove_file(socket).unwrap();
    fixture.garbage.round().await;
    assert!(fixture.has_metric("rdmanet_collector_up{} 0"));
    let mut fixture = fixture.with_collector();
    fixture.garbage.round().await;
    assert!(fixture.has_metric("rdmanet_collector_up{} 1"));
}

#[tokio::test]
async fn a_collector_that_has_never_answered_is_reported_while_it_listens() {
    let mut fixture = Fixture::without_collector();
    let listener = UnixListener::bind(fixture.dir.path().join("collector.sock")).unwrap();
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    fixture.garbage.round().await;
    assert!(fixture.has_metric("rdmanet_collector_up{} 0"));
}

#[tokio::test]
async fn leases_of_ranges_are_released_on_a_node_without_a_collector() {
    let (mut patient, mut fixture) = (Fixture::observing(NEVER), Fixture::without_collector());
    for fixture in [&patient, &fixture] {
        for pod in ["one", "two", "three"] {
            fixture.add(pod, &args(pod));
        }
        fixture.script().pods = HashMap::from([("two".to_owned(), "uid-two".to_owned())]);
        fixture.die("one");
        fixture.die("two");
    }
    patient.garbage.round().await;
    patient.garbage.round().await;
    assert_eq!(
        patient.leases().await.len(),
        3,
        "both observations were one moment"
    );
    fixture.two_rounds().await;
    // Pod two exists, and the namespace of pod three exists.
    assert_eq!(fixture.leases().await, ["three", "two"]);
    assert!(fixture.has_metric("rdmanet_garbage_collected_total{kind=\"lease\"} 1"));
}

#[tokio::test]
async fn a_lease_without_a_pod_is_never_released() {
    let mut fixture = Fixture::without_collector();
    fixture.add("cnitool", "");
    fixture.add("nameless", "K8S_POD_NAMESPACE=default;K8S_POD_NAME=one");
    fixture.die("cnitool");
    fixture.die("nameless");
    fixture.two_rounds().await;
    assert_eq!(fixture.leases().await, ["cnitool", "nameless"]);
    assert_eq!(fixture.script().asked, [""; 0]);
}

#[tokio::test]
async fn the_lease_of_an_old_sandbox_is_released_while_its_pod_lives() {
    let mut fixture = Fixture::without_collector();
    fixture.add("old", &args("one"));
    fixture.script().pods = HashMap::from([("one".to_owned(), "uid-one".to_owned())]);
    fixture.die("old");
    fixture.two_rounds().await;
    assert_eq!(fixture.leases().await, ["old"], "its DEL may still come");
    fixture.add("new", &args("one"));
    fixture.two_rounds().await;
    assert_eq!(fixture.leases().await, ["new"]);
}

/// The object of a finished Job's pod stays for days, and the kubelet sends no further DEL for it.
#[tokio::test]
async fn what_a_finished_pod_leaves_is_collected_while_its_object_exists() {
    let mut fixture = Fixture::new();
    fixture.add("one", &args("one"));
    fixture.add("two", &args("two"));
    fixture.die("one");
    fixture.script().dead = vec![dead("one")];
    for pod in ["one", "two"] {
        fixture.script().pods.insert(pod.to_owned(), format!("uid-{pod}"));
    }
    fixture.script().phase = Some("Running");
    fixture.two_rounds().await;
    assert_eq!(fixture.script().collected, [""; 0]);
    fixture.script().phase = Some("Succeeded");
    fixture.two_rounds().await;
    assert_eq!(fixture.script().collected, ["one"]);
    assert_eq!(
        fixture.leases().await,
        ["two"],
        "the namespace of pod two exists, whatever its phase"
    );
}

#[tokio::test]
async fn a_namespace_that_the_agent_cannot_see_proves_nothing() {
    let mut fixture = Fixture::without_collector();
    fixture.add("one", &args("one"));
    fixture.die("one");
    // As where the runtime mounted it and the mount did not reach this container.
    std::fs::write(fixture.netns("one"), "").unwrap();
    fixture.two_rounds().await;
    assert_eq!(fixture.leases().await, ["one"]);
}

/// A collector of another version, or a stolen one. No reply ends the agent or delays it.
#[test]
fn any_reply_of_the_collector_is_survived() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let entered = runtime.enter();
    // One observation proves that an attachment is unused, so that each round asks for both kinds of reply.
    let mut fixture = Fixture::observing(Duration::ZERO);
    let listener = UnixListener::bind(fixture.dir.path().join("collector.sock")).unwrap();
    drop(entered);
    fixture.script().pods = HashMap::from([("one".to_owned(), "uid-one".to_owned())]);
    let (mut rounds, requests) = (0, Cell::new(0));
    common::mutate::cases("collector replies", 1000, |_, random| {
        let replies: Vec<Vec<u8>> = std::iter::repeat_with(|| changed_reply(random)).take(3).collect();
        runtime.block_on(async {
            tokio::select! {
                () = fixture.garbage.round() => {}
                never = serve(&listener, &replies, &requests) => match never {},
            }
        });
        fixture.script().asked.clear();
        rounds += 1;
    });
    assert!(requests.get() > rounds, "no reply led to a request to collect");
}

/// Answers each request by the next of `replies`, and after the last one by the first. Counts the requests.
async fn serve(listener: &UnixListener, replies: &[Vec<u8>], requests: &Cell<usize>) -> Infallible {
    let mut replies = replies.iter().cycle();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        requests.set(requests.get() + 1);
        // The agent may have ended the connection by then.
        let _ = stream.write_all(replies.next().unwrap()).await;
    }
}

/// A reply to one of the two requests, most often changed.
fn changed_reply(random: &mut Random) -> Vec<u8> {
    let replies = [
        Reply::Dead(vec![dead("one"), dead("two")]),
        Reply::Collected,
        Reply::Kept("another call works on it".to_owned()),
        Reply::Failed("ib0 did not come back".to_owned()),
    ];
    // Only a list leads to another request.
    let at = if random.one_in(2) {
        0
    } else {
        random.below(replies.len())
    };
    let mut reply = serde_json::to_value(&replies[at]).unwrap();
    if !random.one_in(4) {
        common::mutate::json(random, &mut reply);
    }
    let mut line = format!("{reply}\n").into_bytes();
    if random.one_in(3) {
        common::mutate::bytes(random, &mut line);
    }
    line
}
