// SPDX-License-Identifier: Apache-2.0

use super::*;
use std::cell::{Cell, RefCell};

/// A plugin that refuses the first calls of each verb, and a clock without waiting.
struct Fake {
    refuses: [(&'static str, usize); 2],
    calls: RefCell<Vec<String>>,
    pauses: RefCell<Vec<Duration>>,
    now: Cell<Instant>,
}

impl Fake {
    fn new(adds: usize, dels: usize) -> Self {
        Self {
            refuses: [("ADD", adds), ("DEL", dels)],
            calls: RefCell::default(),
            pauses: RefCell::default(),
            now: Cell::new(Instant::now()),
        }
    }

    fn in_an_hour(&self) -> Instant {
        self.now.get() + Duration::from_secs(3600)
    }
}

impl Fake {
    fn call(&self, verb: &'static str, sandbox: &str) -> Answer {
        let mut calls = self.calls.borrow_mut();
        let before = calls.iter().filter(|call| call.starts_with(verb)).count();
        calls.push(format!("{verb} {sandbox}"));
        let refuses = self.refuses.iter().find(|(of, _)| *of == verb).unwrap().1;
        let succeeded = before >= refuses;
        Answer {
            time: Duration::ZERO,
            succeeded,
            ended: true,
            stdout: if succeeded {
                r#"{"ips":[{"address":"10.0.0.7/22"}]}"#.to_owned()
            } else {
                "busy".to_owned()
            },
        }
    }
}

impl Runtime for Fake {
    fn add(&self, sandbox: &str, deadline: Instant) -> Option<Answer> {
        (self.now() < deadline).then(|| self.call("ADD", sandbox))
    }

    fn del(&self, sandbox: &str) -> Answer {
        self.call("DEL", sandbox)
    }

    fn wait(&self, time: Duration) {
        self.pauses.borrow_mut().push(time);
        self.now.set(self.now.get() + time);
    }

    fn now(&self) -> Instant {
        self.now.get()
    }
}

#[test]
fn a_refused_sandbox_ends_before_the_next_one_starts() {
    let fake = Fake::new(2, 0);
    let started = start("a", fake.in_an_hour(), &fake);
    assert_eq!(
        *fake.calls.borrow(),
        ["ADD a-0", "DEL a-0", "ADD a-1", "DEL a-1", "ADD a-2"]
    );
    assert_eq!(started.address, Some("10.0.0.7".parse().unwrap()));
    assert_eq!((started.sandbox.as_str(), started.refused), ("a-2", 2));
    assert_eq!(started.error, "busy");
}

#[test]
fn kubelet_waits_ten_to_fifteen_seconds_after_an_error() {
    let fake = Fake::new(50, 0);
    start("a", fake.in_an_hour(), &fake);
    let pauses = fake.pauses.borrow();
    assert_eq!(pauses.len(), 50);
    assert!(
        pauses
            .iter()
            .all(|pause| (10.0..=15.0).contains(&pause.as_secs_f64())),
        "{pauses:?}"
    );
}

#[test]
fn a_pod_without_an_address_gives_up_at_the_time_limit() {
    let fake = Fake::new(usize::MAX, 0);
    let deadline = fake.now() + Duration::from_secs(60);
    let started = start("a", deadline, &fake);
    assert_eq!(started.address, None);
    assert!(started.at < deadline);
    assert_eq!(
        fake.calls.borrow().last().unwrap(),
        &format!("DEL {}", started.sandbox)
    );
}

#[test]
fn a_failed_del_is_repeated() {
    let fake = Fake::new(0, 3);
    assert_eq!(end("a-0", fake.in_an_hour(), &fake), 3);
    assert_eq!(*fake.calls.borrow(), ["DEL a-0"; 4]);
}

#[test]
fn a_pod_of_a_busy_node_starts_no_sandbox_after_the_time_limit() {
    let fake = Fake::new(0, 0);
    let started = start("a", fake.now(), &fake);
    assert_eq!((started.address, started.refused), (None, 0));
    assert!(fake.calls.borrow().is_empty());
}
