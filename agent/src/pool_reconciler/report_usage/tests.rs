// SPDX-License-Identifier: Apache-2.0
//! The times at which nodes confirm an edit of a pool.

use super::super::PoolReconciler;
use super::super::testing::{
    answer_with_block, damage_lease, file_of_earlier_boot, node_with, own_block, refusal, registered_node,
    replace_file, touch_address,
};
use super::*;
use api::http::Health;
use api::testing::accepted_pool;
use kube::ResourceExt;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

#[test]
fn ten_thousand_nodes_observe_an_edit_one_after_another_in_two_minutes() {
    let mut in_second = [0_u32; 120];
    for i in 0..10_000_u32 {
        let wait = stagger::delay(10_000, NOTES_A_SECOND, f64::from(i) / 10_000.0);
        in_second[usize::try_from(wait.as_secs()).unwrap()] += 1;
    }
    assert!(in_second.iter().all(|notes| *notes <= 101), "{in_second:?}");
}

/// Whether a node that observes this generation confirms it now.
fn notes(reports: &mut Reports, generation: i64, blocks: i64, now: Instant) -> bool {
    let turn = reports.turn_to_note(generation, blocks, now);
    reports.has_come(turn, now)
}

#[test]
fn a_few_nodes_observe_an_edit_at_once() {
    let (mut reports, now) = (Reports::default(), Instant::now());
    assert!(notes(&mut reports, 1, 99, now));
    assert!(notes(&mut reports, 2, 99, now));
    assert_eq!(reports.next(), None);
}

#[test]
fn a_worker_wakes_up_at_its_turn_and_then_observes_the_edit() {
    let (mut reports, now) = (Reports::default(), Instant::now());
    let turn = reports.turn_to_note(1, 10_000, now);
    assert!(turn <= now + Duration::from_secs(100));
    for before in [Duration::from_millis(50), Duration::from_millis(1)] {
        assert!(!notes(&mut reports, 1, 10_000, turn - before));
        assert_eq!(reports.next(), Some(turn));
        assert_eq!(reports.next(), None, "once");
    }
    assert!(notes(&mut reports, 1, 10_000, turn));
    assert!(notes(&mut reports, 1, 10_000, turn + Duration::from_secs(100)));
    assert_eq!(reports.next(), None);
}

#[test]
fn a_worker_wakes_up_at_the_earliest_of_several_turns() {
    let (mut reports, now) = (Reports::default(), Instant::now());
    for seconds in [30, 10, 20] {
        assert!(!reports.has_come(now + Duration::from_secs(seconds), now));
    }
    assert_eq!(reports.next(), Some(now + Duration::from_secs(10)));
}

/// Without a new turn, all nodes whose requests timed out would retry at the same time.
#[test]
fn a_failed_report_gets_another_turn() {
    let again = |_| {
        let (mut reports, mut report) = (Reports::default(), old_report());
        let first = reports.turn_to_note(1, 10_000, report.at);
        report.turn(content(one()), Duration::ZERO, 10_000, report.at);
        reports.last.insert("block".to_owned(), report);
        reports.postpone("block", 10_000, first);
        assert_eq!(reports.last["block"].turn, None);
        reports
            .turn_to_note(1, 10_000, first)
            .duration_since(first)
            .as_secs()
    };
    let mut again: Vec<u64> = (0..1000).map(again).collect();
    again.sort_unstable();
    // Seven times the standard deviation of the median, so that no run in a billion fails.
    assert!((35..=65).contains(&again[500]), "{}", again[500]);
}

fn one() -> Usage {
    Usage {
        leased: 1,
        ..Usage::default()
    }
}

fn content(used: Usage) -> ReportedUse {
    ReportedUse { used, free: 9 }
}

fn old_report() -> BlockReport {
    BlockReport {
        at: Instant::now().checked_sub(Duration::from_secs(60)).unwrap(),
        content: content(Usage::default()),
        generation: 1,
        is_noted: true,
        turn: None,
    }
}

/// A thousand pods start at once on a thousand nodes. No node has reported for a long time, so without turns all would
/// report at the same moment.
#[test]
fn a_change_on_every_node_is_reported_by_one_node_after_another() {
    let due = |blocks| {
        let (mut report, now) = (old_report(), Instant::now());
        let mut turn = |used, every| report.turn(content(used), Duration::from_secs(every), blocks, now);
        assert_eq!(turn(Usage::default(), 30), None);
        assert_eq!(turn(one(), 90), None);
        turn(one(), 30).unwrap() <= now
    };
    assert!(due(99));
    let at_once = (0..1000).filter(|_| due(10_000)).count();
    assert!(at_once < 50, "{at_once} of 1000");
}

/// The file has generation 2, and the spec in force has generation 3. A round that was interrupted before it wrote the file
/// continues with its reports.
#[tokio::test]
async fn a_generation_is_noted_only_while_it_is_that_of_the_spec_in_force() {
    for (in_file, is_noted) in [(2, false), (3, true)] {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let requests = asked.clone();
        let (context, target, _dir) = registered_node(move |uri| {
            requests.lock().unwrap().push(uri.to_owned());
            refusal(409)
        })
        .await;
        let mut file = file_of_earlier_boot(&context, target.accepted.as_ref().unwrap());
        file.generation = in_file;
        replace_file(&context, &file).await;
        let block = own_block();
        let mut reconciler = BlockReconciler::new(context.clone());
        reconciler.known_mut().note(&block.name_any(), Some(block));

        let _ = UsageReporter::new(context).report(&mut reconciler, &target).await;
        let asked = asked.lock().unwrap();
        let noted = asked.iter().any(|uri| uri.contains("/status"));
        assert_eq!(noted, is_noted, "{in_file}: {asked:?}");
    }
}

/// The generation that a report writes for a block whose status has 2, of a pool of generation 3 that reserves 10.1.0.3, and
/// whether the reporter counts the generation as noted. `before` changes the store.
async fn noted(before: impl AsyncFnOnce(&PoolContext, &TempDir)) -> (Option<i64>, bool) {
    let mut block = own_block();
    block.status = Some(IpBlockStatus {
        observed_generation: Some(2),
        ..IpBlockStatus::default()
    });
    let (name, object) = (block.name_any(), block.clone());
    let written = Arc::new(Mutex::new(None));
    let seen = written.clone();
    let (context, mut target, dir) = node_with(&[], move |uri, body| {
        if uri.contains("/status") {
            *seen.lock().unwrap() = body.pointer("/status/observedGeneration").and_then(Value::as_i64);
        }
        answer_with_block(&object, uri)
    })
    .await;
    let spec = serde_json::json!({
        "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none" }], "blockSize": { "v4": 16 }, "reserved": ["10.1.0.3"],
    });
    target.accepted = Some(accepted_pool("rail0", &spec).unwrap());
    let file = file_of_earlier_boot(&context, target.accepted.as_ref().unwrap());
    replace_file(&context, &file).await;
    before(&context, &dir).await;
    let mut reconciler = BlockReconciler::new(context.clone());
    reconciler.known_mut().note(&name, Some(block));
    let mut reporter = UsageReporter::new(context);
    reporter.report(&mut reconciler, &target).await.unwrap();
    let has_noted = reporter.reports.has_noted(&name, 3);
    (written.lock().unwrap().take(), has_noted)
}

#[tokio::test]
async fn a_reservation_is_not_noted_while_no_readable_lease_has_the_taken_address() {
    assert_eq!(noted(async |_, _| {}).await, (Some(3), true));
    let damaged = noted(async |context, dir| damage_lease(context, dir, "10.1.0.3").await);
    assert_eq!(damaged.await, (Some(2), false));
    let another = noted(async |context, dir| damage_lease(context, dir, "10.1.0.4").await);
    assert_eq!(another.await, (Some(3), true), "it is not reserved");
    let blocked = noted(async |_, dir| touch_address(dir, "10.1.0.3"));
    assert_eq!(blocked.await, (Some(3), true));
}

/// The plugin does not allocate such an address, so a pool whose other addresses are in use is exhausted.
#[tokio::test]
async fn an_address_that_the_node_withholds_is_not_reported_as_free() {
    let block = own_block();
    let (name, object) = (block.name_any(), block.clone());
    let counts = Arc::new(Mutex::new(Vec::new()));
    let seen = counts.clone();
    let (context, target, _dir) = node_with(&[], move |uri, body| {
        let free = body.pointer("/status/free").and_then(Value::as_i64);
        seen.lock().unwrap().extend(free);
        answer_with_block(&object, uri)
    })
    .await;
    let mut reconciler = BlockReconciler::new(context.clone());
    reconciler.known_mut().note(&name, Some(block));
    let mut reporter = UsageReporter::new(context.clone());
    let mut file = file_of_earlier_boot(&context, target.accepted.as_ref().unwrap());
    for withheld in [&["10.1.0.5", "10.1.0.6"][..], &["10.1.0.5"], &[]] {
        file.reserved = withheld.iter().map(|&ip| ip.to_owned()).collect();
        replace_file(&context, &file).await;
        reporter.report(&mut reconciler, &target).await.unwrap();
        // The next round may report.
        for report in reporter.reports.last.values_mut() {
            report.at = report.at.checked_sub(Duration::from_secs(60)).unwrap();
        }
    }
    let all = *counts.lock().unwrap().last().unwrap();
    assert_eq!(*counts.lock().unwrap(), [all - 2, all - 1, all]);
}

/// The gauges of the pool `rail0` that the agent serves: the names of its blocks, addresses and lost sandboxes.
fn gauges(context: &PoolContext) -> Vec<String> {
    let metrics = context.agent.metrics();
    let named = ["blocks", "addresses_used", "lost_sandboxes"]
        .map(|name| format!("rdmanet_{name}{{pool=\"rail0\"}} "));
    named.into_iter().filter(|name| metrics.contains(name)).collect()
}

/// A node that has reported its part of a pool, which was deleted since. The node has removed the file of the pool.
async fn after_the_deletion_of_a_pool() -> (PoolContext, Target, TempDir) {
    let (context, mut target, dir) = registered_node(|uri| answer_with_block(&own_block(), uri)).await;
    let file = file_of_earlier_boot(&context, target.accepted.as_ref().unwrap());
    replace_file(&context, &file).await;
    let mut blocks = BlockReconciler::new(context.clone());
    let mut usage = UsageReporter::new(context.clone());
    usage.report(&mut blocks, &target).await.unwrap();
    context.agent.metrics.lost_sandboxes(&context.pool, 1);
    assert_eq!(gauges(&context).len(), 3);
    target.accepted = None;
    std::fs::remove_file(dir.path().join("pools/rail0/pool.json")).unwrap();
    (context, target, dir)
}

/// A round that still had blocks to return when it began.
#[tokio::test]
async fn the_gauges_of_a_deleted_pool_disappear_with_its_file() {
    let (context, target, _dir) = after_the_deletion_of_a_pool().await;
    let mut blocks = BlockReconciler::new(context.clone());
    let mut usage = UsageReporter::new(context.clone());
    usage.report(&mut blocks, &target).await.unwrap();
    assert_eq!(gauges(&context), [""; 0]);
}

/// A round that began without anything of the pool.
#[tokio::test]
async fn the_gauges_of_a_pool_that_an_agent_does_not_know_disappear() {
    let (context, target, _dir) = after_the_deletion_of_a_pool().await;
    let mut reconciler = PoolReconciler::new(context.agent.clone(), context.pool.clone());
    Box::pin(reconciler.reconcile(&target.api)).await.unwrap();
    assert_eq!(gauges(&context), [""; 0]);
}
