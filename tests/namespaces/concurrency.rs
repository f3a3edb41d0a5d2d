// SPDX-License-Identifier: Apache-2.0
//! Concurrent calls, as when kubelet starts all pods of a node that came back.

use cni_ipoib::journal::Journal;
use common::cni::Attachment;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tests::call::LIMIT;
use tests::{Node, Pod, json, traces::assert_same};

const PODS: usize = 50;

#[test]
fn fifty_adds_at_once_succeed_with_fifty_addresses_and_fifty_dels_leave_nothing() {
    Node::run(|node| {
        let ipam = node.dual_stack_ipam();
        let conf = node.conf(json!({"ipam": ipam}));
        let pods: Vec<Pod<'_>> = (0..PODS).map(|_| node.pod()).collect();
        let all = pods.iter().collect::<Vec<_>>();
        let before = node.traces(&all);
        at_once(&pods, |pod| drop(pod.attach(&conf, "net1")));
        let mut addresses = BTreeSet::new();
        for pod in &pods {
            let of_pod = pod.global("net1");
            assert_eq!(of_pod.len(), 2);
            for address in of_pod {
                assert!(
                    addresses.insert(address.clone()),
                    "{address} was allocated to two pods"
                );
            }
        }
        at_once(&pods, |pod| pod.check(&conf, "net1").done());
        at_once(&pods, |pod| pod.detach(&conf, "net1"));
        assert_same(&before, &node.traces(&all), "after all DELs");
    });
}

fn at_once<'n>(pods: &[Pod<'n>], work: impl Fn(&Pod<'n>) + Sync) {
    thread::scope(|scope| {
        let threads: Vec<_> = pods.iter().map(|pod| scope.spawn(|| work(pod))).collect();
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

#[test]
fn concurrent_add_and_del_of_one_attachment_act_as_if_in_sequence() {
    Node::run(|node| {
        let conf = node.conf(json!({"ipam": node.rdma_ipam("10.7.0.0/24")}));
        for _ in 0..20 {
            let pod = node.pod();
            let before = node.traces(&[&pod]);
            let (add, del) = (pod.call("ADD", &conf, "net1"), pod.call("DEL", &conf, "net1"));
            let (added, deleted) = thread::scope(|scope| {
                let adding = scope.spawn(|| add.run());
                let deleting = scope.spawn(|| del.run());
                (adding.join().unwrap(), deleting.join().unwrap())
            });
            deleted.done();
            let result = added.result();
            if pod.links().is_empty() {
                assert_same(&before, &node.traces(&[&pod]), "after ADD, then DEL");
            } else {
                pod.keep(&conf, "net1", &result);
                pod.check(&conf, "net1").done();
                pod.detach(&conf, "net1");
                assert_same(&before, &node.traces(&[&pod]), "after DEL, then ADD, then DEL");
            }
        }
    });
}

#[test]
fn exactly_one_of_two_concurrent_adds_of_one_attachment_succeeds() {
    Node::run(|node| {
        let conf = node.conf(json!({"ipam": node.rdma_ipam("10.7.0.0/24")}));
        for _ in 0..20 {
            let pod = node.pod();
            let before = node.traces(&[&pod]);
            let add = pod.call("ADD", &conf, "net1");
            let answers = thread::scope(|scope| {
                let both = [scope.spawn(|| add.run()), scope.spawn(|| add.run())];
                both.map(|thread| thread.join().unwrap())
            });
            let (good, bad): (Vec<_>, Vec<_>) = answers.iter().partition(|a| a.status.success());
            assert_eq!(good.len(), 1, "{} {}", answers[0], answers[1]);
            bad[0].refused(101, &["net1"]);
            pod.keep(&conf, "net1", &good[0].result());
            pod.check(&conf, "net1").done();
            pod.detach(&conf, "net1");
            assert_same(&before, &node.traces(&[&pod]), "after DEL");
        }
    });
}

#[test]
fn gc_during_adds_removes_no_valid_attachment() {
    Node::run(|node| {
        let conf = node.conf(json!({"ipam": node.rdma_ipam("10.7.0.0/24")}));
        let pods: Vec<Pod<'_>> = (0..8).map(|_| node.pod()).collect();
        let valid: Vec<_> = pods.iter().map(|pod| (pod.id.as_str(), "net1")).collect();
        thread::scope(|scope| {
            scope.spawn(|| (0..8).for_each(|_| node.gc(&conf, &valid).done()));
            at_once(&pods, |pod| drop(pod.attach(&conf, "net1")));
        });
        for pod in &pods {
            pod.check(&conf, "net1").done();
        }
    });
}

/// The journal entry of the interface `net1`.
fn record(node: &Node, pod: &Pod<'_>) -> PathBuf {
    node.path(&format!("state/attachments/net-a/{}@net1", pod.id))
}

/// The opens of a file. A call that waits for a program opens the record of its attachment again and again.
struct Looks(Inotify);

impl Looks {
    fn at(file: &Path) -> Self {
        let looks = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).unwrap();
        looks.add_watch(file, AddWatchFlags::IN_OPEN).unwrap();
        Self(looks)
    }

    /// Returns after `count` opens, or if `is_over`.
    ///
    /// # Panics
    /// After the time limit of a call.
    fn wait_for(&self, count: usize, is_over: &AtomicBool) {
        let (mut seen, start) = (0, Instant::now());
        while seen < count && !is_over.load(Ordering::Relaxed) {
            assert!(start.elapsed() < LIMIT, "{seen} opens");
            seen += self.0.read_events().map_or(0, |events| events.len());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn del_waits_for_the_ipam_plugin_that_a_killed_add_left_running() {
    Node::run(|node| {
        let ours = node.plugin("rdma-ipam");
        let [begun, end, ended] = ["begun", "end", "ended"].map(|name| node.path(name));
        // The wait simulates a plugin that queries a distant server. ADD has recorded the plugin before it sends the configuration.
        node.install_script(
            "distant",
            &format!(
                "[ $CNI_COMMAND = ADD ] || exec {ours}; conf=$(cat); : >{}; {}; echo \"$conf\" | {ours}; status=$?; : >{}; exit $status",
                begun.display(),
                Node::until_exists(&end),
                ended.display(),
                ours = ours.display()
            ),
        );
        let mut ipam = node.rdma_ipam("10.7.0.0/24");
        ipam["type"] = json!("distant");
        let conf = node.conf(json!({"ipam": ipam}));
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let add = pod.call("ADD", &conf, "net1").killed_once_exists(&begun);
        assert!(add.was_killed(), "{add}");
        let (looks, is_over) = (Looks::at(&record(node, &pod)), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                looks.wait_for(20, &is_over);
                std::fs::write(&end, "").unwrap();
            });
            let del = pod.call("DEL", &conf, "net1").run();
            let waited = ended.exists();
            is_over.store(true, Ordering::Relaxed);
            del.done();
            assert!(waited, "DEL ended before the IPAM plugin");
        });
        assert_same(
            &before,
            &node.traces(&[&pod]),
            "after DEL of an ADD that was killed",
        );
    });
}

/// A runtime kills Multus, which is the caller, and sends DEL at once. The plugin that Multus started runs on.
#[test]
fn an_add_makes_nothing_after_its_caller_has_ended_and_del_was_faster() {
    Node::run(|node| {
        let conf = node.conf(json!({"ipam": node.rdma_ipam("10.7.0.0/24")}));
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let call = pod.call("ADD", &conf, "net1");
        let journal = Journal::new(&node.path("state"), conf.text("name"));
        let attachment = Attachment {
            container_id: pod.id.parse().unwrap(),
            ifname: "net1".parse().unwrap(),
        };
        // The lock of the attachment stops ADD before its first effect, as the scheduler may.
        let held = journal.open(&attachment).unwrap();
        let looks = Looks::at(&record(node, &pod));
        let add = call.abandoned_when(|| {
            looks.wait_for(1, &AtomicBool::new(false));
            held
        });
        assert!(!add.status.success(), "{add}");
        assert!(add.stderr.contains("nothing was done"), "{add}");
        assert_same(&before, &node.traces(&[&pod]), "after ADD");
        drop(pod.attach(&conf, "net1"));
        pod.detach(&conf, "net1");
    });
}

fn kill(pid: &str) {
    let pid = nix::unistd::Pid::from_raw(pid.parse().unwrap());
    let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
}

#[test]
fn a_process_that_an_ipam_plugin_leaves_behind_delays_no_del() {
    Node::run(|node| {
        let ours = node.plugin("rdma-ipam");
        // Each plugin writes the process to a file of its own. The process has its own output streams, as a daemon has.
        let pids = |plugin: &str| node.path(&format!("{plugin}-pids"));
        let leaves = |plugin: &str| {
            let pids = pids(plugin);
            format!(
                "setsid sleep 120 </dev/null >/dev/null 2>&1 & echo $! >>{}",
                pids.display()
            )
        };
        let (begun, end) = (node.path("begun"), node.path("end"));
        node.install_script(
            "careless",
            &format!("{}; exec {}", leaves("careless"), ours.display()),
        );
        node.install_script(
            "slow",
            &format!(
                "[ $CNI_COMMAND = ADD ] && {{ {}; : >{}; {}; }}; exec {}",
                leaves("slow"),
                begun.display(),
                Node::until_exists(&end),
                ours.display()
            ),
        );
        for (plugin, killed) in [("careless", false), ("slow", true)] {
            let mut ipam = node.rdma_ipam("10.7.0.0/24");
            ipam["type"] = json!(plugin);
            let conf = node.conf(json!({"ipam": ipam}));
            let pod = node.pod();
            let add = pod.call("ADD", &conf, "net1");
            if killed {
                let add = add.killed_once_exists(&begun);
                assert!(add.was_killed(), "{add}");
                std::fs::write(&end, "").unwrap();
            } else {
                add.run().result();
            }
            // A held lock fails DEL with code 11 after twenty seconds; the remaining process runs for two minutes.
            pod.detach(&conf, "net1");
            let left = std::fs::read_to_string(pids(plugin)).unwrap();
            let of_add = left.lines().next().unwrap();
            let lives = std::path::Path::new("/proc").join(of_add).exists();
            left.lines().for_each(kill);
            assert!(lives, "{plugin}: ADD has left nothing behind");
        }
    });
}

#[test]
fn gc_with_an_outdated_list_never_leaves_a_pod_half_attached() {
    Node::run(|node| {
        let conf = node.conf(json!({"ipam": node.rdma_ipam("10.7.0.0/24")}));
        let pods: Vec<Pod<'_>> = (0..12).map(|_| node.pod()).collect();
        let all: Vec<_> = pods.iter().collect();
        let before = node.traces(&all);
        thread::scope(|scope| {
            let collecting = scope.spawn(|| {
                for _ in 0..12 {
                    // The list lacks pods that were attached a moment ago, like a list that the runtime compiled too
                    // early.
                    let valid: Vec<_> = pods.iter().filter(|pod| !pod.links().is_empty()).collect();
                    let valid: Vec<_> = valid.iter().map(|pod| (pod.id.as_str(), "net1")).collect();
                    node.gc(&conf, &valid).done();
                }
            });
            at_once(&pods, |pod| drop(pod.attach(&conf, "net1")));
            collecting.join().unwrap();
        });
        // A pod is complete or gone: a pod with an interface has its lease, and addresses are unique.
        let living: Vec<_> = pods.iter().filter(|pod| !pod.links().is_empty()).collect();
        for pod in &living {
            pod.check(&conf, "net1").done();
        }
        let addresses: BTreeSet<_> = living.iter().flat_map(|pod| pod.global("net1")).collect();
        assert_eq!(addresses.len(), living.len());
        // DEL of the living pods leaves nothing, so the others had left neither a lease nor an attachment.
        for pod in &living {
            pod.detach(&conf, "net1");
        }
        assert_same(&before, &node.traces(&all), "after GC and DEL");
    });
}
