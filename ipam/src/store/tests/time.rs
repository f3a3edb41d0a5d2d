// SPDX-License-Identifier: Apache-2.0
//! Rest, boots, and waiting for each other.

use super::{dual, single};
use crate::testing::Rig;
use common::cni::Code;
use serde_json::json;
use std::fs;
use std::time::{Duration, SystemTime};

#[test]
fn a_released_address_rests_by_the_clock_that_nobody_sets() {
    let rig = single("10.0.0.4/32");
    rig.add("a");
    rig.del("a").unwrap();
    rig.pass(Duration::from_secs(12));
    // The wall clock jumps a year ahead, then before the epoch.
    for jump in [
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_900_000_000),
        SystemTime::UNIX_EPOCH,
    ] {
        rig.plugin.clock.now.set(jump);
        let error = rig.try_add("b").unwrap_err();
        assert_eq!(error.code, Code::TRY_AGAIN, "{error}");
        assert!(error.msg.contains("try again in 18 s"), "{error}");
        assert_eq!(rig.status().unwrap_err().code, Code::NOT_AVAILABLE);
    }
    rig.pass(Duration::from_secs(18));
    rig.status().unwrap();
    assert_eq!(rig.add("b"), ["10.0.0.4"]);
    assert_eq!(rig.names("resting"), [""; 0]);
}

#[test]
fn the_rest_can_be_set_and_left_out() {
    for (cooldown, wait) in [(0, 0), (5, 5), (600, 600)] {
        let rig = Rig::new(&json!({"subnet": "10.0.0.4/32", "cooldown": cooldown}));
        rig.add("a");
        rig.del("a").unwrap();
        if wait > 0 {
            rig.pass(Duration::from_secs(wait - 1));
            assert_eq!(
                rig.try_add("b").unwrap_err().code,
                Code::TRY_AGAIN,
                "cooldown {cooldown}"
            );
            rig.pass(Duration::from_secs(1));
        }
        assert_eq!(rig.add("b"), ["10.0.0.4"], "cooldown {cooldown}");
    }
}

#[test]
fn addresses_come_round_before_they_come_back() {
    let rig = Rig::new(&json!({"subnet": "10.0.0.0/29", "gateway": "none", "cooldown": 0}));
    let given: Vec<String> = (0..8)
        .map(|i| {
            let ip = rig.add(&format!("pod-{i}")).remove(0);
            rig.del(&format!("pod-{i}")).unwrap();
            ip
        })
        .collect();
    let want = [1, 2, 3, 4, 5, 6, 1, 2].map(|n| format!("10.0.0.{n}"));
    assert_eq!(given, want);
}

#[test]
fn addresses_that_have_rested_do_not_pile_up() {
    let rig = Rig::new(&json!({"ranges": [[{"subnet": "fd00::/64"}]], "cooldown": 10}));
    for i in 0..300 {
        rig.add(&format!("pod-{i}"));
        rig.del(&format!("pod-{i}")).unwrap();
        rig.pass(Duration::from_secs(1));
    }
    assert!(
        rig.names("resting").len() <= 20,
        "{} are left",
        rig.names("resting").len()
    );
}

#[test]
fn leases_of_an_earlier_boot_are_nobodys() {
    let rig = dual(3);
    rig.add("a");
    rig.add("b");
    let old = rig.file("");
    *rig.plugin.clock.boot.borrow_mut() = "b0071111".to_owned();
    rig.del("a").unwrap();
    assert!(old.exists(), "DEL makes nothing and clears nothing");
    let next = rig.add("c");
    assert_eq!(
        next,
        ["10.0.0.3", "fd00::3"],
        "a peer may still know the addresses of the last boot"
    );
    assert!(!old.exists());
    rig.assert_sound("after a boot");
    for i in 0..5 {
        rig.add(&format!("all-{i}"));
    }
    assert_eq!(rig.try_add("one-more").unwrap_err().code, Code::EXHAUSTED);
}

#[test]
fn del_of_what_never_was_makes_no_files() {
    let rig = single("10.0.0.0/24");
    rig.del("a").unwrap();
    rig.gc(&[]).unwrap();
    assert!(!rig.network().exists());
}

#[test]
fn whoever_keeps_the_lock_is_named() {
    let rig = single("10.0.0.0/24");
    rig.add("a");
    let file = fs::File::open(rig.network().join("lock")).unwrap();
    file.lock().unwrap();
    for error in [
        rig.try_add("b").map(|_| ()).unwrap_err(),
        rig.del("a").unwrap_err(),
    ] {
        assert_eq!(error.code, Code::TRY_AGAIN, "{error}");
        let me = format!("process {}", std::process::id());
        assert!(
            error.msg.contains("net/lock") && error.msg.contains(&me),
            "{error}"
        );
    }
    file.unlock().unwrap();
    rig.add("b");
}

#[test]
fn a_short_wait_for_the_lock_is_no_error() {
    let rig = single("10.0.0.0/24");
    rig.add("a");
    let file = fs::File::open(rig.network().join("lock")).unwrap();
    file.lock().unwrap();
    let holder = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        drop(file);
    });
    assert_eq!(rig.add("b"), ["10.0.0.2"]);
    holder.join().unwrap();
}

#[test]
fn a_store_removed_under_a_waiting_call_is_made_anew() {
    let rig = single("10.0.0.0/24");
    rig.add("a");
    let file = fs::File::open(rig.network().join("lock")).unwrap();
    file.lock().unwrap();
    let network = rig.network();
    let administrator = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        fs::remove_dir_all(network).unwrap();
        drop(file);
    });
    assert_eq!(rig.add("b"), ["10.0.0.1"]);
    administrator.join().unwrap();
    rig.assert_sound("after the store was removed");
}
