// SPDX-License-Identifier: Apache-2.0
//! Kills ADD and DEL of one configuration at every request that changes something, cleans up in every way that a
//! runtime has, and compares the result with the state before.
//!
//! Invariant: the kill points come from a traced run and never from a list. A run with a limit kills at every request
//! that creates, changes or deletes a link or an RDMA device. It spreads its other kills evenly, selects the same ones
//! each time, and prints their number.

mod life;

use crate::trace::{Process, Scope, Step, Victim};
use crate::{Conf, Node, Pod, Snapshot, Version};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The interface in every pod of this module.
pub const IFNAME: &str = "net1";

/// The call that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// ADD of a new pod.
    Add,
    /// DEL of an attached pod.
    Del,
}

/// The cleanup after the kill. It must leave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// DEL, as every runtime calls it.
    Del,
    /// GC without valid attachments.
    Gc,
    /// The pod's namespace dies, then DEL.
    DeathThenDel,
    /// The pod's namespace dies, then GC.
    DeathThenGc,
    /// DEL without a namespace.
    DelWithoutNetns,
    /// A second ADD, then DEL. The second ADD succeeds, unless the killed ADD lost only its result.
    AddThenDel,
}

const REPAIRS: [Repair; 6] = [
    Repair::Del,
    Repair::DeathThenGc,
    Repair::Gc,
    Repair::DelWithoutNetns,
    Repair::DeathThenDel,
    Repair::AddThenDel,
];

/// One killed call: the step, the victim, the signal, and the cleanup.
#[derive(Clone, Debug)]
pub struct Kill {
    verb: Verb,
    step: Step,
    victim: Victim,
    signal: Signal,
    repair: Repair,
}

/// Attachments of one configuration on one node.
pub struct Faults<'n> {
    node: &'n Node,
    conf: &'n Conf,
    /// The plugins of the killed call, and those of the cleanup.
    versions: [Version; 2],
    /// The node without pods, and with one new pod.
    bare: Snapshot,
    with_pod: Snapshot,
}

/// How long a link that came back may take until it has carrier.
const CARRIER_WITHIN: Duration = Duration::from_secs(120);

/// The names of the node's links with carrier.
fn carriers(node: &Node) -> BTreeSet<String> {
    let all = node.links().into_iter().filter(|link| link.carrier);
    all.map(|link| link.name).collect()
}

/// Waits until these links have carrier. A whole port that comes back has it once it has joined its groups.
fn await_carriers(node: &Node, expected: &BTreeSet<String>) {
    let start = Instant::now();
    loop {
        let present = carriers(node);
        if expected.is_subset(&present) {
            return;
        }
        assert!(
            start.elapsed() < CARRIER_WITHIN,
            "{expected:?} had carrier, {present:?} have it"
        );
        sleep(Duration::from_millis(50));
    }
}

impl<'n> Faults<'n> {
    /// Takes the current state of the node as the state that every cleanup must restore.
    pub fn new(node: &'n Node, conf: &'n Conf) -> Self {
        Self::between(node, conf, [Version::Today; 2])
    }

    /// Like [`Self::new`], where the first version's call is killed, and the second version cleans up.
    pub fn between(node: &'n Node, conf: &'n Conf, versions: [Version; 2]) -> Self {
        let with_carrier = carriers(node);
        // The very first attachment of a version also creates directories.
        for version in versions {
            node.use_plugins(version);
            let first = node.pod();
            first.attach(conf, IFNAME);
            first.detach(conf, IFNAME);
        }
        await_carriers(node, &with_carrier);
        let bare = node.settled_snapshot(&[]);
        let pod = node.pod();
        let with_pod = node.settled_snapshot(&[&pod]);
        Self {
            node,
            conf,
            versions,
            bare,
            with_pod,
        }
    }

    /// Kills calls of `verb`: those at requests about links and RDMA devices, and at most `limit` others. Prints their
    /// number. `RDMANET_KILLS=N` sets another limit, `RDMANET_ALL_KILLS=1` removes it.
    ///
    /// With a limit, one of the cleanups follows each kill, in turn; otherwise the run repeats each kill with every
    /// cleanup.
    pub fn kill_everywhere(&self, verb: Verb, signal: Signal, limit: Option<usize>) {
        let all = every_kill();
        let scope = if all { Scope::Everything } else { Scope::Changes };
        let steps = self.steps(verb, scope);
        let kills = kills(verb, &steps, signal);
        assert!(
            kills.len() >= 20 * REPAIRS.len(),
            "{verb:?} makes only {} requests that change something; does the tracer see them? {steps:#?}",
            steps.len()
        );
        let chosen = match limit {
            Some(limit) if !all => {
                let (devices, others): (Vec<Kill>, Vec<Kill>) =
                    in_turn(&kills).into_iter().partition(Kill::is_at_device_request);
                [devices, spread(&others, other_limit().unwrap_or(limit))].concat()
            }
            _ => kills.clone(),
        };
        for kill in &chosen {
            self.live(kill, scope);
        }
        let name = self.conf.text("name");
        crate::log_line(&format!(
            "{name}: {verb:?} struck by {signal} in {} of {} ways (at {} requests); nothing left",
            chosen.len(),
            kills.len(),
            steps.len()
        ));
    }

    /// The steps of an undisturbed call. An IPAM plugin also deletes expired cooldown records, and no later call
    /// repeats such a step. A call with such a step is recorded again.
    fn steps(&self, verb: Verb, scope: Scope) -> Vec<Step> {
        let once = |step: &Step| step.what.starts_with("unlink") && step.what.contains("/resting/");
        let mut steps = self.record(verb, scope);
        for _ in 0..5 {
            if !steps.iter().any(once) {
                break;
            }
            steps = self.record(verb, scope);
        }
        steps
    }

    fn record(&self, verb: Verb, scope: Scope) -> Vec<Step> {
        self.node.use_plugins(self.versions[0]);
        let pod = self.node.pod();
        let traced = match verb {
            Verb::Add => {
                let traced = pod.call("ADD", self.conf, IFNAME).traced(scope, |_| None);
                pod.keep(self.conf, IFNAME, &traced.answer.result());
                pod.check(self.conf, IFNAME).done();
                pod.detach(self.conf, IFNAME);
                traced
            }
            Verb::Del => {
                pod.attach(self.conf, IFNAME);
                let traced = pod.call("DEL", self.conf, IFNAME).traced(scope, |_| None);
                traced.answer.done();
                traced
            }
        };
        self.assert_clean(Some(&pod), format!("after an undisturbed {verb:?}"));
        traced.steps
    }

    #[track_caller]
    fn assert_clean(&self, pod: Option<&Pod<'_>>, when: impl std::fmt::Display) {
        match pod {
            Some(pod) => self.node.assert_as_before(&self.with_pod, &[pod], when),
            None => self.node.assert_as_before(&self.bare, &[], when),
        }
    }
}

impl Kill {
    /// Whether the plugin is killed before its own request that creates, changes or deletes a link or an RDMA device.
    fn is_at_device_request(&self) -> bool {
        let what = &self.step.what;
        self.step.by == Process::Plugin && (what.contains("LINK") || what.contains("RDMA"))
    }
}

/// The limit from `RDMANET_KILLS`.
fn other_limit() -> Option<usize> {
    std::env::var_os("RDMANET_KILLS")?.to_str()?.parse().ok()
}

/// Whether to run every kill, which takes a whole night on a developer's machine.
fn every_kill() -> bool {
    std::env::var_os("RDMANET_ALL_KILLS").is_some_and(|value| value == "1")
}

/// Every combination of step, victim and cleanup.
fn kills(verb: Verb, steps: &[Step], signal: Signal) -> Vec<Kill> {
    let mut kills = Vec::new();
    for step in steps {
        let victims: &[Victim] = match step.by {
            Process::Plugin => &[Victim::Plugin],
            Process::Delegate(_) => &[Victim::Plugin, Victim::Delegate, Victim::All],
        };
        for victim in victims {
            kills.extend(REPAIRS.iter().map(|repair| Kill {
                verb,
                step: step.clone(),
                victim: *victim,
                signal,
                repair: *repair,
            }));
        }
    }
    kills
}

/// Each combination of step and victim once, with the cleanups in turn.
fn in_turn(kills: &[Kill]) -> Vec<Kill> {
    let moments = kills.chunks(REPAIRS.len()).enumerate();
    moments
        .map(|(number, ways)| ways[number % ways.len()].clone())
        .collect()
}

/// Selects at most `limit` of `all`, evenly spread, including the first and the last.
fn spread(all: &[Kill], limit: usize) -> Vec<Kill> {
    if all.len() <= limit {
        return all.to_vec();
    }
    let last = limit.saturating_sub(1).max(1);
    (0..limit)
        .map(|number| all[number * (all.len() - 1) / last].clone())
        .collect()
}
