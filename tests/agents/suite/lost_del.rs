// SPDX-License-Identifier: Apache-2.0
//! Pods of a network with ranges that ended without DEL: agent, collector and both plugins as processes.

use agents::later::until_collected_later;
use agents::named::ip;
use agents::scrapes::alerts_at_once;
use agents::{Attachment, Member, Named, Site, program};
use apiserver::install::until;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tests::Daemon;

/// The network namespace of a node with the Ethernet link `eth0`, and the node's collector.
struct Host {
    name: String,
    state: PathBuf,
    data: PathBuf,
    socket: PathBuf,
    netns: Named,
    collector: Daemon,
}

impl Host {
    fn new(node: &Member, test: &str) -> Self {
        let netns = Named::new(test);
        let name = netns.0.as_str();
        let cable = [
            "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", "far0",
        ];
        assert!(ip(&cable), "ip link add needs root");
        for link in ["eth0", "far0"] {
            assert!(ip(&["-n", name, "link", "set", link, "up"]));
        }
        let host = Self {
            name: node.identity.node.node.clone(),
            state: node.state(),
            data: node.data(),
            socket: node.collector(),
            netns,
            collector: Daemon::new("the collector", &node.state().with_file_name("collector.log")),
        };
        host.start_collector();
        host
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.netns.0])
            .arg(program(name))
            .env("RDMANET_STATE", &self.state)
            .env("RDMANET_COLLECTOR", &self.socket);
        command
    }

    fn start_collector(&self) {
        self.collector.spawn(self.program("cni-ipoib").arg("collect"));
    }

    /// A call for a macvlan child with an address of `ranges`. `args`: what kubelet's runtime sends.
    fn call(&self, verb: &str, attachment: &Attachment, args: &str, plugins: &Path) -> Output {
        let conf = json!({
            "cniVersion": "1.1.0", "name": "ranges0", "type": "cni-ipoib", "master": "eth0", "mode": "macvlan",
            "ipam": { "type": "rdma-ipam", "dataDir": self.data, "ranges": [[{ "subnet": "10.8.0.0/24" }]] },
        });
        let mut call = self
            .program("cni-ipoib")
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", &attachment.container)
            .env("CNI_IFNAME", "net1")
            .env("CNI_NETNS", &attachment.netns)
            .env("CNI_PATH", plugins)
            .env("CNI_ARGS", args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let text = conf.to_string();
        call.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        call.wait_with_output().unwrap()
    }

    fn add(&self, attachment: &Attachment, args: &str) {
        let answer = self.call("ADD", attachment, args, program("rdma-ipam").parent().unwrap());
        let said = String::from_utf8_lossy(&answer.stdout);
        assert!(answer.status.success(), "ADD of {attachment:?}: {said}");
    }

    /// Makes the pod `name`, and attaches it in the namespace `netns`.
    async fn pod(&self, site: &Site, name: &str, netns: &Named) -> (Attachment, String) {
        let mut attachment = Attachment::of(name);
        attachment.netns = netns.path();
        let uid = site.pod(name, &self.name).await;
        let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name};K8S_POD_UID={uid}");
        self.add(&attachment, &args);
        (attachment, args)
    }

    /// Waits until the agent has looked at all attachments and leases as often as their collection takes.
    async fn until_looked_at(&self) {
        let attach = async |name: &str, netns| {
            let args =
                format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name};K8S_POD_UID={name}");
            let attachment = Attachment {
                netns,
                ..Attachment::of(name)
            };
            self.add(&attachment, &args);
        };
        let is_collected = async |name: &str| {
            let (attachments, leases) = self.left();
            ![attachments, leases].concat().iter().any(|left| left == name)
        };
        until_collected_later(attach, is_collected).await;
    }

    /// The containers in the journal, and those with a lease.
    fn left(&self) -> (Vec<String>, Vec<String>) {
        let boots = std::fs::read_dir(self.data.join("ranges0")).unwrap();
        let boot = boots
            .flatten()
            .find(|entry| entry.file_name().to_string_lossy().starts_with("boot-"))
            .unwrap();
        (
            containers(&self.state.join("attachments/ranges0")),
            containers(&boot.path().join("leases")),
        )
    }
}

/// The containers that have a file `CONTAINER@net1` in the directory.
fn containers(directory: &Path) -> Vec<String> {
    let files = std::fs::read_dir(directory).unwrap().flatten();
    let mut names: Vec<String> = files
        .filter_map(|file| Some(file.file_name().to_str()?.strip_suffix("@net1")?.to_owned()))
        .collect();
    names.sort();
    names
}

fn both(names: &[&str]) -> (Vec<String>, Vec<String>) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    (names.clone(), names)
}

#[tokio::test(flavor = "multi_thread")]
async fn journal_entries_and_leases_of_gone_pods_are_collected_and_no_others() {
    let (site, node) = Site::with_node().await;
    let host = Host::new(&node, "lost-del");
    let [lost, forced, living, tool] = ["lost", "forced", "living", "tool"].map(Named::new);
    host.pod(&site, "lost", &lost).await;
    host.pod(&site, "forced", &forced).await;
    host.pod(&site, "living", &living).await;
    host.add(
        &Attachment {
            netns: tool.path(),
            ..Attachment::of("tool")
        },
        "",
    );
    let all = both(&["forced", "living", "lost", "tool"]);
    assert_eq!(host.left(), all);
    drop((lost, tool));
    // The pod is there still: kubelet may be about to DEL.
    host.until_looked_at().await;
    assert_eq!(host.left(), all);
    // Deleted by force: gone as an object, alive as a process.
    site.remove_pod("forced").await;
    site.remove_pod("lost").await;
    let rest = both(&["forced", "living", "tool"]);
    until("the attachment and the lease are collected", async || {
        host.left() == rest
    })
    .await;
    let collected = |kind: &str| node.number(&format!("rdmanet_garbage_collected_total{{kind=\"{kind}\"}}"));
    // The agent logs and counts what is gone already.
    until("both are counted", async || {
        ["attachment", "lease"].iter().all(|kind| collected(kind) > 0)
    })
    .await;
    // Nothing else follows, though every proof was repeated.
    host.until_looked_at().await;
    assert_eq!(host.left(), rest);
    let log = node.log();
    for line in [
        "collected an attachment without a pod",
        "released a lease of ranges without a pod",
    ] {
        let of_lost = log
            .lines()
            .filter(|it| it.contains(line) && it.contains("of container lost\""));
        assert_eq!(of_lost.count(), 1, "{log}");
    }
    assert!(log.contains("and the API server has no Pod of its name"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn collection_continues_after_agent_and_collector_were_killed() {
    let (site, node) = Site::with_node().await;
    let host = Host::new(&node, "killed");
    let lost = Named::new("killed-pod");
    // So that the directory is there when the others have gone.
    let _last = Named::new("killed-last");
    host.pod(&site, "lost", &lost).await;
    // The agent starts before the collector, and may have logged its absence.
    let absent = || node.log().matches("no collector listens").count();
    let mut before = 0;
    until("the agent reaches the collector", async || {
        before = absent();
        node.log().matches("the collector answers").count() >= before
    })
    .await;
    host.collector.kill();
    drop(lost);
    site.remove_pod("lost").await;
    until("the agent misses the collector", async || absent() > before).await;
    let alert = "RdmanetCollectorDown: The collector of a does not answer the agent";
    until("an alert fires", async || {
        let alerts = alerts_at_once(&[("a", node.get("/metrics"))]);
        alerts.iter().any(|it| it == alert)
    })
    .await;
    node.kill();
    host.start_collector();
    node.start();
    let nothing = both(&[]);
    until("the attachment and the lease are collected", async || {
        host.left() == nothing
    })
    .await;
}

/// CRI-O does not repeat a DEL that fails (docs/install.md, "CRI-O"); containerd does not if ADD had failed.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_failed_del_leaves_is_collected_though_no_runtime_repeats_it() {
    let (site, node) = Site::with_node().await;
    let host = Host::new(&node, "failed-del");
    // So that the directory is there when the other has gone.
    let _last = Named::new("failed-last");
    let netns = Named::new("failed-pod");
    let (attachment, args) = host.pod(&site, "failed", &netns).await;
    let no_plugins = tempfile::tempdir().unwrap();
    let answer = host.call("DEL", &attachment, &args, no_plugins.path());
    assert!(
        !answer.status.success(),
        "DEL found a plugin in an empty directory"
    );
    assert_eq!(host.left(), both(&["failed"]));
    drop(netns);
    site.remove_pod("failed").await;
    let nothing = both(&[]);
    until("the attachment and the lease are collected", async || {
        host.left() == nothing
    })
    .await;
}
