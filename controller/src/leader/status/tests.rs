// SPDX-License-Identifier: Apache-2.0
use super::*;
use serde_json::json;

#[test]
fn a_missing_fallback_pool_is_named() {
    let spec = json!({ "ranges": [{ "subnet": "10.1.0.0/24" }], "fallback": ["spare", "misspelt"] });
    let accepted = api::testing::accepted_pool("rail0", &spec).unwrap();
    let found = missing_fallback(&accepted, |name| name == "spare");
    assert!(found.holds && found.reason == reason::NO_SUCH_POOL);
    assert!(found.message.contains("spec.fallback"), "{}", found.message);
    assert!(found.message.contains(": misspelt;"), "{}", found.message);
    assert!(!missing_fallback(&accepted, |_| true).holds);
}

#[test]
fn a_message_with_many_names_contains_only_the_first_five() {
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let some = |count: usize| first_names(&names[..count].iter().copied().collect());
    assert_eq!(some(0), "none");
    assert_eq!(some(5), "a, b, c, d, e");
    assert_eq!(some(7), "a, b, c, d, e and 2 more");
}

#[test]
fn a_condition_keeps_the_time_of_its_last_transition() {
    let mut conditions = Vec::new();
    assert!(
        !set(&mut conditions, &condition(READY, false, "A", ""), Some(1)),
        "nothing begins"
    );
    assert!(set(&mut conditions, &condition(READY, true, "B", ""), Some(2)));
    let turned = conditions[0].last_transition_time.clone();
    assert!(
        set(&mut conditions, &condition(READY, true, "C", "more"), Some(3)),
        "another reason"
    );
    assert_eq!(conditions.len(), 1);
    assert_eq!(conditions[0].last_transition_time, turned);
    assert_eq!(conditions[0].observed_generation, Some(3));
    assert!(!set(
        &mut conditions,
        &condition(READY, true, "C", "other words"),
        Some(3)
    ));
}

#[test]
fn the_condition_exhausted_names_the_family_of_its_numbers() {
    let spec =
        json!({ "ranges": [{ "subnet": "10.1.0.0/28", "gateway": "none" }, { "subnet": "fd00::/64" }] });
    let accepted = api::testing::accepted_pool("rail0", &spec).unwrap();
    let no_objects: [IpAddress; 0] = [];
    let found = usage_conditions(&Usage::of(&accepted, &[], &no_objects));
    let message = &found[0].message;
    assert_eq!(
        *message,
        "0 of 14 IPv4 addresses are in use, 0 blocks, 14 IPv4 addresses in no block"
    );
}

/// kstatus, and so Flux and Helm, report `Failed` while `Stalled` is true.
#[test]
fn only_a_contradictory_spec_stalls_a_pool() {
    for reason in [reason::INVALID_SPEC, reason::CONFLICT, reason::REFUSED] {
        let (ready, ..) = rejected(&mut IpPoolStatus::default(), Some(1), reason, "why");
        let found = stalled(&ready);
        assert_eq!(found.kind, "Stalled");
        assert_eq!(found.holds, reason == reason::INVALID_SPEC, "{reason}");
        assert_eq!((found.reason, found.message.as_str()), (reason, "why"));
    }
    let found = stalled(&condition(READY, true, reason::ACCEPTED, "in force"));
    assert!(!found.holds && found.reason == reason::ACCEPTED);
}

/// An Event of `Stalled` would repeat that of `Degraded`.
#[test]
fn a_stalled_pool_has_one_event() {
    let (ready, degraded, _) = rejected(&mut IpPoolStatus::default(), Some(1), reason::INVALID_SPEC, "why");
    let events: Vec<NewEvent> = [stalled(&ready), ready, degraded]
        .iter()
        .filter_map(event)
        .collect();
    let [only] = events.as_slice() else {
        panic!("{} Events", events.len());
    };
    assert!(only.is_warning && only.reason == reason::INVALID_SPEC);
    assert_eq!(only.note, "Degraded: why");
}
