// SPDX-License-Identifier: Apache-2.0
//! Each change of an ADD with a request to the agent fails, or is the last one of its process; and random orders of
//! calls.

use super::{Agent, fixture, pool, write};
use crate::agent::{Reply, Verb};
use crate::pool::BlockState;
use crate::testing::{Fault, Fixture, block};
use common::cni::{CniResult, Code};
use nix::libc::{EIO, ENOSPC};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

fn granting(fixture: &Fixture) -> Agent {
    Agent::start(fixture, |request| match request.verb {
        Verb::Allocate => Some(Reply::Addresses {
            addresses: request.ips.clone(),
        }),
        _ => Some(Reply::Done),
    })
}

fn faults() -> Vec<fn(usize) -> Fault> {
    vec![
        |at| Fault::Fail { at, errno: EIO },
        |at| Fault::Fail { at, errno: ENOSPC },
        |at| Fault::Die { at, torn: false },
        |at| Fault::Die { at, torn: true },
    ]
}

/// DEL of `a` dies at step `at` on a full disk. The next DEL, with the result `added` of ADD, leaves nothing.
fn assert_finished_on_a_full_disk(fixture: &Fixture, at: usize, added: &CniResult) {
    fixture.fault(Fault::DieFull { at });
    // The result does not matter here: the process may have been killed after its last change.
    let _ = fixture.del("a");
    fixture.fault(Fault::Full);
    fixture.del_after("a", added).unwrap();
    assert_eq!(fixture.names("addresses"), [""; 0], "died at {at}");
    fixture.assert_sound(&format!("died at {at}"));
}

#[test]
fn del_killed_at_any_step_on_a_full_disk_is_finished_by_the_next_del() {
    for at in 0..6 {
        let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
        let added = fixture.try_add("a").unwrap();
        assert_finished_on_a_full_disk(&fixture, at, &added);
    }
}

#[test]
fn del_killed_on_a_full_disk_is_finished_in_a_fallback_pool_too() {
    for at in 0..6 {
        let mut first = pool("rail0", &["10.0.0.32/32"]);
        first.fallback = vec!["spare".parse().unwrap()];
        let mut fixture = fixture(&first);
        fixture.place = "pools/spare";
        write(fixture.data_dir(), &pool("spare", &["10.0.0.64/30"]));
        fixture.add("b");
        let agent = Agent::start(&fixture, |_| Some(super::refused(Code::EXHAUSTED, "exhausted")));
        let added = fixture.try_add("a").unwrap();
        drop(agent);
        assert_eq!(
            fixture.names("leases"),
            ["a@eth0"],
            "the lease is in the fallback pool"
        );
        assert_finished_on_a_full_disk(&fixture, at, &added);
    }
}

#[test]
fn an_add_through_the_agent_may_fail_or_die_at_any_step() {
    for fault in faults() {
        let mut at = 0;
        loop {
            let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
            let agent = granting(&fixture);
            fixture.add("b");
            fixture.fault(fault(at));
            let answer = fixture.request("a", &["10.0.0.200"]);
            let (met, when) = (
                fixture.fault_was_met(),
                format!("{:?}", fixture.plugin.disk.fault.get()),
            );
            fixture.fault(Fault::None);
            match answer {
                Ok(answer) => assert_eq!(fixture.request("a", &["10.0.0.200"]).unwrap(), answer, "{when}"),
                Err(error) if matches!(fault(at), Fault::Fail { .. }) => {
                    assert_eq!(error.code, Code::IO, "{when}");
                    assert_eq!(fixture.names("leases"), ["b@eth0"], "{when}");
                    let verbs: Vec<Verb> = agent.end().iter().map(|request| request.verb).collect();
                    assert!(
                        verbs.is_empty() || verbs == [Verb::Allocate, Verb::Release],
                        "{when}: a requested address must be released: {verbs:?}"
                    );
                }
                // A killed process would not have read the answer.
                Err(_) => {}
            }
            // In every case, the next DEL leaves only objects that the agent must release.
            fixture.del("a").unwrap();
            fixture.assert_sound(&when);
            assert_eq!(fixture.names("leases"), ["b@eth0"], "{when}");
            assert!(fixture.names("asking").is_empty(), "{when}");
            if !met {
                assert!(at >= 6, "{at} steps were tried, which cannot be all");
                break;
            }
            at += 1;
        }
    }
}

/// One call, or an event on the node.
#[derive(Clone, Debug)]
enum Event {
    Add(u8),
    Request(u8, u8),
    Del(u8),
    Pass(u64),
    AgentDies,
    AgentStarts,
}

fn event() -> impl Strategy<Value = Event> {
    let pod = 0_u8..24;
    prop_oneof![
        8 => pod.clone().prop_map(Event::Add),
        2 => (pod.clone(), 1_u8..64).prop_map(|(pod, host)| Event::Request(pod, host)),
        6 => pod.prop_map(Event::Del),
        3 => (1_u64..40).prop_map(Event::Pass),
        1 => Just(Event::AgentDies),
        1 => Just(Event::AgentStarts),
    ]
}

/// An agent that claims blocks of four up to 10.0.0.16, and allocates addresses of other blocks in the
/// cluster.
fn claiming(fixture: &Fixture) -> Agent {
    let dir = fixture.data_dir().to_owned();
    Agent::start(fixture, move |request| match request.verb {
        Verb::Claim => {
            let path = dir.join("pools/rail0/pool.json");
            let content = std::fs::read(&path).unwrap();
            let mut file = crate::pool::PoolFile::read(&content, &path).unwrap();
            let next = file.blocks.len() * 4;
            if next >= 16 {
                return Some(super::refused(Code::EXHAUSTED, "exhausted"));
            }
            file.blocks
                .push(block(&format!("10.0.0.{next}/30"), BlockState::Active));
            write(&dir, &file);
            Some(Reply::Local)
        }
        Verb::Allocate => Some(Reply::Addresses {
            addresses: request.ips.clone(),
        }),
        _ => Some(Reply::Done),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_order_of_calls_gives_an_address_twice_or_loses_one(events in prop::collection::vec(event(), 1..60)) {
        let fixture = fixture(&pool("rail0", &[]));
        let mut agent = None;
        let mut leased: BTreeMap<u8, IpAddr> = BTreeMap::new();
        for event in &events {
            match event {
                Event::Add(pod) | Event::Request(pod, _) => {
                    let answer = match event {
                        Event::Request(_, host) => fixture.request(&format!("p{pod}"), &[&format!("10.0.0.{host}")]),
                        _ => fixture.try_add(&format!("p{pod}")),
                    };
                    match answer {
                        Ok(result) => {
                            let ip = result.ips[0].address.ip();
                            prop_assert!(leased.get(pod).is_none_or(|before| *before == ip), "{event:?}: {leased:?} {ip}");
                            leased.insert(*pod, ip);
                        }
                        Err(error) => {
                            let known = [Code::TRY_AGAIN, Code::EXHAUSTED, Code::RESTING, Code::ADDRESS_IN_USE, Code::INVALID_CONFIG];
                            prop_assert!(known.contains(&error.code), "{event:?}: {error:?}");
                            if error.code == Code::EXHAUSTED {
                                // Hosts 1 to 15: the network address is reserved.
                                let full = (1_u8..16).all(|host| leased.values().any(|ip| *ip == IpAddr::from([10, 0, 0, host])));
                                prop_assert!(full, "{event:?}: {error:?} with {leased:?}");
                            }
                        }
                    }
                }
                Event::Del(pod) => {
                    fixture.del(&format!("p{pod}")).unwrap();
                    leased.remove(pod);
                }
                Event::Pass(seconds) => fixture.pass(Duration::from_secs(*seconds)),
                Event::AgentDies => agent = None,
                Event::AgentStarts => {
                    if agent.is_none() {
                        agent = Some(claiming(&fixture));
                    }
                }
            }
            let mut distinct: Vec<&IpAddr> = leased.values().collect();
            distinct.sort();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), leased.len(), "{:?}: {:?}", event, leased);
        }
        drop(agent);
        fixture.assert_sound("after all");
        prop_assert_eq!(fixture.names("leases").len(), leased.len());
    }
}
