// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn days_become_dates_across_leap_years() {
    let dates = [
        (0, "1970-01-01"),
        (11_016, "2000-02-29"),
        (11_017, "2000-03-01"),
        (20_453, "2025-12-31"),
        (20_778, "2026-11-21"),
    ];
    for (days, date) in dates {
        assert_eq!(civil_date(days), date);
    }
}

#[test]
fn proc_fields_are_matched_by_their_full_name() {
    let text = "model\t\t: 1\nmodel name\t: Some CPU @ 2.0GHz\n";
    assert_eq!(field(text, "model name"), Some("Some CPU @ 2.0GHz"));
    assert_eq!(field(text, "name"), None);
}

#[test]
fn memory_is_reported_in_whole_gibibytes() {
    assert_eq!(gibibytes("MemTotal:       24593428 kB\n"), 24);
}

#[test]
fn processor_time_of_other_programs_excludes_idle_time_and_our_own() {
    let before = Ticks::parse("cpu  100 0 50 800 50 0 0 0 100 0\ncpu0 1 1\n");
    let after = Ticks::parse("cpu  180 0 80 1230 60 5 5 0 180 0\n");
    assert_eq!((before.all, before.idle), (1000, 850));
    assert_eq!(
        after.busy_percent_without(60, &before),
        10,
        "120 of 560 ticks were busy, 60 of them ours"
    );
    assert_eq!(after.busy_percent_without(500, &before), 0);
    assert_eq!(before.busy_percent_without(0, &before), 0);
}
