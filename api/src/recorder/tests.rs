// SPDX-License-Identifier: Apache-2.0

use super::*;

fn taken(limits: &mut Limits, object: &str, tries: u32, now: Instant) -> u32 {
    (0..tries).map(|_| u32::from(limits.take(object, now))).sum()
}

#[test]
fn events_about_one_object_are_bounded_and_those_about_another_are_not_held_up() {
    let (mut limits, now) = (Limits::default(), Instant::now());
    assert_eq!(taken(&mut limits, "Pod/default/a", 1000, now), BURST);
    assert_eq!(taken(&mut limits, "Pod/default/b", 1, now), 1);
}

#[test]
fn an_object_may_have_another_event_after_a_minute_and_all_of_them_after_a_while() {
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
fn an_object_that_is_not_spoken_of_any_more_is_forgotten() {
    let (mut limits, now) = (Limits::default(), Instant::now());
    for i in 0..100 {
        limits.take(&format!("Pod/default/{i}"), now);
    }
    assert_eq!(limits.0.len(), 100);
    limits.take("Pod/default/new", now + REFILL);
    assert_eq!(limits.0.len(), 1);
}
