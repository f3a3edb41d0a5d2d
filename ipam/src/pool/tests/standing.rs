// SPDX-License-Identifier: Apache-2.0
use super::pool;
use crate::clock::Clock;
use crate::pool::{Confirmed, Standing};
use crate::testing::{BOOT_ID, HandClock};
use common::cni::Error;
use std::cell::Cell;
use std::time::{Duration, SystemTime};

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
}

fn clock(now: u64) -> HandClock {
    HandClock {
        boot: std::cell::RefCell::default(),
        since_boot: Cell::default(),
        now: Cell::new(at(now)),
        synchronized: Cell::new(true),
    }
}

fn standing(boot: &str, now: u64, confirmed: Option<u64>) -> Standing {
    Standing::of(&pool(), boot, &clock(now), || confirmed.map(|s| Confirmed(at(s))))
}

/// After days without power, the clock of a node may start at the time of its shutdown.
#[test]
fn after_a_reboot_an_unsynchronized_clock_proves_nothing() {
    let clock = clock(105);
    clock.synchronized.set(false);
    let standing = |boot: &str| Standing::of(&pool(), boot, &clock, || Some(Confirmed(at(100))));
    let Standing::Unproven(why) = standing("other") else {
        panic!("the age comes from a clock that nothing has set");
    };
    assert!(
        why.contains("5 s ago by a clock that no time service has set"),
        "{why}"
    );
    assert_eq!(
        standing(BOOT_ID),
        Standing::Good,
        "in the agent's boot, no clock is needed"
    );
}

/// A clock that a time service sets just after the plugin has read the time.
struct SetLater(HandClock);

impl Clock for SetLater {
    fn boot_id(&self) -> Result<String, Error> {
        self.0.boot_id()
    }

    fn since_boot(&self) -> Result<Duration, Error> {
        self.0.since_boot()
    }

    fn now(&self) -> SystemTime {
        self.0.synchronized.set(true);
        self.0.now()
    }

    fn is_synchronized(&self) -> Result<bool, Error> {
        self.0.is_synchronized()
    }
}

#[test]
fn a_time_that_was_read_before_the_clock_was_set_proves_nothing() {
    let clock = SetLater(clock(105));
    clock.0.synchronized.set(false);
    let standing = Standing::of(&pool(), "other", &clock, || Some(Confirmed(at(100))));
    assert!(matches!(standing, Standing::Unproven(_)), "{standing:?}");
}

#[test]
fn blocks_stay_valid_during_the_boot_of_their_confirmation() {
    assert_eq!(standing(BOOT_ID, 1_000_000, Some(0)), Standing::Good);
    assert_eq!(standing(BOOT_ID, 0, None), Standing::Good);
}

#[test]
fn after_a_reboot_blocks_are_valid_until_the_quarantine_ends() {
    assert_eq!(standing("other", 100, Some(100)), Standing::Good);
    assert_eq!(standing("other", 699, Some(100)), Standing::Good);
    let Standing::Unproven(why) = standing("other", 700, Some(100)) else {
        panic!("600 s are not less than the quarantine");
    };
    assert!(
        why.contains("600 s ago, and after 600 s other nodes may own them"),
        "{why}"
    );
}

#[test]
fn after_a_reboot_a_clock_that_was_set_back_proves_nothing() {
    let Standing::Unproven(why) = standing("other", 99, Some(100)) else {
        panic!("a time in the future proves nothing");
    };
    assert!(why.contains("in the future by this node's clock"), "{why}");
    assert!(matches!(standing("other", 99, None), Standing::Unproven(_)));
}

#[test]
fn a_confirmation_is_rounded_down() {
    let exact = at(5) + Duration::from_millis(999);
    let read = Confirmed::read(Confirmed(exact).to_line().as_bytes()).unwrap();
    assert_eq!(read, Confirmed(at(5)));
    for damaged in ["", "2026-01-0", "yesterday", "\0\0\0\0"] {
        assert_eq!(Confirmed::read(damaged.as_bytes()), None, "{damaged:?}");
    }
}
