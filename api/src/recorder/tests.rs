// SPDX-License-Identifier: Apache-2.0

use super::*;

fn taken(limits: &mut Limits, object: &str, tries: u32, now: Instant) -> u32 {
    (0..tries).map(|_| u32::from(limits.take(object, now))).sum()
}

#[test]
fn the_event_limit_of_one_object_does_not_affect_another_object() {
    let (mut limits, now) = (Limits::default(), Instant::now());
    assert_eq!(taken(&mut limits, "Pod/default/a", 1000, now), BURST);
    assert_eq!(taken(&mut limits, "Pod/default/b", 1, now), 1);
}

#[test]
fn the_event_limit_of_an_object_refills_by_one_event_a_minute() {
    let (mut limits, begun) = (Limits::default(), Instant::now());
    taken(&mut limits, "a", BURST, begun);
    let mut now = begun + REFILL / 2;
    assert_eq!(taken(&mut limits, "a", 1, now), 0);
    now = begun + REFILL;
    assert_eq!(taken(&mut limits, "a", 10, now), 1);
    now += REFILL * (BURST + 5);
    assert_eq!(taken(&mut limits, "a", 1000, now), BURST);
}

#[test]
fn an_object_without_recent_events_is_forgotten() {
    let (mut limits, now) = (Limits::default(), Instant::now());
    for i in 0..100 {
        limits.take(&format!("Pod/default/{i}"), now);
    }
    assert_eq!(limits.0.len(), 100);
    limits.take("Pod/default/new", now + REFILL);
    assert_eq!(limits.0.len(), 1);
}
