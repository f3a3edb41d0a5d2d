// SPDX-License-Identifier: Apache-2.0
//! Addresses that the agent allocates, because they lie in no block of the node or are reserved.

use super::{Agent, assert_says, fixture, pool, write};
use crate::agent::{Reply, Verb};
use crate::pool::{Allocation, BlockState, PoolFile};
use crate::range::Family;
use crate::testing::{attachment, range};
use common::cni::dispatch::{Call, Plugin};
use common::cni::{Code, Reader};
use serde_json::json;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn addresses(texts: &[&str]) -> Reply {
    Reply::Addresses {
        addresses: texts.iter().map(|text| ip(text)).collect(),
    }
}

#[test]
fn an_add_whose_caller_ends_while_the_agent_works_returns_the_address() {
    static ENDED: AtomicBool = AtomicBool::new(false);
    let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    let agent = Agent::start(&fixture, |request| match request.verb {
        Verb::Allocate => {
            ENDED.store(true, Ordering::SeqCst);
            Some(addresses(&["10.0.0.200"]))
        }
        _ => Some(Reply::Done),
    });
    let call = Call {
        reader: Reader(|| !ENDED.load(Ordering::SeqCst)),
        ..fixture.call(&json!({"runtimeConfig": {"ips": ["10.0.0.200"]}}))
    };
    let refused = fixture.plugin.add(&call, &attachment("a"), Path::new("/netns"));
    assert_says(&refused.unwrap_err(), Code::IO, &["nothing reads stdout"]);
    assert_eq!(fixture.names("leases"), [""; 0]);
    let requests = agent.end();
    let last = requests.last().unwrap();
    assert_eq!((last.verb, &last.ips), (Verb::Release, &vec![ip("10.0.0.200")]));
}

#[test]
fn an_address_outside_the_nodes_blocks_is_allocated_by_the_agent() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    let agent = Agent::start(&fixture, |request| match request.verb {
        Verb::Allocate => Some(addresses(&["10.0.0.200"])),
        _ => Some(Reply::Done),
    });
    let result = fixture.request("a", &["10.0.0.200"]).unwrap();
    assert_eq!(result.ips[0].address.to_string(), "10.0.0.200/24");
    let text = std::fs::read_to_string(fixture.file("leases/a@eth0")).unwrap();
    assert!(text.contains(r#""api":["10.0.0.200"]"#), "{text}");
    fixture.assert_sound("with an address of the cluster");
    assert_eq!(
        fixture.request("a", &["10.0.0.200"]).unwrap(),
        result,
        "ADD again"
    );
    fixture.check("a", &result).unwrap();
    assert_says(
        &fixture.request("b", &["10.0.0.200"]).unwrap_err(),
        Code::ADDRESS_IN_USE,
        &["ns/pod"],
    );
    fixture.del("a").unwrap();
    fixture.assert_sound("after DEL");
    assert!(fixture.network().join("releases/10.0.0.200").exists());
    let verbs: Vec<Verb> = agent.end().iter().map(|request| request.verb).collect();
    assert_eq!(
        verbs,
        [Verb::Allocate, Verb::Release],
        "a repeated ADD and CHECK do not ask the agent"
    );
}

#[test]
fn del_of_an_address_of_the_cluster_needs_no_agent() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    let agent = Agent::start(&fixture, |_| Some(addresses(&["10.0.0.200"])));
    fixture.request("a", &["10.0.0.200"]).unwrap();
    drop(agent);
    fixture.del("a").unwrap();
    assert!(fixture.network().join("releases/10.0.0.200").exists());
    fixture.assert_sound("after DEL without agent");
}

#[test]
fn an_address_whose_block_was_shared_after_add_is_left_to_the_agent() {
    assert_left_to_the_agent(|file| file.blocks[0].state = BlockState::Shared);
}

/// After a restore of etcd another node can have the block. The address has an object then.
#[test]
fn an_address_whose_block_left_the_file_after_add_is_left_to_the_agent() {
    assert_left_to_the_agent(|file| drop(file.blocks.remove(0)));
}

/// The agent created the object after ADD, so the lease does not list it.
#[test]
fn an_address_that_was_reserved_after_add_is_left_to_the_agent() {
    assert_left_to_the_agent(|file| file.reserved = vec!["10.0.0.32/31".to_owned()]);
}

/// `change`: what happens to the first block after ADD.
fn assert_left_to_the_agent(change: impl FnOnce(&mut PoolFile)) {
    let mut file = pool("rail0", &["10.0.0.32/30", "10.0.0.64/30"]);
    let fixture = fixture(&file);
    for i in 0..5 {
        fixture.add(&format!("a{i}"));
    }
    change(&mut file);
    write(fixture.data_dir(), &file);
    let agent = Agent::start(&fixture, |_| Some(Reply::Done));
    fixture.del("a1").unwrap();
    fixture.del("a4").unwrap();
    assert!(fixture.network().join("releases/10.0.0.33").exists());
    assert_eq!(
        fixture.names("resting"),
        ["10.0.0.64"],
        "of a block that is the node's"
    );
    fixture.assert_sound("after DEL");
    let requests = agent.end();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert_eq!(
        (requests[0].verb, requests[0].ips.as_slice()),
        (Verb::Release, [ip("10.0.0.33")].as_slice())
    );
}

#[test]
fn a_reserved_address_is_allocated_by_the_agent_even_in_the_nodes_block() {
    let mut file = pool("rail0", &["10.0.0.32/30"]);
    file.reserved = vec!["10.0.0.33".to_owned()];
    let fixture = fixture(&file);
    assert_eq!(fixture.add("a"), ["10.0.0.32"]);
    assert_eq!(fixture.add("b"), ["10.0.0.34"], "in turn it is left out");
    let agent = Agent::start(&fixture, |_| Some(addresses(&["10.0.0.33"])));
    fixture.request("c", &["10.0.0.33"]).unwrap();
    assert_eq!(agent.end()[0].ips, [ip("10.0.0.33")]);
}

#[test]
fn one_family_may_come_from_the_block_and_the_other_from_the_agent() {
    let mut file = pool("rail0", &["10.0.0.32/30", "fd00::10/127"]);
    file.ranges.push(range("fd00::/64"));
    let fixture = fixture(&file);
    let agent = Agent::start(&fixture, |_| Some(addresses(&["fd00::77"])));
    let result = fixture.request("a", &["fd00::77"]).unwrap();
    let given: Vec<String> = result.ips.iter().map(|ip| ip.address.to_string()).collect();
    assert_eq!(given, ["10.0.0.32/24", "fd00::77/64"]);
    let asked = agent.end();
    assert_eq!(
        (asked[0].ips.as_slice(), asked[0].families.len()),
        ([ip("fd00::77")].as_slice(), 0)
    );
    fixture.del("a").unwrap();
    assert_eq!(fixture.names("resting"), ["10.0.0.32"]);
    assert!(fixture.network().join("releases/fd00::77").exists());
}

#[test]
fn a_pool_may_let_the_agent_allocate_every_address() {
    let mut file = pool("rail0", &[]);
    file.allocation = Allocation::Agent;
    let fixture = fixture(&file);
    let agent = Agent::start(&fixture, |request| match request.verb {
        Verb::Allocate => Some(addresses(&["10.0.0.9"])),
        _ => Some(Reply::Done),
    });
    assert_eq!(fixture.add("a"), ["10.0.0.9"]);
    fixture.status().unwrap();
    let asked = agent.end();
    assert_eq!(
        (asked[0].verb, asked[0].families.as_slice()),
        (Verb::Allocate, [Family::V4].as_slice())
    );
    assert_eq!(asked[1].verb, Verb::Status);
}

#[test]
fn the_agent_may_override_where_an_attachments_address_comes_from() {
    let mut file = pool("rail0", &["10.0.0.32/32"]);
    file.allocation = Allocation::Agent;
    let fixture = fixture(&file);
    let agent = Agent::start(&fixture, |request| match request.verb {
        Verb::Allocate if request.attachment.as_ref().unwrap().owner == attachment("a") => Some(Reply::Local),
        Verb::Allocate => Some(addresses(&["10.0.0.200"])),
        Verb::Claim => Some(Reply::Allocate { families: Vec::new() }),
        _ => Some(Reply::Done),
    });
    assert_eq!(
        fixture.add("a"),
        ["10.0.0.32"],
        "not a pod that keeps its address"
    );
    fixture.assert_sound("the request has ended, although its answer gave no address");
    file.allocation = Allocation::Blocks;
    write(fixture.data_dir(), &file);
    assert_eq!(
        fixture.add("b"),
        ["10.0.0.200"],
        "no free block, but a shared address"
    );
    let verbs: Vec<Verb> = agent.end().iter().map(|request| request.verb).collect();
    assert_eq!(verbs, [Verb::Allocate, Verb::Claim, Verb::Allocate]);
}

#[test]
fn only_the_family_that_is_short_comes_from_the_agent() {
    let mut file = pool("rail0", &["10.0.0.32/30"]);
    file.ranges.push(range("fd00::/64"));
    let fixture = fixture(&file);
    let agent = Agent::start(&fixture, |request| match request.verb {
        Verb::Claim => Some(Reply::Allocate {
            families: request.families.clone(),
        }),
        _ => Some(addresses(&["fd00::77"])),
    });
    assert_eq!(fixture.add("a"), ["10.0.0.32", "fd00::77"]);
    let asked = agent.end();
    assert_eq!(
        (asked[1].verb, asked[1].families.as_slice()),
        (Verb::Allocate, [Family::V6].as_slice())
    );
    fixture.del("a").unwrap();
    assert_eq!(fixture.names("resting"), ["10.0.0.32"]);
}

/// The last IPv4 address of the node is gone when the answer with the IPv6 address arrives.
#[test]
fn the_addresses_of_two_answers_make_one_lease() {
    let mut file = pool("rail0", &["10.0.0.32/32"]);
    file.ranges.push(range("fd00::/64"));
    let fixture = fixture(&file);
    let dir = fixture.data_dir().to_owned();
    let agent = Agent::start(&fixture, move |request| {
        let ipv6 = request.ips == [ip("fd00::77")];
        Some(match request.verb {
            Verb::Claim => Reply::Allocate {
                families: vec![Family::V4],
            },
            Verb::Allocate if ipv6 => {
                file.blocks.clear();
                write(&dir, &file);
                addresses(&["fd00::77"])
            }
            Verb::Allocate => addresses(&["10.0.0.200"]),
            _ => Reply::Done,
        })
    });
    let result = fixture.request("a", &["fd00::77"]).unwrap();
    let given: Vec<IpAddr> = result.ips.iter().map(|one| one.address.ip()).collect();
    assert_eq!(given, [ip("10.0.0.200"), ip("fd00::77")]);
    let verbs: Vec<Verb> = agent.end().iter().map(|request| request.verb).collect();
    assert_eq!(verbs, [Verb::Allocate, Verb::Claim, Verb::Allocate]);
}

/// IPv4 is short first. Another ADD takes the last IPv6 address while the first claim is answered.
#[test]
fn both_families_come_from_the_agent_if_they_become_short_in_turn() {
    let mut file = pool("rail0", &["fd00::10/128"]);
    file.ranges.push(range("fd00::/64"));
    let fixture = fixture(&file);
    let dir = fixture.data_dir().to_owned();
    let agent = Agent::start(&fixture, move |request| {
        let address = |family: &Family| match family {
            Family::V4 => ip("10.0.0.200"),
            Family::V6 => ip("fd00::77"),
        };
        Some(match request.verb {
            Verb::Claim => {
                file.blocks.clear();
                write(&dir, &file);
                Reply::Allocate {
                    families: request.families.clone(),
                }
            }
            Verb::Allocate => Reply::Addresses {
                addresses: request.families.iter().map(address).collect(),
            },
            _ => Reply::Done,
        })
    });
    assert_eq!(fixture.add("a"), ["10.0.0.200", "fd00::77"]);
    let verbs: Vec<Verb> = agent.end().iter().map(|request| request.verb).collect();
    assert_eq!(verbs, [Verb::Claim, Verb::Claim, Verb::Allocate]);
}

#[test]
fn a_request_on_a_full_disk_removes_rested_addresses() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/29"]));
    let agent = Agent::start(&fixture, |_| Some(addresses(&["10.0.0.200"])));
    // The first request of a boot makes two directories and a file, and the lease takes two files.
    for id in ["b", "c", "d", "e", "f"] {
        fixture.add(id);
        fixture.del(id).unwrap();
    }
    fixture.plugin.disk.room.set(Some(0));
    fixture.pass(Duration::from_secs(3600));
    fixture.request("a", &["10.0.0.200"]).unwrap();
    fixture.assert_sound("after a full disk");
    assert_eq!(agent.end().len(), 1);
}

#[test]
fn an_address_that_the_agent_released_meanwhile_is_not_used() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    let asking = fixture.file("asking/a@eth0");
    let agent = Agent::start(&fixture, move |request| {
        if request.verb == Verb::Release {
            return Some(Reply::Done);
        }
        // The agent does this for an attachment without a lease at two checks, half a minute apart.
        std::fs::remove_file(&asking).unwrap();
        Some(addresses(&["10.0.0.200"]))
    });
    let error = fixture.request("a", &["10.0.0.200"]).unwrap_err();
    assert_says(&error, Code::TRY_AGAIN, &["the agent has released them"]);
    fixture.assert_sound("after an answer that came too late");
    assert!(fixture.names("leases").is_empty());
    assert_eq!(agent.end().last().unwrap().verb, Verb::Release);
}

#[test]
fn an_answer_is_not_used_once_a_later_add_of_the_attachment_has_asked() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    let asking = fixture.file("asking/a@eth0");
    let of_the_later = asking.clone();
    let agent = Agent::start(&fixture, move |request| {
        if request.verb == Verb::Release {
            return Some(Reply::Done);
        }
        // This ADD was stopped meanwhile. DEL has ended its request, and the ADD that followed has made its own.
        std::fs::write(&of_the_later, "the ID of another request").unwrap();
        Some(addresses(&["10.0.0.200"]))
    });
    let error = fixture.request("a", &["10.0.0.200"]).unwrap_err();
    assert_says(
        &error,
        Code::TRY_AGAIN,
        &["a later ADD of this attachment has asked again"],
    );
    assert!(fixture.names("leases").is_empty());
    let left = std::fs::read_to_string(&asking).unwrap();
    assert_eq!(
        left, "the ID of another request",
        "the later ADD still waits for its answer"
    );
    assert_eq!(agent.end().last().unwrap().verb, Verb::Release);
}

#[test]
fn an_address_whose_request_cannot_be_read_is_not_used() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    fixture.plugin.disk.unreadable.set(&["asking/a@eth0"]);
    let agent = Agent::start(&fixture, |request| {
        let released = request.verb == Verb::Release;
        Some(if released {
            Reply::Done
        } else {
            addresses(&["10.0.0.200"])
        })
    });
    let error = fixture.request("a", &["10.0.0.200"]).unwrap_err();
    assert_says(&error, Code::IO, &["asking/a@eth0"]);
    assert!(fixture.names("leases").is_empty());
    assert_eq!(agent.end().last().unwrap().verb, Verb::Release);
}

#[test]
fn del_stops_a_running_add_from_using_the_agents_answer() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    fixture.add("b");
    std::fs::create_dir_all(fixture.file("asking")).unwrap();
    std::fs::write(fixture.file("asking/a@eth0"), "").unwrap();
    let agent = Agent::start(&fixture, |_| Some(Reply::Done));
    fixture.del("a").unwrap();
    assert!(fixture.names("asking").is_empty());
    assert_eq!(agent.end()[0].verb, Verb::Release);
}

#[test]
fn an_agent_that_does_not_answer_leaves_nothing() {
    let mut fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    fixture.plugin.agent.limit = Duration::from_secs(1);
    let agent = Agent::start(&fixture, |_| None);
    let error = fixture.request("a", &["10.0.0.200"]).unwrap_err();
    assert_says(
        &error,
        Code::TRY_AGAIN,
        &[
            "only the agent can allocate address 10.0.0.200",
            "no answer within 1000 ms",
        ],
    );
    fixture.assert_sound("after silence");
    assert!(fixture.names("asking").is_empty() && fixture.names("leases").is_empty());
    let asked = agent.end();
    assert_eq!(
        asked.last().unwrap().verb,
        Verb::Release,
        "it may have created the address nevertheless"
    );
}

#[test]
fn an_answer_that_contradicts_the_pool_is_refused_and_released() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    fixture.add("held");
    for (answer, code, what) in [
        (
            // The pool has got another range, and its file lacks it.
            Some(addresses(&["10.9.9.9"])),
            Code::TRY_AGAIN,
            "the agent gave 10.9.9.9, which lies outside",
        ),
        (
            Some(addresses(&["10.0.0.32"])),
            Code::ADDRESS_IN_USE,
            "10.0.0.32 is in use by eth0 of container held",
        ),
        (
            Some(Reply::Done),
            Code::INTERNAL,
            "install the plugin that came with",
        ),
    ] {
        let mut file = pool("rail0", &["10.0.0.32/30"]);
        file.allocation = Allocation::Agent;
        write(fixture.data_dir(), &file);
        let agent = Agent::start(&fixture, move |request| match request.verb {
            Verb::Allocate => answer.clone(),
            _ => Some(Reply::Done),
        });
        assert_says(&fixture.try_add("a").unwrap_err(), code, &[what]);
        assert_eq!(agent.end().last().unwrap().verb, Verb::Release);
        assert_eq!(fixture.names("leases"), ["held@eth0"]);
        fixture.assert_sound(what);
    }
}
