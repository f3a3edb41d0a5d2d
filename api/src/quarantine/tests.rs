// SPDX-License-Identifier: Apache-2.0
//! Invalid quarantines, and the choice between two.

use super::*;

/// Both quarantines, as in the options of a command.
fn quarantines(unused: &str, in_use: &str) -> Quarantines {
    Quarantines {
        unused: humantime::parse_duration(unused).unwrap(),
        in_use: in_use.parse().unwrap(),
        short_for_tests: false,
    }
}

#[test]
fn a_quarantine_below_two_minutes_is_refused_with_the_remedy() {
    for short in ["0s", "1s", "1m", "119s"] {
        let why = quarantines(short, "never").require_unused().unwrap_err();
        assert!(
            why.starts_with("--quarantine ") && why.ends_with("set 2m or more"),
            "{why}"
        );
    }
    for long in ["2m", "10m", "1h"] {
        assert_eq!(quarantines(long, "never").require_unused(), Ok(()));
    }
}

#[test]
fn a_test_may_shorten_the_quarantine_but_not_to_zero() {
    let quick = |time| {
        let short_for_tests = true;
        Quarantines {
            short_for_tests,
            ..quarantines(time, "never")
        }
        .require_unused()
    };
    assert_eq!(quick("4s"), Ok(()));
    assert!(quick("0s").unwrap_err().contains("--quarantine 0s is too short"));
}

#[test]
fn a_shorter_quarantine_for_blocks_in_use_is_rejected() {
    let shorter = quarantines("10m", "5m");
    let why = shorter.require_in_use().unwrap_err();
    assert!(why.contains("--quarantine-in-use 5m is too short"), "{why}");
    assert_eq!(shorter.require_unused(), Ok(()));
    assert_eq!(quarantines("10m", "24h").require_in_use(), Ok(()));
    assert_eq!(quarantines("10m", "never").require_in_use(), Ok(()));
    assert!("often".parse::<AfterUse>().unwrap_err().contains("`never`"));
}

#[test]
fn the_longer_of_two_quarantines_counts() {
    let minutes = |n: u64| Duration::from_secs(60 * n);
    let both = quarantines("5m", "8m");
    for (claimed, unused, in_use) in [
        (None, 5, 8),
        (Some(60), 5, 8),
        (Some(600), 10, 10),
        (Some(-1), 5, 8),
    ] {
        let quarantine = both.of(claimed);
        assert_eq!(quarantine.unused, minutes(unused), "{claimed:?}");
        assert_eq!(quarantine.in_use, Some(minutes(in_use)), "{claimed:?}");
    }
    assert_eq!(quarantines("10m", "never").of(None).in_use, None);
}
