// SPDX-License-Identifier: Apache-2.0
//! The operations of the node's agent on a store.

use super::single;
use crate::pool::{Confirmed, PoolFile, PoolRange, Standing};
use crate::store::{BlockUse, Locked, Released, RequestId, Sandbox, Store};
use crate::testing::{Fault, Fixture, attachment, pool_file};
use common::cni::{CniResult, Code, Error, IpConfig};
use ipnetwork::IpNetwork;
use nix::libc::EIO;
use std::net::IpAddr;
use std::time::Duration;

/// A pool with one block, after its `generation`th edit.
fn pool(generation: i64) -> PoolFile {
    PoolFile {
        generation,
        ..pool_file("rail0", &["10.0.0.0/28"])
    }
}

/// A lease of `id` on `ip`, which is also an object of the cluster.
fn commit_api(locked: &Locked, id: &str, ip: IpAddr) -> Result<(), Error> {
    let ips = vec![IpConfig {
        address: ip.into(),
        gateway: None,
        interface: None,
        probe: false,
    }];
    let result = CniResult {
        ips,
        ..CniResult::default()
    };
    let mut lease = locked.draft(&attachment(id), Sandbox::default(), result)?;
    lease.api = vec![ip];
    locked.commit(&lease)
}

#[test]
fn a_pool_is_replaced_atomically_whatever_step_fails() {
    let mut steps = 0;
    loop {
        let fixture = single("10.0.0.0/24");
        fixture.with_store(|store| {
            store.enter().unwrap().write_pool(&pool(1)).unwrap();
        });
        let fault = if steps % 2 == 0 {
            Fault::Fail {
                at: steps / 2,
                errno: EIO,
            }
        } else {
            Fault::Die {
                at: steps / 2,
                torn: true,
            }
        };
        let (written, met) = fixture.with_store(|store| {
            let locked = store.enter().unwrap();
            fixture.fault(fault);
            let written = locked.write_pool(&pool(2));
            let met = fixture.fault_was_met();
            fixture.fault(Fault::None);
            (written, met)
        });
        let found = fixture.with_store(|store| store.pool().unwrap().unwrap().generation);
        if written.is_ok() {
            assert_eq!(found, 2, "{fault:?}");
        } else {
            assert!((1..=2).contains(&found), "{fault:?}");
        }
        if !met {
            break;
        }
        steps += 1;
    }
    assert_eq!(steps, 8, "create, sync, rename, sync; each fails and each dies");
}

/// Records that the API server has confirmed the blocks now.
fn confirm(fixture: &Fixture, store: &Store) {
    let now = fixture.plugin.clock.since_boot.get();
    store.confirm(now, Duration::ZERO).unwrap();
}

#[test]
fn a_confirmation_is_valid_in_the_next_boot() {
    let fixture = single("10.0.0.0/24");
    fixture.with_store(|store| {
        let locked = store.enter().unwrap();
        locked.write_pool(&pool(1)).unwrap();
        assert_eq!(store.standing(&pool(1)), Standing::Good);
        confirm(&fixture, store);
    });
    *fixture.plugin.clock.boot.borrow_mut() = "b0071111-0000-4000-8000-000000000002".to_owned();
    fixture.with_store(|store| {
        assert_eq!(store.standing(&pool(1)), Standing::Good);
    });
    let later = fixture.plugin.clock.now.get() + Duration::from_secs(601);
    fixture.plugin.clock.now.set(later);
    fixture.with_store(|store| {
        assert!(matches!(store.standing(&pool(1)), Standing::Unproven(_)));
    });
}

/// The clock of the first boot is ahead by days, and the node is off for days.
#[test]
fn a_clock_that_no_time_service_has_set_confirms_nothing() {
    let fixture = single("10.0.0.0/24");
    let clock = &fixture.plugin.clock;
    fixture.with_store(|store| {
        store.enter().unwrap().write_pool(&pool(1)).unwrap();
        confirm(&fixture, store);
        clock.synchronized.set(false);
        clock.now.set(clock.now.get() + Duration::from_secs(86400));
        confirm(&fixture, store);
        assert_eq!(store.confirmed(), None);
        assert!(!fixture.file("confirmed").exists());
        // Another time, because there is nothing to remove.
        confirm(&fixture, store);
    });
    clock.synchronized.set(true);
    *clock.boot.borrow_mut() = "b0071111-0000-4000-8000-000000000002".to_owned();
    fixture.with_store(|store| {
        assert!(matches!(store.standing(&pool(1)), Standing::Unproven(_)));
    });
}

#[test]
fn a_confirmation_is_dated_to_the_request_and_renewed_when_it_is_old() {
    let fixture = single("10.0.0.0/24");
    let seconds = Duration::from_secs;
    let clock = &fixture.plugin.clock;
    let (boot, day) = (clock.since_boot.get(), clock.now.get());
    let confirm = |asked: u64, now: u64| {
        clock.since_boot.set(boot + seconds(now));
        clock.now.set(day + seconds(now));
        fixture.with_store(|store| {
            store.confirm(boot + seconds(asked), seconds(10)).unwrap();
            store.confirmed()
        })
    };
    fixture.with_store(|store| store.enter().unwrap().write_pool(&pool(1)).unwrap());
    assert_eq!(confirm(0, 7), Some(Confirmed(day)));
    assert_eq!(confirm(10, 10), Some(Confirmed(day)));
    assert_eq!(confirm(11, 12), Some(Confirmed(day + seconds(11))));
}

#[test]
fn reserved_addresses_are_counted_separately() {
    let fixture = single("10.0.0.0/24");
    fixture.add("a");
    fixture.add("b");
    let reserving = PoolFile {
        reserved: vec!["10.0.0.2-10.0.0.9".to_owned()],
        ..pool(1)
    };
    fixture.with_store(|store| {
        let locked = store.enter().unwrap();
        locked.write_pool(&reserving).unwrap();
        let usage = locked
            .usage(Some(&reserving), &["10.0.0.0/28".parse().unwrap()])
            .unwrap();
        assert_eq!((usage[0].taken, usage[0].unusable), (2, 1));
    });
}

/// An edit may exclude an address that a pod has, or one that a pod has just released.
#[test]
fn excluded_addresses_are_counted_separately() {
    let fixture = single("10.0.0.0/24");
    for id in ["a", "b", "c", "d"] {
        fixture.add(id);
    }
    fixture.del("a").unwrap();
    fixture.del("d").unwrap();
    let usage = |edit: fn(&mut PoolRange)| {
        let mut file = pool(1);
        edit(&mut file.ranges[0]);
        let blocks = ["10.0.0.0/28".parse().unwrap()];
        let usage = fixture.with_store(|store| store.enter().unwrap().usage(Some(&file), &blocks));
        let [usage] = usage.unwrap().try_into().unwrap();
        (usage.taken, usage.resting, usage.unusable)
    };
    assert_eq!(usage(|_| ()), (2, 2, 0));
    let excluded = usage(|range| range.exclude = vec!["10.0.0.1-10.0.0.2".to_owned()]);
    assert_eq!(excluded, (2, 2, 2));
    let shorter = usage(|range| range.start = Some("10.0.0.4".parse().unwrap()));
    assert_eq!(shorter, (2, 2, 3));
}

#[test]
fn a_block_is_idle_once_no_address_is_held_or_rests() {
    let fixture = single("10.0.0.0/24");
    fixture.add("a");
    fixture.add("b");
    let blocks = [
        "10.0.0.0/31".parse().unwrap(),
        "10.0.0.2/31".parse().unwrap(),
        "10.0.0.4/30".parse().unwrap(),
    ];
    let usage =
        |fixture: &Fixture| fixture.with_store(|store| store.enter().unwrap().usage(None, &blocks).unwrap());
    let taken = BlockUse {
        taken: 1,
        ..BlockUse::default()
    };
    assert_eq!(
        usage(&fixture),
        [taken.clone(), taken.clone(), BlockUse::default()]
    );
    fixture.del("b").unwrap();
    let resting = BlockUse {
        resting: 1,
        ..BlockUse::default()
    };
    assert_eq!(usage(&fixture)[1], resting);
    fixture.pass(Duration::from_secs(31));
    assert_eq!(
        usage(&fixture).iter().map(BlockUse::is_idle).collect::<Vec<_>>(),
        [false, true, true]
    );
    std::fs::write(fixture.file("addresses/10.0.0.6"), "").unwrap();
    assert!(
        !usage(&fixture)[2].is_idle(),
        "an address blocked by hand is not returned with its block"
    );
}

#[test]
fn a_block_keeps_an_address_whose_lease_ended_without_del_for_a_quarantine() {
    let fixture = single("10.0.0.0/24");
    fixture.add("a");
    fixture.release_without_del("a").unwrap();
    let usage = || {
        let blocks = ["10.0.0.0/28".parse().unwrap()];
        fixture.with_store(|store| store.enter().unwrap().usage(Some(&pool(1)), &blocks).unwrap())
    };
    fixture.pass(Duration::from_secs(31));
    let suspect = BlockUse {
        suspect: 1,
        ..BlockUse::default()
    };
    assert_eq!(usage(), [suspect]);
    fixture.pass(Duration::from_secs(pool(1).quarantine_seconds.into()));
    assert_eq!(usage(), [BlockUse::default()]);
}

#[test]
fn a_lease_is_released_only_if_it_is_unchanged() {
    let fixture = single("10.0.0.0/24");
    fixture.add("a");
    fixture.add("b");
    let intact = fixture.with_store(|store| store.leases().unwrap().intact);
    assert_eq!(intact.len(), 2);
    // b has another lease now, with the same owner and name.
    fixture.del("b").unwrap();
    fixture.add("b");
    fixture.del("gone").unwrap();
    fixture.with_store(|store| {
        let locked = store.enter().unwrap();
        for lease in &intact {
            let is_a = lease.lease.owner == attachment("a");
            assert_eq!(locked.release_unchanged(lease).unwrap(), is_a);
            assert!(!locked.release_unchanged(lease).unwrap(), "it has ended already");
        }
    });
    assert_eq!(fixture.names("leases"), ["b@eth0"]);
    fixture.assert_sound("after a release");
}

#[test]
fn a_damaged_lease_is_reported_and_keeps_its_addresses() {
    let fixture = single("10.0.0.0/24");
    fixture.add("a");
    std::fs::write(fixture.file("leases/a@eth0"), "{").unwrap();
    let leases = fixture.with_store(|store| store.leases().unwrap());
    assert!(leases.intact.is_empty());
    let [(owner, error)] = leases.damaged.as_slice() else {
        panic!("{leases:?}");
    };
    assert_eq!((owner, error.code), (&attachment("a"), Code::STORE_CORRUPT));
}

/// The taken addresses of the store that no readable lease has, with whether an administrator blocked them.
fn unattributed(fixture: &Fixture) -> Vec<(String, bool)> {
    let (_, mut others) = fixture.with_store(|store| store.enter().unwrap().held().unwrap());
    others.sort_by_key(|one| one.ip);
    let described = others.iter().map(|one| (one.ip.to_string(), one.is_blocked));
    described.collect()
}

#[test]
fn an_address_without_a_readable_lease_is_told_from_one_that_is_blocked() {
    let fixture = single("10.0.0.0/24");
    for container in ["a", "b", "c", "d"] {
        fixture.add(container);
    }
    assert_eq!(unattributed(&fixture), []);
    // Damaged, empty, and missing.
    std::fs::write(fixture.file("leases/a@eth0"), "{").unwrap();
    std::fs::write(fixture.file("leases/b@eth0"), "").unwrap();
    std::fs::remove_file(fixture.file("leases/c@eth0")).unwrap();
    std::fs::write(fixture.file("addresses/10.0.0.9"), "").unwrap();
    let expected = [
        ("10.0.0.1", false),
        ("10.0.0.2", false),
        ("10.0.0.3", false),
        ("10.0.0.9", true),
    ];
    assert_eq!(
        unattributed(&fixture),
        expected.map(|(ip, blocked)| (ip.to_owned(), blocked))
    );
}

#[test]
fn a_lease_on_a_bad_sector_keeps_its_address() {
    // A bad sector of the directory `leases`, or of the inode, which both names have.
    let (directory, inode) = (
        &["leases/a@eth0"][..],
        &["leases/a@eth0", "addresses/10.0.0.1"][..],
    );
    for bad in [directory, inode] {
        let fixture = single("10.0.0.0/24");
        fixture.add("a");
        fixture.plugin.disk.unreadable.set(bad);
        let leases = fixture.with_store(|store| store.leases().unwrap());
        assert_eq!((leases.intact.len(), leases.damaged.len()), (0, 1), "{leases:?}");
        assert_eq!(
            unattributed(&fixture),
            [("10.0.0.1".to_owned(), false)],
            "{bad:?}"
        );
        // GC reports the error.
        fixture.gc(&["b"]).unwrap_err();
        assert_eq!(fixture.names("addresses"), ["10.0.0.1"], "{bad:?}");
    }
}

#[test]
fn an_address_of_the_cluster_goes_to_the_agent_without_resting() {
    let fixture = single("10.0.0.0/24");
    let ip: IpAddr = "10.0.0.200".parse().unwrap();
    fixture.with_store(|store| {
        let locked = store.enter().unwrap();
        locked
            .begin_asking(&attachment("a"), &RequestId::random())
            .unwrap();
        assert!(locked.is_asking(&attachment("a")));
        commit_api(&locked, "a", ip).unwrap();
        locked.end_asking(&attachment("a")).unwrap();
        assert!(locked.holds(ip).unwrap() && !store.is_asking(&attachment("a")));
    });
    fixture.assert_sound("with an address of the cluster");
    fixture.del("a").unwrap();
    fixture.assert_sound("after DEL");
    assert!(fixture.names("resting").is_empty());
    fixture.with_store(|store| {
        let releases = store.releases().unwrap();
        let [one] = releases.as_slice() else {
            panic!("{releases:?}");
        };
        assert_eq!(one.ip, ip);
        assert_eq!(one.lease.as_ref().unwrap().owner, attachment("a"));
        assert!(one.ended.is_some(), "the agent needs the start of the cooldown");
        let locked = store.enter().unwrap();
        locked.end_release(one).unwrap();
        locked.end_release(one).unwrap();
        assert!(store.releases().unwrap().is_empty());
    });
}

#[test]
fn a_later_release_of_an_address_is_not_ended_with_an_earlier_one() {
    let fixture = single("10.0.0.0/24");
    let ip: IpAddr = "10.0.0.200".parse().unwrap();
    let once = |id: &str| {
        fixture.with_store(|store| {
            commit_api(&store.enter().unwrap(), id, ip).unwrap();
        });
        fixture.del(id).unwrap();
    };
    once("a");
    let first = fixture.with_store(|store| store.releases().unwrap().remove(0));
    once("b");
    fixture.with_store(|store| {
        store.enter().unwrap().end_release(&first).unwrap();
        let left = store.releases().unwrap();
        assert_eq!(left[0].lease.as_ref().unwrap().owner, attachment("b"), "{left:?}");
    });
}

#[test]
fn a_lease_of_a_released_address_ends_the_record_of_its_release() {
    let fixture = single("10.0.0.0/24");
    let ip: IpAddr = "10.0.0.200".parse().unwrap();
    let add = || fixture.with_store(|store| commit_api(&store.enter().unwrap(), "a", ip));
    let releases = || fixture.with_store(|store| store.releases().unwrap());
    add().unwrap();
    fixture.del("a").unwrap();
    assert_eq!(releases().len(), 1);
    add().unwrap();
    assert_eq!(releases(), []);
    fixture.del("a").unwrap();
    assert_eq!(releases().len(), 1, "each DEL has a record");
}

#[test]
fn add_killed_at_any_step_leaves_the_record_of_a_release_without_a_lease() {
    let ip: IpAddr = "10.0.0.200".parse().unwrap();
    let mut at = 0;
    loop {
        let fixture = single("10.0.0.0/24");
        let add = || {
            fixture.with_store(|store| {
                let locked = store.enter().unwrap();
                fixture.fault(Fault::Die { at, torn: true });
                // The result does not matter here: the process may have been killed after its last change.
                let _ = commit_api(&locked, "a", ip);
            });
        };
        fixture.with_store(|store| commit_api(&store.enter().unwrap(), "a", ip).unwrap());
        fixture.del("a").unwrap();
        add();
        let met = fixture.fault_was_met();
        fixture.fault(Fault::None);
        fixture.with_store(|store| {
            let leased = store.enter().unwrap().holds(ip).unwrap();
            let recorded = !store.releases().unwrap().is_empty();
            assert!(
                leased || recorded,
                "ADD died at {at}: the address must not be lost"
            );
        });
        if !met {
            break;
        }
        at += 1;
    }
    assert!(at >= 4, "{at} steps were tried, which cannot be all");
}

#[test]
fn del_killed_at_any_step_of_a_hand_over_loses_no_address() {
    let ip: IpAddr = "10.0.0.200".parse().unwrap();
    let mut at = 0;
    loop {
        let fixture = single("10.0.0.0/24");
        fixture.with_store(|store| {
            commit_api(&store.enter().unwrap(), "a", ip).unwrap();
        });
        fixture.fault(Fault::Die { at, torn: true });
        // The result does not matter here: the process may have been killed after its last change.
        let _ = fixture.del("a");
        let met = fixture.fault_was_met();
        fixture.fault(Fault::None);
        fixture.del("a").unwrap();
        fixture.assert_sound(&format!("DEL died at {at}"));
        let released = fixture.with_store(|store| store.releases().unwrap());
        assert_eq!(
            released.len(),
            1,
            "DEL died at {at}: the address must not be lost"
        );
        if !met {
            break;
        }
        at += 1;
    }
    assert!(at >= 4, "{at} steps were tried, which cannot be all");
}

#[test]
fn an_address_rests_after_a_lease_that_ended_in_this_boot() {
    let seconds = Duration::from_secs;
    let rested = |ended, now| {
        let released = Released {
            ip: IpAddr::from([10, 0, 0, 1]),
            lease: None,
            ended,
            without_del: false,
            inode: 1,
        };
        released.has_rested(seconds(now), seconds(30))
    };
    assert!(!rested(Some(seconds(100)), 129));
    assert!(rested(Some(seconds(100)), 130));
    assert!(rested(None, 1), "the time of its end is unknown");
    assert!(rested(Some(seconds(100)), 99), "in an earlier boot");
}

/// Four leases on 10.0.0.1 to 10.0.0.4. Those of the first two have ended. The block that is about to be shared has 10.0.0.2 and
/// 10.0.0.3.
fn with_resting_addresses() -> (Fixture, IpNetwork) {
    let fixture = single("10.0.0.0/24");
    for container in ["a", "b", "c", "d"] {
        fixture.add(container);
    }
    fixture.del("a").unwrap();
    fixture.del("b").unwrap();
    (fixture, "10.0.0.2/31".parse().unwrap())
}

fn hand_over(fixture: &Fixture, block: IpNetwork) -> Result<(), Error> {
    fixture.with_store(|store| store.enter().unwrap().hand_over_resting(block))
}

#[test]
fn only_the_resting_addresses_of_a_block_are_handed_over_to_the_agent() {
    let (fixture, block) = with_resting_addresses();
    let releases = || fixture.with_store(|store| store.releases().unwrap());
    for _ in 0..2 {
        hand_over(&fixture, block).unwrap();
        let [one] = &releases()[..] else {
            panic!("{:?}", releases());
        };
        assert_eq!(one.ip.to_string(), "10.0.0.2");
        assert_eq!(one.lease.as_ref().unwrap().owner, attachment("b"));
        assert!(one.ended.is_some(), "the agent needs the start of the cooldown");
        assert_eq!(fixture.names("resting"), ["10.0.0.1"]);
    }
    // An address that has rested is free.
    fixture.del("c").unwrap();
    fixture.pass(Duration::from_secs(30));
    hand_over(&fixture, block).unwrap();
    assert_eq!(releases().len(), 1);
    fixture.assert_sound("after the hand-over");
}

#[test]
fn a_hand_over_of_resting_addresses_killed_at_any_step_loses_none() {
    let mut at = 0;
    loop {
        let (fixture, block) = with_resting_addresses();
        fixture.fault(Fault::Die { at, torn: true });
        // The result does not matter here: the process may have been killed after its last change.
        let _ = hand_over(&fixture, block);
        let met = fixture.fault_was_met();
        fixture.fault(Fault::None);
        let resting = fixture.names("resting").contains(&"10.0.0.2".to_owned());
        let released = fixture.with_store(|store| store.releases().unwrap());
        assert!(resting || released.len() == 1, "killed at {at}");
        hand_over(&fixture, block).unwrap();
        let released = fixture.with_store(|store| store.releases().unwrap());
        assert_eq!(released.len(), 1, "killed at {at}");
        if !met {
            break;
        }
        at += 1;
    }
    assert!(at >= 2, "{at} steps were tried, which cannot be all");
}
