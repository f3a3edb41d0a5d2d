// SPDX-License-Identifier: Apache-2.0
//! Many concurrent attachments: ADD, DEL, kills, retries, forgotten pods and GC in random order.
//!
//! Invariant: a call that was not killed behaves as a runtime expects. No two attachments have one address at the same
//! time. In the end nothing remains.
//!
//! A seed determines the order; `RDMANET_STORM_SEED` sets it. The instruction at which a kill takes effect varies.

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
/// The highest number of kills of one call.
const KILLS_IN_A_ROW: u32 = 3;
/// The time limit for the last namespaces to end, as long as that of a call.
const TIMEOUT: Duration = crate::call::LIMIT;
/// The codes with which a call may fail that was not killed: the interface exists since a call that ended before its kill; a
/// lock was not free, or the link had no carrier, in time on a busy machine. A runtime then calls DEL, and ADD again.
const REPEATED: [u64; 3] = [101, 11, 102];
/// The most calls of ADD for one attachment besides the killed ones.
const ADDS: u32 = 10;

/// The size of a storm.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The total number of attachments.
    pub attachments: u32,
    /// The number of concurrent attachments.
    pub at_once: u32,
}

/// The seed from the environment, or one from the clock.
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
    /// The attachments that GC must keep, as network and container. A GC holds the read lock, because a runtime starts
    /// no ADD meanwhile.
    known: RwLock<BTreeSet<(String, String)>>,
    /// The owner of each address.
    owners: Mutex<BTreeMap<String, String>>,
    /// The duration of a recent ADD in microseconds; kills come within that time.
    add_takes: AtomicU64,
    born: AtomicU32,
    kills: AtomicU32,
    collections: AtomicU32,
}

/// Runs a storm of attachments with these configurations.
pub fn storm(node: &Node, confs: &[Conf], size: Size, seed: u64) {
    // The very first attachment also creates directories.
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
    storm.clean_up(&before, start);
    let count = |number: &AtomicU32| number.load(Ordering::Relaxed);
    // There are about as many kills as attachments.
    assert!(
        count(&storm.kills) > 0,
        "the storm with seed {seed} killed no call"
    );
    crate::log_line(&format!(
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

    /// Repeats GC until nothing remains, because the kernel removes namespaces with a delay.
    fn clean_up(&self, before: &crate::Snapshot, start: Instant) {
        let deadline = Instant::now() + TIMEOUT;
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

    /// One attachment from ADD to its end, or until the runtime forgets it.
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
        // From here on another attachment may get the addresses.
        self.clear_owner(&addresses);
        if rng.u8(..10) < 7 {
            self.detach(&pod, conf, &mut rng);
        }
        self.known.write().unwrap().remove(&name);
    }

    /// Calls ADD until it succeeds, with kills, DELs and more ADDs in between.
    fn attach(&self, pod: &Pod<'_>, conf: &Conf, rng: &mut Rng) -> Vec<String> {
        let add = pod.call("ADD", conf, IFNAME);
        for _ in 0..KILLS_IN_A_ROW {
            let Some(answer) = self.maybe_killed(&add, rng) else {
                break;
            };
            if answer.status.success() {
                return self.record_owner(pod, conf, &answer);
            }
            if rng.bool() {
                self.detach(pod, conf, rng);
            }
        }
        let mut answer = add.run();
        for _ in 1..ADDS {
            if !is_repeated(&answer) {
                break;
            }
            pod.detach(conf, IFNAME);
            answer = add.run();
        }
        let took = u64::try_from(answer.took.as_micros()).unwrap();
        self.add_takes.store(took, Ordering::Relaxed);
        self.record_owner(pod, conf, &answer)
    }

    /// Calls DEL. It may be killed, and is then repeated, as runtimes do.
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

    /// In half of the cases, runs the call and kills it. Otherwise returns `None` without running it.
    fn maybe_killed(&self, call: &Call, rng: &mut Rng) -> Option<Answer> {
        if rng.bool() {
            return None;
        }
        let longest = self.add_takes.load(Ordering::Relaxed) * 5 / 4;
        let answer = call.killed_after(Duration::from_micros(rng.u64(..longest)));
        self.kills
            .fetch_add(u32::from(answer.was_killed()), Ordering::Relaxed);
        assert!(
            answer.was_killed() || answer.status.success() || is_repeated(&answer),
            "seed {}: the call was not killed and failed: {answer}",
            self.seed
        );
        Some(answer)
    }

    /// Records the owner of the addresses in a result.
    fn record_owner(&self, pod: &Pod<'_>, conf: &Conf, answer: &Answer) -> Vec<String> {
        let result = answer.result();
        pod.keep(conf, IFNAME, &result);
        let address = |ip: &Value| ip["address"].as_str().unwrap().to_owned();
        let addresses: Vec<_> = result["ips"].as_array().unwrap().iter().map(address).collect();
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        for address in &addresses {
            // Networks of one storm have disjoint ranges.
            if let Some(other) = owners.insert(address.clone(), pod.id.clone()) {
                panic!(
                    "seed {}: {address} was allocated to {} while {other} has it",
                    self.seed, pod.id
                );
            }
        }
        addresses
    }

    fn clear_owner(&self, addresses: &[String]) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        for address in addresses {
            owners.remove(address);
        }
    }

    /// Calls GC for attachments that the runtime has forgotten, concurrently with ADDs and DELs.
    fn collect(&self, conf: &Conf) {
        let known = self.known.read().unwrap();
        let of_network = known.iter().filter(|(network, _)| network == conf.text("name"));
        let valid: Vec<_> = of_network.map(|(_, id)| (id.as_str(), IFNAME)).collect();
        self.node.gc(conf, &valid).done();
        self.collections.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether a call failed in a way after which a runtime repeats it.
fn is_repeated(answer: &Answer) -> bool {
    let error: Value = serde_json::from_str(&answer.stdout).unwrap_or_default();
    !answer.status.success() && REPEATED.iter().any(|code| error["code"] == *code)
}
