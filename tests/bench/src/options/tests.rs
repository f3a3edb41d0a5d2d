// SPDX-License-Identifier: Apache-2.0
use super::*;

fn run(line: &str) -> Result<Options, clap::Error> {
    Options::try_parse_from(format!("bench {line}").split_whitespace())
}

fn message(line: &str) -> String {
    run(line).unwrap_err().to_string()
}

#[test]
fn every_option_reaches_the_run() {
    let line = "--bin b --peers p --runs 7 --leases 1,20 --seed 9 --markdown out.md";
    let expected = Options {
        bin: "b".into(),
        peers: "p".into(),
        runs: 7,
        leases: vec![1, 20],
        seed: 9,
        markdown: Some("out.md".into()),
    };
    assert_eq!(run(line).unwrap(), expected);
}

#[test]
fn an_error_names_the_missing_directory_option() {
    assert!(message("--peers p").contains("--bin <DIR>"));
    assert!(message("--bin b").contains("--peers <DIR>"));
}

#[test]
fn an_error_quotes_the_invalid_option_value() {
    assert!(message("--bin b --peers p --runs many").contains("'many'"));
    assert!(message("--bin b --peers p --runs 0").contains("measure nothing"));
    assert!(message("--bin b --peers p --runs").contains("a value is required for '--runs <N>'"));
    assert!(message("--bin b --peers p --fast").contains("'--fast'"));
}

#[test]
fn lease_levels_must_ascend_and_fit_the_pool() {
    assert!(message("--bin b --peers p --leases 10,10").contains("does not ascend"));
    assert!(message("--bin b --peers p --leases 70000").contains("a /16"));
}
