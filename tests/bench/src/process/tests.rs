// SPDX-License-Identifier: Apache-2.0
use super::*;

fn shell(script: &str, input: &[u8]) -> Finished {
    run(
        Path::new("/bin/sh"),
        &["-c", script],
        &[("PATH", "/usr/bin:/bin")],
        input,
    )
    .unwrap()
}

#[test]
fn a_program_receives_its_input_and_returns_output_and_status() {
    let finished = shell("cat; echo trouble >&2; exit 3", b"config");
    assert_eq!(finished.stdout, b"config");
    assert_eq!(finished.stderr, b"trouble\n");
    assert_eq!(finished.status.code(), Some(3));
}

#[test]
fn a_sleep_costs_wall_time_and_no_processor_time() {
    let cost = shell("sleep 0.2", b"").cost;
    assert!(cost.wall >= Duration::from_millis(200), "{cost:?}");
    assert!(cost.cpu < cost.wall, "{cost:?}");
}

#[test]
fn processor_time_and_page_faults_of_descendants_are_counted() {
    let script = "a=0; while [ $a -lt 200000 ]; do a=$((a+1)); done";
    let alone = shell(":", b"").cost;
    let descendant = shell(&format!("/bin/sh -c '{script}'; exit 0"), b"").cost;
    assert!(
        descendant.cpu > alone.cpu + Duration::from_millis(10),
        "{descendant:?} beside {alone:?}"
    );
    assert!(
        descendant.minor_faults > alone.minor_faults,
        "{descendant:?} beside {alone:?}"
    );
}

#[test]
fn peak_memory_is_that_of_the_largest_descendant() {
    let big = shell(
        "dd if=/dev/zero of=/dev/null bs=64M count=1 2>/dev/null; exit 0",
        b"",
    )
    .cost;
    assert!((64 * 1024..128 * 1024).contains(&big.peak_kib), "{big:?}");
}

#[test]
fn a_program_receives_only_the_given_environment() {
    let finished = shell("env", b"");
    let text = String::from_utf8(finished.stdout).unwrap();
    assert!(text.contains("PATH=/usr/bin:/bin"));
    assert!(!text.contains("CARGO"), "{text}");
}

#[test]
fn an_error_names_the_program_that_does_not_exist() {
    let error = run::<&str, &str>(Path::new("/nonexistent/plugin"), &[], &[], b"").unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot start /nonexistent/plugin: "),
        "{error}"
    );
}
