// SPDX-License-Identifier: Apache-2.0
//! The first minutes of a boot.

use super::{Agent, assert_says, fixture, pool, write};
use crate::agent::Reply;
use crate::pool::Confirmed;
use crate::testing::Fixture;
use common::cni::Code;
use std::time::{Duration, SystemTime};

/// A node that is rebooted `away` after its agent last confirmed its blocks.
fn rebooted(away: Duration) -> Fixture {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    fixture.add("a");
    let now: SystemTime = fixture.plugin.clock.now.get();
    std::fs::write(fixture.network().join("confirmed"), Confirmed(now).to_line()).unwrap();
    *fixture.plugin.clock.boot.borrow_mut() = "b0071111-0000-4000-8000-000000000002".to_owned();
    fixture.plugin.clock.now.set(now + away);
    fixture
}

#[test]
fn right_after_a_reboot_add_works_without_agent() {
    let fixture = rebooted(Duration::from_secs(599));
    assert_eq!(fixture.add("b"), ["10.0.0.33"]);
    assert_eq!(
        fixture.names("leases"),
        ["b@eth0"],
        "leases of the last boot are void"
    );
    fixture.status().unwrap();
    fixture.del("b").unwrap();
}

#[test]
fn after_the_quarantine_add_waits_for_the_agent() {
    let fixture = rebooted(Duration::from_secs(600));
    for error in [
        fixture.try_add("b").map(|_| ()).unwrap_err(),
        fixture.status().unwrap_err(),
    ] {
        assert_says(
            &error,
            error.code,
            &[
                "pool rail0: since this node's last boot nothing proves that its 1 blocks are still its own",
                "600 s ago, and after 600 s other nodes may own them",
                "agent.sock: it is not there",
            ],
        );
    }
    assert_eq!(fixture.try_add("b").unwrap_err().code, Code::TRY_AGAIN);
    // DEL of an attachment from before the boot has nothing to do and needs no agent.
    fixture.del("a").unwrap();
    let dir = fixture.data_dir().to_owned();
    let agent = Agent::start(&fixture, move |_| {
        let mut file = pool("rail0", &["10.0.0.32/30"]);
        file.boot_id = "b0071111-0000-4000-8000-000000000002".to_owned();
        write(&dir, &file);
        Some(Reply::Local)
    });
    assert_eq!(fixture.add("b"), ["10.0.0.33"]);
    assert_eq!(fixture.add("c"), ["10.0.0.34"]);
    assert_eq!(agent.end().len(), 1, "the second ADD does not ask the agent");
}

#[test]
fn a_clock_that_was_set_back_over_the_reboot_proves_nothing() {
    let fixture = rebooted(Duration::ZERO);
    let now = fixture.plugin.clock.now.get();
    fixture.plugin.clock.now.set(now - Duration::from_secs(3600));
    assert_says(
        &fixture.try_add("b").unwrap_err(),
        Code::TRY_AGAIN,
        &["in the future by this node's clock"],
    );
}

#[test]
fn an_agent_that_does_not_confirm_the_blocks_is_asked_once() {
    let fixture = rebooted(Duration::from_secs(6000));
    let agent = Agent::start(&fixture, |_| Some(Reply::Local));
    assert_says(
        &fixture.try_add("b").unwrap_err(),
        Code::TRY_AGAIN,
        &["nothing proves"],
    );
    assert_eq!(agent.end().len(), 1);
}

#[test]
fn within_one_boot_add_always_works_without_agent() {
    let fixture = fixture(&pool("rail0", &["10.0.0.32/30"]));
    fixture.add("a");
    let far = fixture.plugin.clock.now.get() + Duration::from_secs(90 * 86400);
    fixture.plugin.clock.now.set(far);
    assert_eq!(fixture.add("b"), ["10.0.0.33"]);
}

#[test]
fn with_an_unsynchronized_clock_add_waits_for_the_agent() {
    let fixture = rebooted(Duration::from_secs(5));
    fixture.plugin.clock.synchronized.set(false);
    assert_says(
        &fixture.try_add("b").unwrap_err(),
        Code::TRY_AGAIN,
        &["STA_UNSYNC", "agent.sock: it is not there"],
    );
    fixture.plugin.clock.synchronized.set(true);
    assert_eq!(fixture.add("b"), ["10.0.0.33"]);
}
