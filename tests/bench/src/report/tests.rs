// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::leases::Bursts;

fn cost(millis: u64) -> Cost {
    Cost {
        wall: Duration::from_millis(millis),
        cpu: Duration::from_millis(millis),
        peak_kib: 1024 * millis,
        minor_faults: millis,
    }
}

fn samples(ours: u64, reference: u64) -> Samples {
    let pair = || Pair {
        ours: vec![cost(ours)],
        reference: vec![cost(reference)],
    };
    Samples {
        add: pair(),
        del: pair(),
    }
}

fn level(leases: usize, ours: u64, reference: u64) -> Level {
    let burst = || Pair {
        ours: vec![Duration::from_millis(50)],
        reference: vec![Duration::from_millis(200)],
    };
    Level {
        leases,
        single: samples(ours, reference),
        burst: Bursts {
            add: burst(),
            del: burst(),
        },
    }
}

fn report(options: &Options) -> String {
    let programs = Pair::of(|side| Programs {
        link: format!("{side:?}").into(),
        ipam: format!("{side:?}-ipam").into(),
    });
    let report = Report {
        options,
        arena: "a test".into(),
        programs: &programs,
        others_percent: 23,
        attach: attach::Measured {
            samples: samples(3, 12),
            floor: vec![cost(1)],
        },
        leases: leases::Measured {
            levels: vec![level(10, 2, 8), level(5000, 2, 64)],
            floor: vec![cost(1)],
        },
    };
    report.render()
}

fn options() -> Options {
    Options {
        bin: "/secret/bin".into(),
        peers: "/secret/peers".into(),
        runs: 1,
        leases: vec![10, 5000],
        seed: 7,
        markdown: None,
    }
}

#[test]
fn the_report_has_a_row_and_a_ratio_for_every_operation() {
    let text = report(&options());
    for row in [
        "| cni-ipoib + rdma-ipam | ADD  |   1 |      3.00 |   3.00 |   3.00 |   3.00 |     3.00 |            3 |",
        "| macvlan + host-local  | DEL  |   1 |     12.00 |",
        "| no-op                 | exec |   1 |      1.00 |",
        "| host-local, 5000 leases | DEL  |   1 |     64.00 |",
        "| cni-ipoib + rdma-ipam / macvlan + host-local     | ADD |   0.25 | 0.25 | 0.25 |        0.25 |",
        "| rdma-ipam, 5000 leases / host-local, 5000 leases | DEL |   0.03 |",
        "|        5000 | ADD |        50.00 |        200.00 |  0.25 |",
        "Other programs kept it 23 % busy during the run.",
        "ADD at 5000 leases takes 1.00 times as long as at 10 with rdma-ipam, 8.00 times with host-local.",
    ] {
        assert!(text.contains(row), "{row}\nis not in\n{text}");
    }
}

#[test]
fn the_printed_command_repeats_the_run_without_paths_of_the_machine() {
    let text = report(&options());
    assert!(text.contains("--runs 1 --leases 10,5000 --seed 7"), "{text}");
    assert!(!text.contains("/secret"), "{text}");
}

#[test]
fn ratios_are_rounded_and_a_division_by_zero_prints_a_dash() {
    assert_eq!(divided(1, 3), "0.33");
    assert_eq!(divided(2, 3), "0.67");
    assert_eq!(divided(300, 100), "3.00");
    assert_eq!(divided(1, 0), "-");
}

#[test]
fn memory_is_reported_in_hundredths_of_a_mebibyte() {
    assert_eq!(mebibytes(1024), "1.00");
    assert_eq!(mebibytes(1500), "1.46");
    assert_eq!(mebibytes(2047), "2.00");
}
