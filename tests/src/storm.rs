// SPDX-License-Identifier: Apache-2.0
//! Many concurrent attachments that begin, end, are killed, repeated, forgotten and collected in random order.
//!
//! Invariant: a call that was not killed does what a runtime expects; no address is allocated to
//! two attachments at once; in the end nothing is left.
//!
//! The order follows from a seed, which `RDMANET_STORM_SEED` sets; at which instruction a kill strikes is the kernel's choice.

use crate::{Answer, Call, Conf, Node, Pod};
use fastrand::Rng;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The interface in every pod.
const IFNAME: &str = "net1";
/// How often one call is killed before it is left in peace.
const KILLS_IN_A_ROW: u32 = 3;
/// How long the last namespaces may take to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How large a storm is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Attachments in all.
    pub attachments: u32,
    /// How many lives go on at the same time.
    pub at_once: u32,
}

/// The seed that was asked for, or one of the hour.
pub fn seed() -> u64 {
    match std::env::var_os("RDMANET_STORM_SEED") {
        Some(seed) => seed
            .to_str()
            .and_then(|seed| seed.parse().ok())
            .expect("RDMANET_STORM_SEED is a number"),
        None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs(),
    }
}

/// The knowledge of the runtime during the storm.
struct Storm<'n> {
    node: &'n Node,
    confs: &'n [Conf],
    seed: u64,
    /// Attachments that GC must keep, as network and container; read for as long as a GC runs, since a runtime begins
    /// none meanwhile.
    known: RwLock<BTreeSet<(String, String)>>,
    /// Who has an address.
    owners: Mutex<BTreeMap<String, String>>,
    /// Microseconds that an ADD took lately; kills strike within that time.
    add_takes: AtomicU64,
    born: AtomicU32,
    kills: AtomicU32,
    collections: AtomicU32,
}

/// Runs a storm over attachments of these configurations.
pub fn storm(node: &Node, confs: &[Conf], size: Size, seed: u64) {
    // The first attachment of all makes folders too.
    for conf in confs {
        let first = node.pod();
        first.attach(conf, IFNAME);
        first.detach(conf, IFNAME);
    }
    let before = node.settled_snapshot(&[]);
    let storm = Storm {
        node,
        confs,
        seed,
        known: RwLock::default(),
        owners: Mutex::default(),
        add_takes: AtomicU64::new(50_000),
        born: AtomicU32::new(0),
        kills: AtomicU32::new(0),
        collections: AtomicU32::new(0),
    };
    let start = Instant::now();
    storm.blow(size);
    storm.clear_up(&before, start);
    let count = |number: &AtomicU32| number.load(Ordering::Relaxed);
    crate::tell(&format!(
        "storm with seed {seed}: {} attachments, {} at a time, {} kills, {} collections in {} s; nothing left, no address twice",
        size.attachments,
        size.at_once,
        count(&storm.kills),
        count(&storm.collections),
        start.elapsed().as_secs()
    ));
}

impl Storm<'_> {
    fn blow(&self, size: Size) {
        thread::scope(|scope| {
            let lives = || {
                while self.born.fetch_add(1, Ordering::Relaxed) < size.attachments {
                    self.live();
                }
            };
            let threads: Vec<_> = (0..size.at_once).map(|_| scope.spawn(lives)).collect();
            for thread in threads {
                if let Err(panic) = thread.join() {
                    std::panic::resume_unwind(panic);
                }
            }
        });
    }

    /// Repeats GC until nothing is left, because the kernel removes namespaces with some delay.
    fn clear_up(&self, before: &crate::Snapshot, start: Instant) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            for conf in self.confs {
                self.node.gc(conf, &[]).done();
            }
            let difference = self.node.snapshot(&[]).since(before);
            if difference.is_empty() {
                return;
            }
            let (seed, lasted) = (self.seed, start.elapsed());
            assert!(
                Instant::now() < deadline,
                "the storm with seed {seed} left after {lasted:?}:\n{difference}"
            );
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// One attachment from its birth to its end, or until it is forgotten.
    fn live(&self) {
        let pod = self.node.pod();
        let mut rng = Rng::with_seed(self.seed ^ u64::from(pod.number()).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let conf = &self.confs[rng.usize(..self.confs.len())];
        let name = (conf.text("name").to_owned(), pod.id.clone());
        self.known.write().unwrap().insert(name.clone());
        let addresses = self.attach(&pod, conf, &mut rng);
        if rng.u8(..10) < 3 {
            pod.check(conf, IFNAME).done();
        }
        if rng.u8(..10) < 2 {
            self.collect(conf);
        }
        if rng.u8(..10) < 2 {
            pod.die();
        }
        // From here on the next one may have them.
        self.disown(&addresses);
        if rng.u8(..10) < 7 {
            self.detach(&pod, conf, &mut rng);
        }
        self.known.write().unwrap().remove(&name);
    }

    /// ADD until it succeeds, with kills, DELs and further ADDs in between.
    fn attach(&self, pod: &Pod<'_>, conf: &Conf, rng: &mut Rng) -> Vec<String> {
        let add = pod.call("ADD", conf, IFNAME);
        for _ in 0..KILLS_IN_A_ROW {
            let Some(answer) = self.maybe_killed(&add, rng) else {
                break;
            };
            if answer.status.success() {
                return self.own(pod, conf, &answer);
            }
            if rng.bool() {
                self.detach(pod, conf, rng);
            }
        }
        let answer = add.run();
        if !answer.status.success() {
            // The call ended before the kill.
            answer.refused(101, &[IFNAME]);
            pod.detach(conf, IFNAME);
            return self.own(pod, conf, &add.run());
        }
        let took = u64::try_from(answer.took.as_micros()).unwrap();
        self.add_takes.store(took, Ordering::Relaxed);
        self.own(pod, conf, &answer)
    }

    /// DEL, maybe killed and then repeated, as runtimes do.
    fn detach(&self, pod: &Pod<'_>, conf: &Conf, rng: &mut Rng) {
        let del = pod.call("DEL", conf, IFNAME);
        for _ in 0..KILLS_IN_A_ROW {
            match self.maybe_killed(&del, rng) {
                None => break,
                Some(answer) if answer.status.success() => return,
                Some(_) => {}
            }
        }
        pod.detach(conf, IFNAME);
    }

    /// One in two calls is killed; none means it was not made.
    fn maybe_killed(&self, call: &Call, rng: &mut Rng) -> Option<Answer> {
        if rng.bool() {
            return None;
        }
        let longest = self.add_takes.load(Ordering::Relaxed) * 5 / 4;
        let answer = call.killed_after(Duration::from_micros(rng.u64(..longest)));
        self.kills
            .fetch_add(u32::from(answer.was_killed()), Ordering::Relaxed);
        assert!(
            answer.was_killed() || answer.status.success() || answer.stdout.contains("\"code\":101"),
            "seed {}: not killed, and yet: {answer}",
            self.seed
        );
        Some(answer)
    }

    /// Writes down who has the addresses of a result.
    fn own(&self, pod: &Pod<'_>, conf: &Conf, answer: &Answer) -> Vec<String> {
        let result = answer.result();
        pod.keep(conf, IFNAME, &result);
        let address = |ip: &Value| ip["address"].as_str().unwrap().to_owned();
        let addresses: Vec<_> = result["ips"].as_array().unwrap().iter().map(address).collect();
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        for address in &addresses {
            // Networks of one storm have ranges of their own.
            if let Some(other) = owners.insert(address.clone(), pod.id.clone()) {
                panic!(
                    "seed {}: {address} was given to {} while {other} has it",
                    self.seed, pod.id
                );
            }
        }
        addresses
    }

    fn disown(&self, addresses: &[String]) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        for address in addresses {
            owners.remove(address);
        }
    }

    /// GC of what the runtime has forgotten, beside the ADDs and DELs that are at work.
    fn collect(&self, conf: &Conf) {
        let known = self.known.read().unwrap();
        let of_network = known.iter().filter(|(network, _)| network == conf.text("name"));
        let valid: Vec<_> = of_network.map(|(_, id)| (id.as_str(), IFNAME)).collect();
        self.node.gc(conf, &valid).done();
        self.collections.fetch_add(1, Ordering::Relaxed);
    }
}
