// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn the_address_is_read_from_a_cni_result() {
    let (address, result) =
        address_in(br#"{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.7/16"}]}"#).unwrap();
    assert_eq!(address, IpAddr::from([10, 0, 0, 7]));
    assert_eq!(result["cniVersion"], "1.1.0");
}

#[test]
fn a_result_without_exactly_one_address_of_the_subnet_is_refused() {
    let problem = |stdout: &[u8]| address_in(stdout).unwrap_err();
    assert!(problem(b"").contains("not JSON"));
    assert!(problem(b"{}").contains("0 addresses"));
    assert!(
        problem(br#"{"ips":[{"address":"10.0.0.7/16"},{"address":"10.0.0.8/16"}]}"#).contains("2 addresses")
    );
    assert!(problem(br#"{"ips":[{"address":"10.0.0.7/24"}]}"#).contains("'10.0.0.7/24'"));
}

/// A plugin that is a shell script. Another process writes the file: a child process of a concurrent test could inherit
/// the open file of this process, and the kernel would then refuse to execute it (`ETXTBSY`).
fn script(dir: &Path, body: &str) -> Plugin {
    let program = dir.join("plugin");
    let write = format!(
        "printf '#!/bin/sh\n%s\n' \"$1\" > {0} && chmod 755 {0}",
        program.display()
    );
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", &write, "sh", body])
        .status()
        .unwrap();
    assert!(status.success());
    Plugin::new(&program, dir, json!({"name": "bench"}))
}

fn add(plugin: &mut Plugin) -> Result<Added> {
    let pod = Pod {
        netns: "/run/netns/pod".into(),
    };
    plugin.add(&Attachment::new(&pod, &mut Order::new(1)))
}

#[test]
fn an_address_allocated_twice_ends_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut plugin = script(dir.path(), r#"echo '{"ips":[{"address":"10.0.0.7/16"}]}'"#);
    add(&mut plugin).unwrap();
    let error = add(&mut plugin).unwrap_err().to_string();
    assert!(error.contains("10.0.0.7 belongs to another container"), "{error}");
    assert_eq!(plugin.live(), 1);
}

#[test]
fn an_error_shows_the_input_and_the_output_of_a_failed_plugin_call() {
    let dir = tempfile::tempdir().unwrap();
    let mut plugin = script(
        dir.path(),
        r#"echo '{"code":11}'; echo "no room for $CNI_IFNAME" >&2; exit 1"#,
    );
    let error = add(&mut plugin).unwrap_err().to_string();
    for part in [
        "ADD of ",
        "exit status: 1",
        r#"{"name":"bench"}"#,
        r#"{"code":11}"#,
        "no room for net1",
    ] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
}

#[test]
fn del_receives_the_result_of_add_as_prev_result() {
    let dir = tempfile::tempdir().unwrap();
    let body = r#"if [ $CNI_COMMAND = ADD ]; then echo '{"ips":[{"address":"10.0.0.7/16"}]}'; else grep -q prevResult.*10.0.0.7; fi"#;
    let mut plugin = script(dir.path(), body);
    let pod = Pod {
        netns: "/run/netns/pod".into(),
    };
    let attachment = Attachment::new(&pod, &mut Order::new(1));
    let added = plugin.add(&attachment).unwrap();
    plugin.del(&attachment, &added).unwrap();
    assert_eq!(plugin.live(), 0);
}
