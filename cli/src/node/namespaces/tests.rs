// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::leases;
use crate::node::facts::{LiveFacts, NodeFacts};
use crate::node::{advice, check};
use common::cni::dispatch::{Call, Plugin};
use common::cni::{Args, Attachment, Conf, Reader};
use ipam::RdmaIpam;
use serde_json::json;
use std::os::unix::fs::symlink;

/// ADD of `ifname` of pod `ml/trainer`, whose namespace is the one of this process.
fn add(directory: &Path, ifname: &str) {
    let netns = directory.join("netns");
    if !netns.exists() {
        symlink("/proc/self/ns/net", &netns).unwrap();
    }
    let conf = json!({
        "cniVersion": "1.1.0", "name": format!("network-{ifname}"), "type": "cni-ipoib",
        "ipam": { "type": "rdma-ipam", "dataDir": directory.join("data"), "ranges": [[{ "subnet": "10.9.0.0/24" }]] },
    });
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=ml;K8S_POD_NAME=trainer;K8S_POD_UID=uid";
    let call = Call {
        program: "rdma-ipam".to_owned(),
        conf: Conf::read(conf.to_string().as_bytes()).unwrap(),
        args: Args::parse(args).unwrap(),
        args_text: args.to_owned(),
        path: Vec::new(),
        netns_override: false,
        reader: Reader::PRESENT,
    };
    let attachment = Attachment {
        container_id: "sandbox".parse().unwrap(),
        ifname: ifname.parse().unwrap(),
    };
    RdmaIpam::default().add(&call, &attachment, &netns).unwrap();
}

#[test]
fn a_namespace_is_empty_only_if_it_exists_and_no_process_is_in_it() {
    let directory = tempfile::tempdir().unwrap();
    add(directory.path(), "net1");
    add(directory.path(), "net2");
    let (leases, _) = leases::all(&directory.path().join("data")).unwrap();
    assert_eq!(leases.len(), 2);
    assert_eq!(empty(&leases, &of_processes()), []);
    let of_nobody = empty(&leases, &HashSet::new());
    assert_eq!(
        of_nobody,
        [EmptyNamespace {
            path: directory.path().join("netns"),
            container_id: "sandbox".to_owned(),
            pod: Some("ml/trainer".to_owned()),
            addresses: vec!["10.9.0.2".to_owned(), "10.9.0.2".to_owned()],
        }]
    );
    fs::remove_file(directory.path().join("netns")).unwrap();
    assert_eq!(empty(&leases, &HashSet::new()), []);
}

/// What `rdmanet node` says about a namespace at `path`.
fn said(path: &str) -> String {
    let namespace = EmptyNamespace {
        path: path.into(),
        container_id: "344f".to_owned(),
        pod: Some("ml/trainer".to_owned()),
        addresses: vec!["10.9.0.2".to_owned()],
    };
    let facts = NodeFacts {
        name: "node-1".to_owned(),
        live: Some(LiveFacts {
            empty_namespaces: vec![namespace],
            ..LiveFacts::default()
        }),
        ..NodeFacts::default()
    };
    let findings = check::findings(&facts, &advice::advise(&facts));
    let one = findings.into_iter().find(|finding| finding.subject == path);
    one.unwrap().describe()
}

#[test]
fn the_finding_names_the_pod_the_address_and_the_command_that_removes_the_namespace() {
    let text = said("/var/run/netns/78b5")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    for piece in [
        "WARN /var/run/netns/78b5",
        "10.9.0.2 of pod ml/trainer, sandbox 344f",
        "crictl pods --id 344f",
        "ip netns delete 78b5",
    ] {
        assert!(text.contains(piece), "no '{piece}' in: {text}");
    }
    assert!(said("/run/docker/netns/78b5").contains("umount"));
}
