// SPDX-License-Identifier: Apache-2.0
//! One pod, from ADD to its removal, with one killed call.

use super::{Faults, IFNAME, Kill, Repair, Verb};
use crate::node::files_below;
use crate::trace::{Scope, Traced};
use crate::{Pod, Version, call, within};
use common::netlink::Link;
use std::fmt;
use std::fs;
use std::time::Duration;

/// The time limit for the kernel to end a namespace, in emulation on a busy machine.
const TIMEOUT: Duration = call::LIMIT;

impl Faults<'_> {
    /// Creates a pod, kills a call of it, cleans up, and asserts that nothing remains.
    pub(super) fn live(&self, kill: &Kill, scope: Scope) {
        let pod = self.node.pod();
        self.node.use_plugins(self.versions[0]);
        if kill.verb == Verb::Del {
            pod.attach(self.conf, IFNAME);
        }
        let struck = self.strike(&pod, kill, scope);
        self.judge(&pod, kill, &struck);
        self.node.use_plugins(self.versions[1]);
        self.repair(&pod, kill);
        if self.versions[1] == Version::Earlier {
            self.remove_counts();
        }
        let alive = pod.netns.exists().then_some(&pod);
        self.assert_clean(alive, format!("after {kill}, answered {}", struck.answer));
    }

    fn strike(&self, pod: &Pod<'_>, kill: &Kill, scope: Scope) -> Traced {
        let verb = match kill.verb {
            Verb::Add => "ADD",
            Verb::Del => "DEL",
        };
        let mut reached = false;
        let traced = pod.call(verb, self.conf, IFNAME).traced(scope, |step| {
            let here = (step.by, step.number) == (kill.step.by, kill.step.number);
            reached |= here;
            here.then_some((kill.victim, kill.signal))
        });
        // The number of waits differs from run to run.
        assert!(
            reached || scope == Scope::Everything,
            "there was no such moment: {kill}; only {:#?}",
            traced.steps
        );
        traced
    }

    /// Asserts, before any cleanup, that a call that returned a result has kept its guarantees.
    fn judge(&self, pod: &Pod<'_>, kill: &Kill, struck: &Traced) {
        let answer = &struck.answer;
        let when = || format!("after {kill}, which answered {answer}");
        match (answer.status.code(), kill.verb) {
            (None, _) => {}
            (Some(0), Verb::Add) => pod.keep(self.conf, IFNAME, &answer.result()),
            (Some(0), Verb::Del) | (Some(_), Verb::Add) => self.assert_clean(Some(pod), when()),
            (Some(code), Verb::Del) => assert_eq!(code, 1, "{}", when()),
        }
    }

    fn repair(&self, pod: &Pod<'_>, kill: &Kill) {
        match kill.repair {
            Repair::Del => pod.detach(self.conf, IFNAME),
            Repair::Gc => self.node.gc(self.conf, &[]).done(),
            Repair::DelWithoutNetns => {
                let call = pod.call("DEL", self.conf, IFNAME);
                call.env_remove("CNI_NETNS").run().done();
            }
            Repair::DeathThenDel => {
                self.die(pod);
                pod.detach(self.conf, IFNAME);
            }
            Repair::DeathThenGc => {
                self.die(pod);
                self.node.gc(self.conf, &[]).done();
            }
            Repair::AddThenDel => {
                let again = pod.add(self.conf, IFNAME);
                if again.status.success() {
                    pod.check(self.conf, IFNAME).done();
                } else {
                    // The killed ADD had completed the interface; the specification requires this error for an existing
                    // one.
                    again.refused(101, &[IFNAME]);
                }
                pod.detach(self.conf, IFNAME);
            }
        }
    }

    /// Removes the files that count attachments. An earlier version does not know them, and GC of today removes those that it left
    /// (`tests/versions/suite/interface.rs`).
    fn remove_counts(&self) {
        let counts = self.node.path("state/parents");
        for file in files_below(&counts, &|_| true) {
            fs::remove_file(counts.join(file)).unwrap();
        }
    }

    /// Ends the namespace. Returns when the kernel has moved the pod's links back to the node.
    fn die(&self, pod: &Pod<'_>) {
        let refunded = |link: &Link| link.kind.as_deref() == Some("ipoib");
        let count = |links: Vec<Link>| links.iter().filter(|link| refunded(link)).count();
        let awaited = count(self.node.links()) + count(pod.links());
        pod.die();
        let what = format!("the kernel gave back each child of pod {}", pod.id);
        within(TIMEOUT, &what, || count(self.node.links()) >= awaited);
    }
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            verb,
            step,
            victim,
            signal,
            repair,
        } = self;
        write!(
            f,
            "{verb:?}, {victim:?} struck by {signal} before {step}, then {repair:?}"
        )
    }
}
