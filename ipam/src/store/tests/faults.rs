// SPDX-License-Identifier: Apache-2.0
//! Every change of every verb fails or is the last one of its process, one after the other.

use super::{dual, single};
use crate::testing::{Fault, Fixture, assert_error};
use common::cni::Code;
use nix::libc::{EIO, ENOSPC};
use std::time::Duration;

/// Calls `case` with the number of each change in turn, until `case` reports that there was no such change.
fn at_every_step(mut case: impl FnMut(usize) -> bool) {
    let steps = (0..100).take_while(|at| case(*at)).count();
    assert!(
        (3..100).contains(&steps),
        "{steps} steps were tried, which cannot be all"
    );
}

/// Invariant after every case: the store is consistent and usable, and has lost no address.
fn assert_recovers(fixture: &Fixture, when: &str) {
    fixture.fault(Fault::None);
    fixture.add("later");
    fixture.assert_sound(when);
    for id in ["a", "b", "later"] {
        fixture
            .del(id)
            .unwrap_or_else(|e| panic!("{when}: DEL {id}: {e:?}"));
        fixture
            .del(id)
            .unwrap_or_else(|e| panic!("{when}: second DEL {id}: {e:?}"));
    }
    fixture.assert_sound(when);
    assert!(
        fixture.names("leases").is_empty(),
        "{when}: {:?}",
        fixture.names("leases")
    );
    fixture.pass(Duration::from_secs(60));
    for i in 0..6 {
        fixture.add(&format!("all-{i}"));
    }
    assert_eq!(
        fixture.try_add("one-more").unwrap_err().code,
        Code::EXHAUSTED,
        "{when}"
    );
    fixture.assert_sound(when);
}

#[test]
fn a_failure_at_any_step_of_add_leaves_nothing() {
    for errno in [EIO, ENOSPC] {
        at_every_step(|at| {
            let fixture = dual(3);
            fixture.add("b");
            fixture.fault(Fault::Fail { at, errno });
            let answer = fixture.try_add("a");
            let met = fixture.fault_was_met();
            let when = format!("ADD failed with {errno} at {at}");
            fixture.fault(Fault::None);
            match answer {
                Ok(_) => assert_eq!(fixture.names("leases"), ["a@eth0", "b@eth0"], "{when}"),
                Err(error) => {
                    assert_eq!(error.code, Code::IO, "{when}: {error:?}");
                    assert!(error.msg.contains("/net/"), "{when}: {error} names no file");
                    assert_eq!(fixture.names("leases"), ["b@eth0"], "{when}");
                    fixture.assert_sound(&when);
                }
            }
            assert_recovers(&fixture, &when);
            met
        });
    }
}

#[test]
fn a_failure_at_any_step_of_the_first_add_leaves_nothing() {
    at_every_step(|at| {
        let fixture = dual(3);
        fixture.fault(Fault::Fail { at, errno: ENOSPC });
        let answer = fixture.try_add("a");
        let met = fixture.fault_was_met();
        if let Err(error) = &answer {
            assert!(error.msg.contains("free space or inodes"), "{error}");
        }
        assert_recovers(&fixture, &format!("the first ADD failed at {at}"));
        met
    });
}

#[test]
fn add_killed_at_any_step_loses_no_address() {
    for torn in [false, true] {
        at_every_step(|at| {
            let fixture = dual(3);
            let of_b = fixture.add("b");
            fixture.fault(Fault::Die { at, torn });
            let answer = fixture.try_add("a");
            let met = fixture.fault_was_met();
            let when = format!("ADD died at {at}, torn {torn}");
            fixture.fault(Fault::None);
            let again = fixture.add("a");
            if let Ok(result) = answer {
                let first: Vec<String> = result.ips.iter().map(|ip| ip.address.ip().to_string()).collect();
                assert_eq!(again, first, "{when}: an answer that was given must hold");
            }
            assert!(
                again.iter().all(|ip| !of_b.contains(ip)),
                "{when}: {again:?} and {of_b:?}"
            );
            assert_eq!(fixture.add("b"), of_b, "{when}");
            assert_recovers(&fixture, &when);
            met
        });
    }
}

#[test]
fn the_first_add_of_a_boot_killed_at_any_step_loses_no_address() {
    at_every_step(|at| {
        let fixture = dual(3);
        fixture.add("old");
        *fixture.plugin.clock.boot.borrow_mut() = "b0071111-0000-4000-8000-000000000002".to_owned();
        fixture.fault(Fault::Die { at, torn: true });
        // The result does not matter here: the process may have been killed after its last change.
        let _ = fixture.try_add("a");
        let met = fixture.fault_was_met();
        assert_recovers(&fixture, &format!("the first ADD of a boot died at {at}"));
        met
    });
}

#[test]
fn del_killed_at_any_step_loses_no_address() {
    for torn in [false, true] {
        at_every_step(|at| {
            let fixture = dual(3);
            fixture.add("a");
            fixture.add("b");
            fixture.fault(Fault::Die { at, torn });
            // The result does not matter here: the process may have been killed after its last change.
            let _ = fixture.del("a");
            let met = fixture.fault_was_met();
            assert_recovers(&fixture, &format!("DEL died at {at}, torn {torn}"));
            met
        });
    }
}

#[test]
fn a_failure_at_any_step_of_del_is_repaired_by_the_next_call() {
    at_every_step(|at| {
        let fixture = dual(3);
        fixture.add("a");
        fixture.add("b");
        fixture.fault(Fault::Fail { at, errno: EIO });
        let answer = fixture.del("a");
        let met = fixture.fault_was_met();
        if let Err(error) = answer {
            assert_error(&error, Code::IO, &["/net/", "dmesg"]);
        }
        assert_recovers(&fixture, &format!("DEL failed at {at}"));
        met
    });
}

#[test]
fn a_call_killed_during_recovery_loses_no_address() {
    for first in 0..12 {
        for second in 0..8 {
            let fixture = dual(3);
            fixture.add("a");
            fixture.fault(Fault::Die {
                at: first,
                torn: true,
            });
            // The results do not matter: both are killed.
            let _ = if first % 2 == 0 {
                fixture.try_add("b").map(|_| ())
            } else {
                fixture.del("a")
            };
            fixture.fault(Fault::Die {
                at: second,
                torn: true,
            });
            let _ = fixture.try_add("c");
            let when = format!("died at {first}, then at {second}");
            fixture.fault(Fault::None);
            fixture.del("c").unwrap();
            fixture.pass(Duration::from_secs(60));
            assert_recovers(&fixture, &when);
        }
    }
}

#[test]
fn del_succeeds_on_a_full_disk_and_frees_the_address() {
    let fixture = single("10.0.0.4/32");
    fixture.add("a");
    fixture.fault(Fault::Full);
    fixture.del("a").unwrap();
    assert_eq!(fixture.names("addresses"), [""; 0]);
    let error = fixture.try_add("b").unwrap_err();
    assert_error(
        &error,
        Code::IO,
        &["free space or inodes on that file system (df, df -i)"],
    );
    fixture.fault(Fault::None);
    assert_eq!(fixture.add("b"), ["10.0.0.4"]);
    fixture.assert_sound("after a full disk");
}

#[test]
fn del_killed_at_any_step_on_a_full_disk_is_finished_by_the_next_del_or_gc() {
    for by_gc in [false, true] {
        at_every_step(|at| {
            let fixture = dual(3);
            let added = fixture.try_add("a").unwrap();
            let of_b = fixture.add("b");
            fixture.fault(Fault::DieFull { at });
            // The result does not matter here: the process may have been killed after its last change.
            let _ = fixture.del("a");
            let met = fixture.fault_was_met();
            let when = format!("DEL died on a full disk at {at}, by GC {by_gc}");
            fixture.fault(Fault::None);
            let of_c = fixture.add("c");
            assert!(
                of_c.iter().all(|ip| !of_b.contains(ip)),
                "{when}: {of_c:?} and {of_b:?}"
            );
            if fixture.names("leases").contains(&"a@eth0".to_owned()) {
                assert_eq!(fixture.try_add("a").unwrap(), added, "{when}");
                fixture.check("a", &added).unwrap();
            }
            fixture.pass(Duration::from_secs(1));
            if by_gc {
                fixture.gc(&["b", "c"]).unwrap();
            } else {
                fixture.del_after("a", &added).unwrap();
            }
            fixture.assert_sound(&when);
            fixture.del("c").unwrap();
            fixture.pass(Duration::from_secs(60));
            assert_recovers(&fixture, &when);
            met
        });
    }
}

#[test]
fn a_late_del_keeps_an_address_that_another_pod_has_by_now() {
    let fixture = single("10.0.0.4/32");
    let added = fixture.try_add("a").unwrap();
    fixture.del("a").unwrap();
    fixture.pass(Duration::from_secs(60));
    fixture.add("b");
    fixture.del_after("a", &added).unwrap();
    assert_eq!(fixture.names("addresses"), ["10.0.0.4"]);
    fixture.assert_sound("after a late DEL");
}

#[test]
fn a_full_disk_keeps_no_address_of_a_store_that_was_copied_without_hard_links() {
    let fixture = single("10.0.0.4/32");
    fixture.add("a");
    let address = fixture.file("addresses/10.0.0.4");
    let content = std::fs::read(&address).unwrap();
    std::fs::remove_file(&address).unwrap();
    std::fs::write(&address, content).unwrap();
    fixture.fault(Fault::Full);
    fixture.del("a").unwrap();
    assert_eq!(fixture.names("addresses"), [""; 0]);
}

#[test]
fn a_full_disk_keeps_no_address_of_a_damaged_lease() {
    let fixture = dual(3);
    fixture.add("a");
    std::fs::write(fixture.file("leases/a@eth0"), "x").unwrap();
    fixture.fault(Fault::Full);
    fixture.del("a").unwrap();
    assert_eq!(fixture.names("addresses"), [""; 0]);
}

#[test]
fn a_read_only_store_can_still_be_queried() {
    let fixture = single("10.0.0.0/24");
    let added = fixture.try_add("a").unwrap();
    fixture.fault(Fault::ReadOnly);
    assert_eq!(fixture.try_add("a").unwrap(), added, "ADD again");
    fixture.check("a", &added).unwrap();
    fixture.del("unknown").unwrap();
    for error in [
        fixture.try_add("b").map(|_| ()).unwrap_err(),
        fixture.del("a").unwrap_err(),
    ] {
        assert_error(&error, Code::IO, &["remount it writable"]);
    }
    let error = fixture.status().unwrap_err();
    assert_error(&error, Code::NOT_AVAILABLE, &["remount it writable"]);
    fixture.fault(Fault::None);
    fixture.del("a").unwrap();
    fixture.assert_sound("after a read-only disk");
}

/// GC goes on with the next lease after a failure.
#[test]
fn after_a_failure_at_any_step_of_gc_each_address_rests() {
    at_every_step(|at| {
        let fixture = single("10.0.0.0/29");
        fixture.add("a");
        fixture.add("b");
        fixture.fault(Fault::Fail { at, errno: EIO });
        let _ = fixture.gc(&[]);
        let met = fixture.fault_was_met();
        fixture.fault(Fault::None);
        fixture.gc(&[]).unwrap();
        assert_eq!(fixture.names("resting").len(), 2, "GC failed at {at}");
        met
    });
}
