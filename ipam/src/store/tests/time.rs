// SPDX-License-Identifier: Apache-2.0
//! Cooldown, boots, and waits for the lock.

use super::{dual, single};
use crate::testing::{Fixture, HANG, assert_error};
use common::cni::{Code, Error};
use serde_json::json;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

#[test]
fn the_rest_of_an_address_ignores_changes_of_the_wall_clock() {
    let fixture = single("10.0.0.4/32");
    fixture.add("a");
    fixture.del("a").unwrap();
    fixture.pass(Duration::from_secs(12));
    // The wall clock jumps a year ahead, then before the epoch.
    for jump in [
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_900_000_000),
        SystemTime::UNIX_EPOCH,
    ] {
        fixture.plugin.clock.now.set(jump);
        let error = fixture.try_add("b").unwrap_err();
        assert_error(&error, Code::TRY_AGAIN, &["try again in 18 s"]);
        assert_eq!(fixture.status().unwrap_err().code, Code::NOT_AVAILABLE);
    }
    fixture.pass(Duration::from_secs(18));
    fixture.status().unwrap();
    assert_eq!(fixture.add("b"), ["10.0.0.4"]);
    assert_eq!(fixture.names("resting"), [""; 0]);
}

#[test]
fn the_cooldown_can_be_set_and_disabled() {
    for (cooldown, wait) in [(0, 0), (5, 5), (600, 600)] {
        let fixture = Fixture::new(&json!({"subnet": "10.0.0.4/32", "cooldown": cooldown}));
        fixture.add("a");
        fixture.del("a").unwrap();
        if wait > 0 {
            fixture.pass(Duration::from_secs(wait - 1));
            assert_eq!(
                fixture.try_add("b").unwrap_err().code,
                Code::TRY_AGAIN,
                "cooldown {cooldown}"
            );
            fixture.pass(Duration::from_secs(1));
        }
        assert_eq!(fixture.add("b"), ["10.0.0.4"], "cooldown {cooldown}");
    }
}

#[test]
fn every_address_is_used_before_one_is_reused() {
    let fixture = Fixture::new(&json!({"subnet": "10.0.0.0/29", "gateway": "none", "cooldown": 0}));
    let given: Vec<String> = (0..8)
        .map(|i| {
            let ip = fixture.add(&format!("pod-{i}")).remove(0);
            fixture.del(&format!("pod-{i}")).unwrap();
            ip
        })
        .collect();
    let expected = [1, 2, 3, 4, 5, 6, 1, 2].map(|n| format!("10.0.0.{n}"));
    assert_eq!(given, expected);
}

#[test]
fn addresses_that_have_rested_do_not_pile_up() {
    let fixture = Fixture::new(&json!({"ranges": [[{"subnet": "fd00::/64"}]], "cooldown": 10}));
    let mut most = 0;
    for i in 0..1000 {
        fixture.add(&format!("pod-{i}"));
        fixture.del(&format!("pod-{i}")).unwrap();
        fixture.pass(Duration::from_secs(1));
        most = most.max(fixture.names("resting").len());
    }
    // Ten addresses are in cooldown at any time. One DEL of thirty-two sweeps, selected by a hash of the ids above.
    assert!(most <= 250, "{most} were there at a time");
}

/// If DEL listed all addresses in cooldown, its cost would grow with their number.
#[test]
fn the_cost_of_del_does_not_grow_with_the_resting_addresses() {
    let fixture = Fixture::new(&json!({"ranges": [[{"subnet": "fd00::/64"}]], "cooldown": 600}));
    for i in 0..400 {
        fixture.add(&format!("pod-{i}"));
        fixture.del(&format!("pod-{i}")).unwrap();
    }
    fixture.plugin.disk.listed.set(0);
    for i in 0..100 {
        fixture.add(&format!("more-{i}"));
        fixture.del(&format!("more-{i}")).unwrap();
    }
    let listed = fixture.plugin.disk.listed.get();
    assert!(
        listed < 100 * 400 / 4,
        "{listed} names were read by 100 ADDs and DELs"
    );
}

#[test]
fn gc_costs_time_linear_in_its_leases() {
    let listed = |leases: usize| {
        let fixture = Fixture::new(&json!({"ranges": [[{"subnet": "fd00::/64"}]], "cooldown": 600}));
        for i in 0..leases {
            fixture.add(&format!("pod-{i}"));
        }
        fixture.plugin.disk.listed.set(0);
        fixture.gc(&[]).unwrap();
        assert_eq!(fixture.names("leases"), [""; 0]);
        fixture.plugin.disk.listed.get()
    };
    let (one, two) = (listed(250), listed(500));
    assert!(two < one * 4, "{one} names for 250 leases, {two} for 500");
    assert!(one < 250 * 5, "{one} names for 250 leases");
}

/// The test takes the lock, if it is free, at each read of GC.
#[test]
fn gc_releases_the_lock_between_its_leases() {
    let fixture = Fixture::new(&json!({"ranges": [[{"subnet": "fd00::/64"}]]}));
    for i in 0..400 {
        fixture.add(&format!("pod-{i}"));
    }
    let lock = fs::File::open(fixture.network().join("lock")).unwrap();
    let (leases, free) = (fixture.file("leases"), Rc::new(RefCell::new(BTreeSet::new())));
    let left_when_free = Rc::clone(&free);
    let take = move || {
        if lock.try_lock().is_ok() {
            let left = fs::read_dir(&leases).unwrap().count();
            left_when_free.borrow_mut().insert(left);
            lock.unlock().unwrap();
        }
    };
    *fixture.plugin.disk.before_read.borrow_mut() = Some(Box::new(take));
    fixture.gc(&[]).unwrap();
    let free = free.borrow();
    assert!(
        free.iter().any(|left| (1..400).contains(left)),
        "the lock was free with these numbers of leases: {free:?}"
    );
    assert_eq!(fixture.names("leases"), [""; 0]);
}

#[test]
fn add_on_a_full_disk_removes_rested_addresses() {
    let fixture = Fixture::new(&json!({"subnet": "10.0.0.0/24", "gateway": "none", "cooldown": 1}));
    for id in ["a", "b", "c"] {
        fixture.add(id);
        fixture.del(id).unwrap();
    }
    assert_eq!(fixture.names("resting").len(), 3);
    // Two files fit into the space of three expired ones.
    fixture.plugin.disk.room.set(Some(0));
    assert_eq!(
        fixture.try_add("d").unwrap_err().code,
        Code::IO,
        "no cooldown is over yet"
    );
    assert_eq!(fixture.status().unwrap_err().code, Code::NOT_AVAILABLE);
    fixture.pass(Duration::from_secs(2));
    fixture.status().unwrap();
    fixture.add("d");
    fixture.assert_sound("after a full disk");
    assert_eq!(fixture.names("resting"), [""; 0]);
}

#[test]
fn leases_of_an_earlier_boot_are_void() {
    let fixture = dual(3);
    fixture.add("a");
    fixture.add("b");
    let old = fixture.file("");
    *fixture.plugin.clock.boot.borrow_mut() = "b0071111-0000-4000-8000-000000000002".to_owned();
    fixture.del("a").unwrap();
    assert!(old.exists(), "DEL creates nothing and removes nothing");
    let next = fixture.add("c");
    assert_eq!(
        next,
        ["10.0.0.3", "fd00::3"],
        "a peer may still know the addresses of the last boot"
    );
    assert!(!old.exists());
    fixture.assert_sound("after a boot");
    for i in 0..5 {
        fixture.add(&format!("all-{i}"));
    }
    assert_eq!(fixture.try_add("one-more").unwrap_err().code, Code::EXHAUSTED);
}

#[test]
fn del_without_a_lease_makes_no_files() {
    let fixture = single("10.0.0.0/24");
    fixture.del("a").unwrap();
    fixture.gc(&[]).unwrap();
    assert!(!fixture.network().exists());
}

#[test]
fn the_error_names_the_process_that_holds_the_lock() {
    let mut fixture = single("10.0.0.0/24");
    fixture.add("a");
    let file = fs::File::open(fixture.network().join("lock")).unwrap();
    file.lock().unwrap();
    fixture.plugin.lock_wait = Duration::from_millis(900);
    let me = format!("process {}", std::process::id());
    let names_me = |error: &Error| {
        assert_eq!(error.code, Code::TRY_AGAIN, "{error}");
        assert!(error.msg.contains("net/lock"), "{error}");
        error.msg.contains(&me)
    };
    // Other locks of this machine that end meanwhile can hide the process.
    assert!((0..100).any(|_| names_me(&fixture.try_add("b").map(|_| ()).unwrap_err())));
    assert!((0..100).any(|_| names_me(&fixture.del("a").unwrap_err())));
    file.unlock().unwrap();
    // The threads of the calls that failed may get the lock first.
    fixture.plugin.lock_wait = HANG;
    fixture.add("b");
}

/// Locks the store, calls `end` with the lock as soon as a call waits for it, and returns the addresses of that call.
fn add_while_locked(fixture: &Fixture, end: impl FnOnce(fs::File) + Send) -> Vec<String> {
    let file = fs::File::open(fixture.network().join("lock")).unwrap();
    file.lock().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !is_awaited(&file) {
                std::thread::sleep(Duration::from_millis(1));
            }
            end(file);
        });
        fixture.add("b")
    })
}

/// Whether a call waits for the lock on `file`. Source: `proc_locks(5)`.
fn is_awaited(file: &fs::File) -> bool {
    let inode = format!(":{} ", file.metadata().unwrap().ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let mut lines = locks.lines();
    lines.any(|line| line.contains("-> FLOCK") && line.contains(&inode))
}

#[test]
fn a_call_waits_for_the_lock() {
    let fixture = single("10.0.0.0/24");
    fixture.add("a");
    assert_eq!(add_while_locked(&fixture, drop), ["10.0.0.2"]);
}

#[test]
fn a_store_removed_under_a_waiting_call_is_recreated() {
    let fixture = single("10.0.0.0/24");
    fixture.add("a");
    let network = fixture.network();
    let given = add_while_locked(&fixture, |file| {
        fs::remove_dir_all(network).unwrap();
        drop(file);
    });
    assert_eq!(given, ["10.0.0.1"]);
    fixture.assert_sound("after the store was removed");
}
