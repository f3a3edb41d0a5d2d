// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::pool_reconciler::testing::{address_object, asked, claimant, node_with, refusal, scope_of};
use api::testing::accepted_pool;
use ipam::interval::Interval;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn addresses(count: u128) -> IntervalSet {
    let all = Interval {
        first: 0x0a00_0001,
        last: 0x0a00_0000 + count,
    };
    [all].into_iter().collect()
}

#[test]
fn a_pool_that_was_found_full_is_not_searched_again_at_once() {
    let (all, now) = (addresses(6), Instant::now());
    let mut exhausted = Exhausted::default();
    assert!(!exhausted.is_known(Family::V4, &all, now));
    exhausted.note(Family::V4, &all, now, 0.0);
    assert!(exhausted.is_known(Family::V4, &all, now));
    assert!(!exhausted.is_known(Family::V6, &all, now));
    assert!(!exhausted.is_known(Family::V4, &all, now + FULL.0 * 2));
}

#[test]
fn a_pool_that_stays_full_is_searched_less_and_less_often() {
    let (all, mut now) = (addresses(6), Instant::now());
    let mut exhausted = Exhausted::default();
    let mut pauses = Vec::new();
    for _ in 0..8 {
        exhausted.note(Family::V4, &all, now, 0.5);
        let until = exhausted.0[&Family::V4].until;
        pauses.push(until - now);
        now = until;
    }
    assert!(pauses.is_sorted() && pauses[0] == FULL.0, "{pauses:?}");
    assert_eq!(pauses.last(), Some(&FULL.1));
}

#[test]
fn a_full_pool_is_searched_at_once_after_an_edit_or_a_release() {
    let (all, now) = (addresses(6), Instant::now());
    let mut exhausted = Exhausted::default();
    exhausted.note(Family::V4, &all, now, 0.0);
    assert!(!exhausted.is_known(Family::V4, &addresses(7), now));
    exhausted.clear();
    assert!(!exhausted.is_known(Family::V4, &all, now));
}

/// The API server answers ten requests of each search: fewer than the tries of a search that begins anew.
#[tokio::test]
async fn a_full_pool_is_found_full_although_no_search_ends_in_the_time_of_its_plugin() {
    let left = Arc::new(AtomicU32::new(0));
    let (context, target, _dir) = node_with(&[], full_server(left.clone())).await;
    let spec =
        json!({ "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none" }], "allocation": "PerAddress" });
    let accepted = accepted_pool("rail0", &spec).unwrap();
    let scope = scope_of(&target, &accepted);
    let asked = asked("c1");
    let claimant = claimant(&asked);
    let all = accepted.ranges.usable(Family::V4);
    let mut addresses = Addresses::new(context);
    left.store(10, Ordering::Relaxed);
    let first = addresses.bind_any(scope, Family::V4, &all, &claimant).await;
    assert_eq!(first.unwrap_err().code, Code::API_UNREACHABLE);
    left.store(10, Ordering::Relaxed);
    let second = addresses.bind_any(scope, Family::V4, &all, &claimant).await;
    assert_eq!(
        second.unwrap(),
        None,
        "the second search makes the six tries that are left, and lists"
    );
}

/// An API server that has an object of each address of 10.1.0.0/24. It answers `left` CREATEs and lists.
fn full_server(left: Arc<AtomicU32>) -> impl FnMut(&str, &Value) -> (u16, Value) + Send + 'static {
    let object_of = |number: u8| address_object(&format!("10.1.0.{number}"), "c2", "m");
    move |uri, body| {
        if let Some((_, number)) = uri.split_once("/ipaddresses/default-0a0100") {
            return (200, object_of(u8::from_str_radix(&number[..2], 16).unwrap()));
        }
        let answers = left.load(Ordering::Relaxed);
        if answers == 0 {
            return refusal(400);
        }
        left.store(answers - 1, Ordering::Relaxed);
        if !body.is_null() {
            return refusal(409);
        }
        let items: Vec<_> = (1..255).map(object_of).collect();
        (
            200,
            json!({ "kind": "IPAddressList", "metadata": {}, "items": items }),
        )
    }
}
