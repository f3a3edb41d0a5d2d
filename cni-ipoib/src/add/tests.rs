// SPDX-License-Identifier: Apache-2.0
mod bond;
mod fuzz;
mod ipv6;
mod ipvlan;
mod moved;
mod passthru;
mod repair;
mod siblings;
mod taken;

use crate::mark::Mark;
use crate::model::{Fault, Fixture, Ipam, Pod, State, attachment, ethernet, ipoib, of_kind};
use common::cni::dispatch::{Call, Plugin};
use common::cni::{Code, Reader, UNFINISHED};
use common::netlink::AddrGenMode;
use serde_json::json;

/// Asserts that nothing of an attachment is left.
fn assert_clean(fixture: &Fixture, before: &State, case: &str) {
    assert_eq!(&fixture.kernel.state(), before, "{case}");
    assert_eq!(fixture.written_down(), [""; 0], "{case}");
    assert!(!fixture.info_file().exists(), "{case}");
    let verbs = fixture.ipam.verbs();
    assert_ne!(verbs.last().map(String::as_str), Some("ADD"), "{case}: {verbs:?}");
}

/// Runs `case` with a failure at the first request, then at the second, and so on until ADD makes no more requests.
fn at_every_request(fault: fn(usize) -> Fault, mut case: impl FnMut(usize) -> usize) -> usize {
    let mut number = 0;
    while number < case(number) {
        number += 1;
        assert!(number < 100, "{:?} does not end", fault(number));
    }
    number
}

/// Whether the last DEL of the IPAM plugin declared that ADD did not succeed.
fn is_unfinished(fixture: &Fixture) -> bool {
    fixture.ipam.conf_of("DEL").get(UNFINISHED) == Some(&json!(true))
}

fn a_failure_leaves_nothing(fixture: &Fixture, fault: fn(usize) -> Fault) {
    let before = fixture.kernel.state();
    let requests = at_every_request(fault, |number| {
        fixture.kernel.fail(fault(number));
        fixture.ipam.forget_calls();
        let added = fixture.add("c1");
        let log = fixture.kernel.get().log.clone();
        match log.get(number) {
            Some(failed) if !failed.starts_with("announce") => {
                let case = format!("{:?}, which is {failed:?}", fault(number));
                let code = if failed.starts_with("enable IPv6") {
                    Code::IO
                } else {
                    Code::KERNEL
                };
                assert_eq!(added.unwrap_err().code, code, "{case}");
                assert_clean(fixture, &before, &case);
                let asked = fixture.ipam.verbs();
                assert!(asked.is_empty() || asked == ["ADD", "DEL"], "{case}: {asked:?}");
                assert!(asked.is_empty() || is_unfinished(fixture), "{case}");
            }
            _ => {
                added.unwrap();
                fixture.kernel.fail(Fault::None);
                fixture.del("c1").unwrap();
                assert_clean(fixture, &before, "after DEL");
                assert!(!is_unfinished(fixture), "ADD succeeded");
            }
        }
        log.len()
    });
    assert!(requests >= 13, "ADD makes {requests} requests");
}

#[test]
fn an_add_without_a_reader_makes_nothing() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    let call = Call {
        reader: Reader::ABSENT,
        ..fixture.call(&json!({}))
    };
    let refused = fixture
        .plugin()
        .add(&call, &attachment("c1"), &fixture.pod.path());
    assert_eq!(refused.unwrap_err().code, Code::IO);
    assert_clean(&fixture, &before, "after ADD");
}

#[test]
fn a_failure_at_any_step_leaves_nothing() {
    let fixture = Fixture::new();
    a_failure_leaves_nothing(&fixture, Fault::Refused);
    a_failure_leaves_nothing(&fixture, Fault::AnswerLost);
}

#[test]
fn a_failure_at_any_step_of_a_rename_leaves_nothing() {
    let fixture = Fixture::new();
    fixture.kernel.set().names_of_host_count = true;
    fixture.kernel.set().state.host.push(ipoib(9, "net1", 0x8001));
    a_failure_leaves_nothing(&fixture, Fault::Refused);
    a_failure_leaves_nothing(&fixture, Fault::AnswerLost);
}

/// Kills ADD at every request in turn: neither kernel nor IPAM plugin is reachable after it. Then `after`
/// cleans up.
fn after_a_kill(fixture: &Fixture, after: impl Fn(&Fixture, &str)) {
    let before = fixture.kernel.state();
    at_every_request(Fault::From, |number| {
        fixture.kernel.fail(Fault::From(number));
        fixture.ipam.forget_calls();
        // The plugin's own DEL must fail as well: a dead process makes no call.
        let last = fixture.ipam.dir().join("dead");
        std::fs::write(&last, "").unwrap();
        let added = fixture.add("c1");
        std::fs::remove_file(&last).unwrap();
        let log = fixture.kernel.get().log.clone();
        let case = format!("killed at {number}, which is {:?}", log.get(number));
        assert_eq!(
            added.is_ok(),
            log.get(number).is_none_or(|r| r.starts_with("announce")),
            "{case}"
        );
        fixture.kernel.fail(Fault::None);
        after(fixture, &case);
        assert_clean(fixture, &before, &case);
        log.len()
    });
}

/// A node whose IPAM plugin fails DEL while the file `dead` exists.
fn with_failing_del() -> Fixture {
    let result =
        json!({"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.2/24"}, {"address": "fd00:1::2/64"}]});
    let script = format!(
        "[ $CNI_COMMAND = DEL ] && [ -e dead ] && exit 1; [ $CNI_COMMAND = ADD ] && echo '{result}'; exit 0"
    );
    Fixture::with(Ipam::running(&script))
}

#[test]
fn after_a_kill_at_any_step_del_finds_everything() {
    after_a_kill(&with_failing_del(), |fixture, case| {
        fixture.del("c1").expect(case);
    });
}

/// A link may wait long for carrier, so the age of its lease does not show that a probe has found the address free.
#[test]
fn del_declares_to_the_ipam_plugin_that_a_killed_add_did_not_succeed() {
    let fixture = with_failing_del();
    let dead = fixture.ipam.dir().join("dead");
    std::fs::write(&dead, "").unwrap();
    fixture.kernel.fail(Fault::Every("give"));
    assert!(fixture.add("c1").is_err());
    std::fs::remove_file(&dead).unwrap();
    fixture.kernel.fail(Fault::None);
    fixture.del("c1").unwrap();
    assert!(is_unfinished(&fixture));
}

#[test]
fn after_a_kill_at_any_step_del_without_netns_finds_everything() {
    after_a_kill(&with_failing_del(), |fixture, case| {
        fixture.del_without_netns("c1").expect(case);
    });
}

#[test]
fn after_a_kill_at_any_step_gc_finds_everything() {
    after_a_kill(&with_failing_del(), |fixture, case| {
        fixture.gc(&["other"]).expect(case);
    });
}

#[test]
fn after_a_kill_at_any_step_and_the_pods_death_del_finds_everything() {
    after_a_kill(&with_failing_del(), |fixture, case| {
        fixture.kernel.set().state.pod_dies();
        fixture.del_without_netns("c1").expect(case);
    });
}

#[test]
fn after_a_kill_at_any_step_another_add_succeeds() {
    after_a_kill(&with_failing_del(), |fixture, case| {
        // If the kill hit only the announcement, the attachment is complete and its name is in use.
        if fixture.entry("c1").done {
            assert_eq!(fixture.add("c1").unwrap_err().code, Code::IFNAME_IN_USE, "{case}");
        } else {
            fixture.add("c1").expect(case);
        }
        let state = fixture.kernel.state();
        assert_eq!((state.pod.len(), state.addresses.len()), (1, 2), "{case}");
        fixture.del("c1").expect(case);
    });
}

#[test]
fn a_refused_add_keeps_the_journal_entry_of_an_earlier_one() {
    let fixture = with_failing_del();
    let before = fixture.kernel.state();
    fixture.kernel.fail(Fault::Every("delete"));
    fixture.kernel.set().carrier = false;
    let error = fixture.add("c1").unwrap_err();
    assert_eq!(error.code, Code::NO_CARRIER);
    assert!(
        error.details.starts_with("not undone: cannot delete the link"),
        "{}",
        error.details
    );
    assert!(
        error
            .details
            .contains("cannot release the addresses: the link that has them"),
        "{}",
        error.details
    );
    assert_eq!(
        fixture.ipam.verbs(),
        ["ADD"],
        "no address is released under a living link"
    );
    assert_eq!(fixture.written_down(), ["c1"]);

    let error = fixture.add("c1").unwrap_err();
    assert_eq!(error.code, Code::KERNEL, "{}", error.msg);
    assert_eq!(fixture.written_down(), ["c1"]);
    assert_eq!(fixture.ipam.verbs(), ["ADD"]);

    fixture.kernel.fail(Fault::None);
    fixture.del("c1").unwrap();
    assert_clean(&fixture, &before, "after DEL");
}

#[test]
fn a_repeated_add_is_refused_and_the_first_stays() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    let before = fixture.kernel.state();
    let error = fixture.add("c1").unwrap_err();
    assert_eq!(error.code, Code::IFNAME_IN_USE);
    assert_eq!(fixture.kernel.state(), before);
    assert_eq!(fixture.ipam.verbs(), ["ADD"]);
    assert!(fixture.entry("c1").done);
}

#[test]
fn the_next_add_removes_what_was_made_for_a_gone_namespace() {
    let mut fixture = Fixture::new();
    fixture.add("c1").unwrap();
    fixture.kernel.set().state.pod_dies();
    fixture.pod = Pod::new();
    fixture.add("c1").unwrap();
    assert_eq!(fixture.ipam.verbs(), ["ADD", "DEL", "ADD"]);
    let state = fixture.kernel.state();
    assert_eq!((state.host.len(), state.pod.len()), (1, 1));
    assert_eq!(
        fixture.entry("c1").intent.as_ref().unwrap().netns_id,
        fixture.pod.id()
    );
}

#[test]
fn the_next_add_removes_what_was_made_for_a_namespace_whose_inode_is_reused() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    fixture.add("c1").unwrap();
    // The next namespace gets the device and inode of the one that ended.
    fixture.kernel.set().state.pod_dies();
    fixture.add("c1").unwrap();
    assert_eq!(fixture.ipam.verbs(), ["ADD", "DEL", "ADD"]);
    let state = fixture.kernel.state();
    assert_eq!((state.host.len(), state.pod.len()), (1, 1));
    fixture.del("c1").unwrap();
    assert_clean(&fixture, &before, "after DEL");
}

#[test]
fn a_foreign_interface_with_the_name_is_not_touched() {
    let fixture = Fixture::new();
    fixture.kernel.set().state.pod.push(ipoib(7, "net1", 0xffff));
    let before = fixture.kernel.state();
    let error = fixture.add("c1").unwrap_err();
    assert_eq!(error.code, Code::IFNAME_IN_USE);
    assert_clean(&fixture, &before, "name taken");
    assert_eq!(fixture.ipam.verbs(), [""; 0]);
}

#[test]
fn the_delegates_error_is_passed_on_and_nothing_is_created() {
    for (script, code, text) in [
        (
            "echo '{\"code\":110,\"msg\":\"pool is full\",\"details\":\"rdmanet error 110\"}'; exit 1",
            Code::EXHAUSTED,
            "ranges: pool is full",
        ),
        (
            "echo '{\"code\":999,\"msg\":\"no database\"}'; exit 1",
            Code::DELEGATE,
            "ranges: no database (code 999 of ranges)",
        ),
        ("echo nonsense", Code::DELEGATE, "something that is no CNI result"),
        ("exit 3", Code::DELEGATE, "ipam plugin ranges failed at ADD"),
        (
            "echo '{\"cniVersion\":\"1.1.0\"}'",
            Code::DELEGATE,
            "ipam plugin ranges answered without an address; check its ranges",
        ),
        (
            "[ $CNI_COMMAND = ADD ] && exec sleep 60",
            Code::DELEGATE,
            "did not end within 1s and was killed",
        ),
    ] {
        let script = format!("[ $CNI_COMMAND = ADD ] || exit 0\n{script}");
        let fixture = Fixture::with(Ipam::running(&script));
        let before = fixture.kernel.state();
        let error = fixture
            .add_with("c1", &json!({"delegateTimeout": 1}))
            .unwrap_err();
        assert_eq!(error.code, code, "{}", error.msg);
        assert!(error.msg.contains(text), "{}", error.msg);
        assert_clean(&fixture, &before, text);
        assert_eq!(fixture.ipam.verbs(), ["ADD", "DEL"], "{text}");
        let created = fixture
            .kernel
            .get()
            .log
            .iter()
            .any(|request| request.starts_with("create"));
        assert!(!created, "{text}");
    }
}

#[test]
fn the_intent_is_in_the_journal_before_the_first_effect() {
    let answer = json!({"ips": [{"address": "10.0.0.2/24"}]});
    let script = format!(
        "[ $CNI_COMMAND = ADD ] && cat $(cat state)/attachments/fabric/c1@net1 > seen; echo '{answer}'"
    );
    let fixture = Fixture::with(Ipam::running(&script));
    let note = |name: &str| fixture.ipam.dir().join(name);
    std::fs::write(note("state"), fixture.state.path().to_str().unwrap()).unwrap();
    fixture.add("c1").unwrap();
    let seen = std::fs::read_to_string(note("seen")).unwrap();
    let [intent, plugin] = seen.lines().collect::<Vec<_>>()[..] else {
        panic!("{seen}");
    };
    assert!(intent.contains(r#""master":"ib0","ipam":"ranges""#), "{intent}");
    assert!(plugin.starts_with("running "), "{plugin}");
    let content = std::fs::read_to_string(fixture.state.path().join("attachments/fabric/c1@net1")).unwrap();
    let [first, second, links, done] = content.lines().collect::<Vec<_>>()[..] else {
        panic!("{content}");
    };
    assert_eq!((first, second, done), (intent, plugin, "done"));
    assert!(
        links.contains(r#""made":[{"index":101,"kind":"ipoib","parent":4"#),
        "{links}"
    );
}

#[test]
fn a_missing_ipam_plugin_is_reported_and_no_entry_is_written() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    let error = fixture
        .add_with("c1", &json!({"ipam": {"type": "nowhere"}}))
        .unwrap_err();
    assert_eq!(error.code, Code::DELEGATE);
    let text = "ipam plugin \"nowhere\" is not in CNI_PATH";
    assert!(error.msg.starts_with(text), "{}", error.msg);
    assert_eq!(error.details, "", "ADD allocated no address that could remain");
    assert_clean(&fixture, &before, "missing plugin");
}

#[test]
fn an_impossible_configuration_is_refused_before_any_change() {
    for (keys, code) in [
        (json!({"ipam": {"type": "dhcp"}}), Code::UNSUPPORTED_FIELD),
        (json!({"ipam": {"type": "../ranges"}}), Code::INVALID_CONFIG),
        (json!({"pkey": "0x8007"}), Code::INVALID_CONFIG),
        (json!({"mtu": 9000}), Code::INVALID_CONFIG),
        (json!({"master": "ib9"}), Code::INVALID_CONFIG),
        (json!({"mode": "macvlan"}), Code::INVALID_CONFIG),
    ] {
        let fixture = Fixture::new();
        let before = fixture.kernel.state();
        assert_eq!(fixture.add_with("c1", &keys).unwrap_err().code, code, "{keys}");
        assert_clean(&fixture, &before, &keys.to_string());
        assert_eq!(fixture.ipam.verbs(), [""; 0], "{keys}");
    }
}

#[test]
fn the_child_has_the_requested_properties() {
    let fixture = Fixture::new();
    fixture
        .add_with("c1", &json!({"pkey": "0x8001", "mtu": 2000}))
        .unwrap();
    let state = fixture.kernel.state();
    let [link] = state.pod.as_slice() else {
        panic!("{:?}", state.pod)
    };
    let mark = Mark::new("fabric", &attachment("c1"));
    assert_eq!((link.name.as_str(), link.mtu, link.up), ("net1", 2000, true));
    assert_eq!((link.group, link.alias.as_ref()), (mark.group, Some(&mark.alias)));
    assert_eq!(link.addr_gen_mode, Some(AddrGenMode::Random));
    let addresses: Vec<String> = state
        .addresses
        .iter()
        .map(|(_, address)| address.to_string())
        .collect();
    assert_eq!(addresses, ["10.0.0.2/24", "fd00:1::2/64"]);
    assert_eq!(state.routes[0].gateway, Some("10.0.0.1".parse().unwrap()));
    let log = fixture.kernel.get().log.clone();
    assert_eq!(log.last().map(String::as_str), Some("announce 2 of net1"));
}

#[test]
fn the_result_describes_the_pods_interface() {
    let fixture = Fixture::new();
    let result = fixture.add("c1").unwrap();
    let interface = &result.interfaces[0];
    assert_eq!(interface.name, "net1");
    assert_eq!(interface.mac, fixture.kernel.state().pod[0].address.to_string());
    assert_eq!(
        (interface.mtu, interface.pci_id.as_str()),
        (Some(2000), ""),
        "the function is the parent's"
    );
    assert_eq!(interface.sandbox, fixture.pod.path().display().to_string());
    assert!(result.ips.iter().all(|ip| ip.interface == Some(0)));
    assert_eq!(result.dns.nameservers, ["10.0.0.53"]);
    let info = std::fs::read_to_string(fixture.info_file()).unwrap();
    assert!(info.contains(r#""rdma-device":"mlx5_0""#), "{info}");
    assert!(info.contains(r#""pf-pci-address":"0000:3b:00.0""#), "{info}");
}

#[test]
fn in_a_chain_the_result_is_appended_to_the_previous_one() {
    let fixture = Fixture::new();
    let prev = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "br0"}, {"name": "eth0", "sandbox": "/run/netns/a"}],
        "ips": [{"address": "192.0.2.7/24", "interface": 1}],
        "dns": {"nameservers": ["192.0.2.53"]},
    });
    let keys = json!({"prevResult": prev, "dns": {"nameservers": ["10.0.0.54"]}});
    let result = fixture.add_with("c1", &keys).unwrap();
    let names: Vec<&str> = result.interfaces.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names, ["br0", "eth0", "net1"]);
    let owners: Vec<Option<usize>> = result.ips.iter().map(|ip| ip.interface).collect();
    assert_eq!(owners, [Some(1), Some(2), Some(2)]);
    assert_eq!(result.dns.nameservers, ["10.0.0.54"]);
}

#[test]
fn a_chain_of_an_old_version_is_refused_before_any_change() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    let prev = json!({"ip4": {"ip": "192.0.2.7/24"}});
    let error = fixture
        .add_with("c1", &json!({"cniVersion": "0.2.0", "prevResult": prev}))
        .unwrap_err();
    assert_eq!(error.code, Code::UNSUPPORTED_FIELD);
    assert!(
        error.msg.contains("set cniVersion to 0.3.1 or newer"),
        "{}",
        error.msg
    );
    assert_eq!(fixture.kernel.state(), before);
    assert!(fixture.written_down().is_empty());
}

#[test]
fn a_device_info_file_outside_its_directory_is_refused_first() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    let file = fixture.state.path().join("nologin");
    let error = fixture
        .add_with("c1", &json!({"runtimeConfig": {"CNIDeviceInfoFile": file}}))
        .unwrap_err();
    assert_eq!(error.code, Code::INVALID_CONFIG);
    assert!(
        error.msg.starts_with("runtimeConfig.CNIDeviceInfoFile is "),
        "{}",
        error.msg
    );
    assert_eq!(fixture.kernel.state(), before);
    assert!(fixture.written_down().is_empty() && !file.exists());
}

/// The number of attachment files that ADD of `c1` reads, alone and beside `others` attachments.
fn reads(fixture: &Fixture, keys: &serde_json::Value, others: usize) -> (usize, usize) {
    let read = || {
        let (_, reads) = crate::journal::tests::reads_of(|| fixture.add_with("c1", keys).unwrap());
        fixture.del("c1").unwrap();
        reads
    };
    // The first ADD of a node marks attachments of earlier releases.
    read();
    let alone = read();
    for number in 0..others {
        let mut entry = fixture.entry(&format!("other{number}"));
        entry.begin(fixture.intent()).unwrap();
        entry.finish().unwrap();
    }
    (alone, read())
}

#[test]
fn add_reads_no_files_of_other_attachments() {
    for master in [json!("ib0"), json!(["ib0"]), json!({"linkLayer": "InfiniBand"})] {
        let (alone, beside_others) = reads(&Fixture::new(), &json!({"master": master}), 40);
        assert_eq!(beside_others, alone, "{master}");
    }
}

#[test]
fn add_of_a_whole_link_reads_each_file_of_another_attachment_once() {
    use crate::device::fixture::{WAYS, fixture};
    for master in [json!("ens1"), json!(["ib0", "ib1", "ens1", "ens2"])] {
        let keys = json!({"master": master, "mode": "device"});
        let (alone, beside_others) = reads(&fixture(WAYS[0]), &keys, 40);
        assert_eq!(beside_others - alone, 40, "{master}");
    }
}
