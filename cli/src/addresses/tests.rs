// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::args::{Args, ClusterCommand, Command};
use crate::testing::{block, cluster, lease, pod, with};
use clap::Parser;
use common::cni::IpConfig;

/// The answer of `rdmanet addresses ARGS`.
fn asked(snapshot: &Snapshot, args: &[&str]) -> Output {
    asked_with(snapshot, LocalLeases::default(), args)
}

/// As [`asked`], on a machine with `leases`.
fn asked_with(snapshot: &Snapshot, leases: LocalLeases<'_>, args: &[&str]) -> Output {
    let all = ["rdmanet", "addresses"].iter().chain(args);
    let Command::Cluster(ClusterCommand::Addresses(options)) = Args::parse_from(all).command else {
        panic!("{args:?}");
    };
    let wanted = Wanted::of(options.subject.as_deref());
    answer(snapshot, leases, &wanted, &options)
}

fn listed(subject: &str, node: Option<&str>) -> Option<String> {
    pods_to_list(&Wanted::of(Some(subject)), node).field_selector
}

#[test]
fn the_pods_of_all_nodes_are_read_for_an_address() {
    assert_eq!(listed("10.1.0.18", None), None);
    assert_eq!(listed("10.1.0.18", Some("a")).as_deref(), Some("spec.nodeName=a"));
    assert_eq!(listed("ml/p", None).as_deref(), Some("metadata.name=p"));
}

#[test]
fn an_excluded_address_shows_the_imported_pod_that_has_it() {
    let mut cluster = with(&[block("rail0", "10.1.0.192/28", "b")], &[]);
    cluster.pods = [pod("p", "a", "10.1.0.203")].into_iter().collect();
    let answer = asked(&cluster, &["10.1.0.203"]);
    assert!(answer.text.contains("ml/p"), "{}", answer.text);
    assert_eq!(answer.json["unallocated"], json!(null));
}

#[test]
fn an_address_is_not_called_free_if_options_leave_out_pods() {
    let cluster = cluster();
    for options in [["--node", "b"], ["--pool", "rail1"]] {
        let answer = asked(&cluster, &[&["10.1.0.18"][..], &options].concat());
        assert!(!answer.text.contains("is free"), "{}", answer.text);
        assert!(answer.text.contains("without them"), "{}", answer.text);
        assert_eq!(answer.json["unallocated"], json!(null));
    }
    let whole = asked(&cluster, &["10.1.0.18"]);
    assert!(whole.text.contains("is free"), "{}", whole.text);
    assert_eq!(whole.text.trim_end(), whole.json["unallocated"]);
}

/// The leases of this machine, whose host name is the name of no Node.
#[test]
fn leases_of_a_machine_without_a_known_node_are_listed_for_no_node() {
    let mut lease = crate::leases::NodeLease {
        pool: Some("rail0".to_owned().try_into().unwrap()),
        lease: lease("c", "net1"),
    };
    lease.lease.result.ips = vec![IpConfig {
        address: "10.1.0.19".parse::<IpAddr>().unwrap().into(),
        gateway: None,
        interface: None,
        probe: false,
    }];
    let cluster = cluster();
    let of_machine = |node| LocalLeases {
        intact: std::slice::from_ref(&lease),
        damaged: &[],
        node,
    };
    let found = asked_with(&cluster, of_machine(None), &["--node", "b"]);
    assert_eq!(found.json["addresses"], json!([]), "{}", found.text);
    let found = asked_with(&cluster, of_machine(Some("a")), &["--node", "a"]);
    assert_eq!(found.json["addresses"][0]["node"], "a", "{}", found.text);
    assert_eq!(
        this_node(&cluster, vec!["renamed".to_owned(), "b".to_owned()]).as_deref(),
        Some("b")
    );
    assert_eq!(this_node(&cluster, Vec::new()), None);
}
