// SPDX-License-Identifier: Apache-2.0
//! Quarantines that are refused, and the one that counts.

use super::*;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    quarantines: Quarantines,
}

fn config(flags: &[&str]) -> Quarantines {
    let line = ["agent"].iter().chain(flags);
    Line::try_parse_from(line).unwrap().quarantines
}

#[test]
fn a_quarantine_below_two_minutes_is_refused_with_the_remedy() {
    for short in ["0s", "1s", "1m", "119s"] {
        let why = config(&["--quarantine", short]).require().unwrap_err();
        assert!(
            why.starts_with("--quarantine ") && why.ends_with("set 2m or more"),
            "{why}"
        );
    }
    for long in ["2m", "10m", "1h"] {
        assert_eq!(config(&["--quarantine", long]).require(), Ok(()));
    }
    assert_eq!(config(&[]).require(), Ok(()), "the default");
}

#[test]
fn tests_may_be_quick_and_even_they_need_a_quarantine() {
    let quick = |time| config(&["--quarantine", time, "--short-quarantine-for-tests"]).require();
    assert_eq!(quick("4s"), Ok(()));
    assert!(quick("0s").unwrap_err().contains("--quarantine 0s is too short"));
}

#[test]
fn what_was_in_use_is_not_free_before_what_was_not() {
    let refused = config(&["--quarantine", "10m", "--quarantine-in-use", "5m"]).require();
    assert!(
        refused
            .unwrap_err()
            .contains("--quarantine-in-use 5m is too short")
    );
    assert_eq!(config(&["--quarantine-in-use", "24h"]).require(), Ok(()));
    assert!(Line::try_parse_from(["agent", "--quarantine-in-use", "often"]).is_err());
}

#[test]
fn the_longer_of_two_quarantines_counts() {
    let minutes = |n: u64| Duration::from_secs(60 * n);
    let config = config(&["--quarantine", "5m", "--quarantine-in-use", "8m"]);
    for (claimed, unused, in_use) in [
        (None, 5, 8),
        (Some(60), 5, 8),
        (Some(600), 10, 10),
        (Some(-1), 5, 8),
    ] {
        let quarantine = config.of(claimed);
        assert_eq!(quarantine.unused, minutes(unused), "{claimed:?}");
        assert_eq!(quarantine.in_use, Some(minutes(in_use)), "{claimed:?}");
    }
    assert_eq!(self::config(&[]).of(None).in_use, None);
}
