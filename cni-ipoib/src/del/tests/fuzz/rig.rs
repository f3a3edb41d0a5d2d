// SPDX-License-Identifier: Apache-2.0
//! The nodes of the cases, and what is compared of them.

use super::THIRD;
use super::damage::{damage, files};
use crate::device::fixture::{self, Host, WAYS, host};
use crate::device::function::tests as function;
use crate::mark::Mark;
use crate::model::{Fixture, State};
use crate::policy;
use crate::rdma::resolve::tests::with_devices;
use common::cni::{Attachment, Env, Reader, Streams, dispatch};
use common::mutate::Random;
use common::netlink::{FunctionState, Link, NetnsMode, RdmaDevice, RouteEntry, Rule};
use common::rdma::Guid;
use ipnetwork::IpNetwork;
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::path::PathBuf;
use tempfile::TempDir;

/// The first pod, whose files are damaged.
pub(super) const OWN: (&str, &str) = ("c1", "net1");

/// The second pod.
pub(super) const OTHER: (&str, &str) = ("c2", "net2");

/// A node, and what both pods request on it.
pub(super) struct Rig {
    pub(super) fixture: Fixture,
    pub(super) kind: &'static str,
    /// A directory that no call may change.
    outside: TempDir,
    own: Value,
    other: Value,
    /// The network of the second pod.
    network: &'static str,
    /// The device of the link that the first pod takes from the host.
    device: Option<&'static str>,
    /// The last digit of the index of the RDMA device that it takes.
    rdma: Option<u32>,
    ipam: bool,
}

/// Everything of the node, with both pods.
#[derive(Debug, PartialEq)]
pub(super) struct Whole {
    host: Host,
    pod: Vec<Link>,
    functions: Vec<(Guid, Guid, Option<FunctionState>, bool)>,
}

/// The node without what the first pod has, had or creates.
#[derive(Debug, PartialEq)]
pub(super) struct Rest {
    host: Vec<Link>,
    pod: Vec<Link>,
    addresses: Vec<(u32, IpNetwork)>,
    routes: Vec<RouteEntry>,
    rules: Vec<Rule>,
    host_routes: Vec<RouteEntry>,
    host_addresses: Vec<(u32, IpNetwork)>,
    carried: Vec<(u32, String)>,
    rdma: Vec<(String, RdmaDevice)>,
}

impl Rig {
    pub(super) fn new(random: &mut Random) -> Self {
        let rig = match random.below(7) {
            0 => Self::child(Fixture::new(), "moved child"),
            1 => Self::child(Fixture::new().plain(), "child"),
            2 => Self::child(Fixture::new().on_bond(), "bond of moved children"),
            3 => Self::child(Fixture::new().on_bond().plain(), "bond"),
            4 => Self::macvlan(random),
            5 => Self::function(random),
            _ => Self::link(random),
        };
        let network = if random.one_in(2) { "fabric" } else { "other" };
        let ipam = random.one_in(4);
        Self { network, ipam, ..rig }
    }

    fn of(fixture: Fixture, kind: &'static str, own: Value, other: Value) -> Self {
        let outside = tempfile::tempdir().unwrap();
        fs::create_dir(outside.path().join("devinfo")).unwrap();
        fs::write(outside.path().join("devinfo/pod.json"), "{}").unwrap();
        Self {
            fixture,
            kind,
            outside,
            own,
            other,
            network: "fabric",
            device: None,
            rdma: None,
            ipam: false,
        }
    }

    fn child(fixture: Fixture, kind: &'static str) -> Self {
        let keys = json!({"master": fixture.master});
        Self::of(fixture, kind, keys.clone(), keys)
    }

    /// A macvlan child, with or without the RDMA device of its parent.
    fn macvlan(random: &mut Random) -> Self {
        let fixture = with_devices(&[1, 2, 3]);
        let other = random
            .pick(&[
                json!({"master": "eth2"}),
                // The model gives all other macvlan links one address.
                json!({"master": "eth1", "macvlanMode": "private", "mac": "02:00:00:00:00:07"}),
                json!({"master": "eth2", "rdma": {"netns": "exclusive"}}),
                json!({"master": "eth2", "rdma": {"rename": "rdma2"}}),
                json!({"master": "ib0"}),
            ])
            .clone();
        let rdma = match random.below(3) {
            0 => return Self::of(fixture, "macvlan", json!({"master": "eth1"}), other),
            1 => json!({"netns": "exclusive"}),
            _ => json!({"rename": "rdma1"}),
        };
        let own = json!({"master": "eth1", "rdma": rdma});
        Self {
            rdma: Some(1),
            ..Self::of(fixture, "macvlan with RDMA device", own, other)
        }
    }

    /// A whole link.
    fn link(random: &mut Random) -> Self {
        let way = *random.pick(&WAYS);
        let fixture = fixture::fixture(way);
        let exclusive = way.0 == NetnsMode::Exclusive;
        let (kind, link, device, rdma) = match random.below(2) {
            0 => ("InfiniBand link", "ib0", "pci/0000:3b:00.0", Some(1)),
            _ => ("Ethernet link", "ens1", "pci/0000:17:00.0", None),
        };
        let other = random
            .pick(&[
                json!({"master": "ens2"}),
                json!({"master": "ens2", "mode": "device", "keepLast": false}),
                json!({"master": "ib1", "mode": "device", "keepLast": false}),
            ])
            .clone();
        let own = json!({"master": link, "mode": "device", "keepLast": false});
        Self {
            device: Some(device),
            rdma: rdma.filter(|_| exclusive),
            ..Self::of(fixture, kind, own, other)
        }
    }

    /// A virtual function with a GUID of its own.
    fn function(random: &mut Random) -> Self {
        let way = *random.pick(&WAYS);
        let fixture = function::rig_with(way, function::OWN);
        let other = random
            .pick(&[
                json!({"master": "ib0"}),
                json!({"master": "ens2", "mode": "device", "keepLast": false}),
            ])
            .clone();
        let own =
            json!({"master": "ib2", "mode": "device", "keepLast": false, "guid": "02:00:00:00:00:00:00:21"});
        Self {
            device: Some("pci/0000:3b:00.2"),
            rdma: Some(3),
            ..Self::of(fixture, "virtual function", own, other)
        }
    }

    /// Whether the first pod takes a link or an RDMA device from the host.
    pub(super) fn takes(&self) -> bool {
        self.device.is_some() || self.rdma.is_some()
    }

    pub(super) fn add(&self, of: (&str, &str), case: &str) -> Value {
        let (added, answer) = self.call(("ADD", of), true, &json!({}), case);
        assert!(added, "{case}: ADD: {answer}");
        answer
    }

    /// Serves a call as a runtime makes it, with `CNI_NETNS` or without. Returns whether it succeeded, and the document.
    pub(super) fn call(
        &self,
        (verb, (container, ifname)): (&str, (&str, &str)),
        netns: bool,
        more: &Value,
        case: &str,
    ) -> (bool, Value) {
        let mut env: Vec<(&str, String)> = vec![
            ("CNI_COMMAND", verb.to_owned()),
            ("CNI_CONTAINERID", container.to_owned()),
            ("CNI_IFNAME", ifname.to_owned()),
            ("CNI_PATH", self.fixture.ipam.dir().display().to_string()),
        ];
        if netns {
            env.push(("CNI_NETNS", self.fixture.pod.path().display().to_string()));
        }
        let env: Env = env.into_iter().collect();
        let stdin = self.network_of(container, more).to_string().into_bytes();
        let mut stdout = Vec::new();
        let streams = Streams {
            stdin: stdin.as_slice(),
            stdout: &mut stdout,
            stderr: io::sink(),
            reader: Reader::PRESENT,
        };
        let status = dispatch(&self.fixture.plugin(), "cni-ipoib", &env, streams);
        if stdout.is_empty() {
            assert_eq!(status, 0, "{case}: {verb} failed without a document");
            return (true, Value::Null);
        }
        let document: Value =
            serde_json::from_slice(&stdout).unwrap_or_else(|e| panic!("{case}: {verb}: {e}"));
        let msg = document["msg"].as_str().unwrap_or_default();
        assert!(!msg.starts_with("bug in"), "{case}: {verb}: {document}");
        let failed = document.get("code").is_some();
        assert_eq!(status != 0, failed, "{case}: {verb}: {document}");
        (!failed, document)
    }

    /// The configuration of a pod's network.
    fn network_of(&self, container: &str, more: &Value) -> Value {
        let (name, keys) = match container {
            "c2" => (self.network, &self.other),
            _ => ("fabric", &self.own),
        };
        let mut conf = json!({"cniVersion": "1.1.0", "name": name, "type": "cni-ipoib"});
        let object = conf.as_object_mut().unwrap();
        object.extend(keys.as_object().unwrap().clone());
        object.extend(more.as_object().unwrap().clone());
        if container == OWN.0 {
            object.insert(
                "runtimeConfig".to_owned(),
                json!({"CNIDeviceInfoFile": self.fixture.info_file()}),
            );
        }
        if self.ipam {
            object.insert("ipam".to_owned(), json!({"type": "ranges"}));
        }
        conf
    }

    /// The valid attachments of the first network if the first pod is gone.
    pub(super) fn valid(&self) -> Value {
        let other = json!({"containerID": OTHER.0, "ifname": OTHER.1});
        let valid: Vec<Value> = (self.network == "fabric").then_some(other).into_iter().collect();
        json!({"cni.dev/valid-attachments": valid})
    }

    fn file_of(&self, (container, ifname): (&str, &str)) -> PathBuf {
        let network = if container == OTHER.0 {
            self.network
        } else {
            "fabric"
        };
        let file = format!("attachments/{network}/{container}@{ifname}");
        self.fixture.state.path().join(file)
    }

    pub(super) fn is_written(&self, of: (&str, &str)) -> bool {
        self.file_of(of).exists()
    }

    /// Whether the attachment's file has content, or a marker shows what the attachment took from the host.
    pub(super) fn has_traces(&self, of: (&str, &str)) -> bool {
        let file = self.file_of(of);
        let content = fs::read(&file).unwrap_or_default();
        let place = file
            .strip_prefix(self.fixture.state.path().join("attachments"))
            .unwrap();
        let marker = |kind: &&str| self.fixture.state.path().join(kind).join(place).exists();
        !content.is_empty() || ["whole", "moved"].iter().any(marker)
    }

    /// Damages one or two files. Returns all files as they were, and what it did.
    pub(super) fn damaged(&self, random: &mut Random) -> (Vec<(PathBuf, Vec<u8>)>, Vec<String>) {
        let state = self.fixture.state.path();
        let before = files(state);
        let places = (state, self.outside.path());
        let own = self.file_of(OWN);
        let mut damages = vec![damage(random, &before, &own, places)];
        if random.one_in(2) {
            damages.push(damage(random, &before, &own, places));
        }
        (before, damages)
    }

    /// Whether the attachment's file is as it was before the damage.
    pub(super) fn is_intact(&self, before: &[(PathBuf, Vec<u8>)], of: (&str, &str)) -> bool {
        let file = self.file_of(of);
        let was = before.iter().find(|(path, _)| *path == file);
        was.is_some_and(|(_, content)| fs::read(&file).ok().as_ref() == Some(content))
    }

    pub(super) fn files_outside(&self) -> Vec<(PathBuf, Vec<u8>)> {
        files(self.outside.path())
    }

    /// The namespace of the first pod ends without DEL. The model has one namespace for all pods, so the links and devices of the
    /// second pod are not in it for a moment, and the record of the first pod gets another namespace.
    pub(super) fn end_namespace(&self) {
        self.fixture
            .amend_intent(OWN.0, |intent| intent.netns_id = (1, 1));
        let mut model = self.fixture.kernel.set();
        let state = &mut model.state;
        let before = state.clone();
        state.pod.retain(|link| !is_of_other(link));
        state
            .rdma
            .devices
            .retain(|(_, device)| self.is_own_device(device));
        state.pod_dies();
        let (links, rest) = (
            before.pod.iter().filter(|link| is_of_other(link)),
            self.rest_of(&before),
        );
        state.pod.extend(links.cloned());
        state.addresses.extend(rest.addresses);
        state.routes.extend(rest.routes);
        state.rules.extend(rest.rules);
        let devices = before.rdma.devices.into_iter();
        state
            .rdma
            .devices
            .extend(devices.filter(|(_, device)| !self.is_own_device(device)));
    }

    pub(super) fn whole(&self) -> Whole {
        let state = self.fixture.kernel.state();
        let mut pod = state.pod.clone();
        pod.sort_by(|a, b| a.name.cmp(&b.name));
        let functions = state.functions.iter();
        Whole {
            host: host(&self.fixture),
            pod,
            functions: functions
                .map(|of| (of.node_guid, of.port_guid, of.link_state, of.unbound.is_none()))
                .collect(),
        }
    }

    pub(super) fn rest(&self) -> Rest {
        self.rest_of(&self.fixture.kernel.state())
    }

    fn rest_of(&self, state: &State) -> Rest {
        let mut host: Vec<Link> = state
            .host
            .iter()
            .filter(|link| !self.is_own(link))
            .cloned()
            .collect();
        let mut pod: Vec<Link> = state
            .pod
            .iter()
            .filter(|link| is_of_other(link))
            .cloned()
            .collect();
        host.sort_by_key(|link| link.index);
        pod.sort_by_key(|link| link.index);
        let of = |links: &[Link], index: u32| links.iter().any(|link| link.index == index);
        let table = policy::table(&mark(self.network, OTHER));
        let devices = state
            .rdma
            .devices
            .iter()
            .filter(|(_, device)| !self.is_own_device(device));
        let mut rdma: Vec<_> = devices
            .map(|(side, device)| (format!("{side:?}"), device.clone()))
            .collect();
        rdma.sort_by_key(|(_, device)| device.index);
        let carried = state.left.carried.iter().filter(|(index, _)| of(&host, *index));
        Rest {
            addresses: state
                .addresses
                .iter()
                .filter(|(index, _)| of(&pod, *index))
                .copied()
                .collect(),
            routes: state
                .routes
                .iter()
                .filter(|route| of(&pod, route.index))
                .cloned()
                .collect(),
            rules: state
                .rules
                .iter()
                .filter(|rule| rule.table == table)
                .cloned()
                .collect(),
            host_routes: state.host_routes.clone(),
            host_addresses: state.host_addresses.clone(),
            carried: carried
                .map(|(index, saved)| (*index, saved.what.clone()))
                .collect(),
            rdma,
            host,
            pod,
        }
    }

    /// Whether `link`, on the host, is one that the first or the third pod took or created.
    fn is_own(&self, link: &Link) -> bool {
        let created = [OWN, THIRD]
            .map(|of| mark("fabric", of).group)
            .contains(&link.group);
        created || self.device.is_some() && link.device.as_deref() == self.device
    }

    fn is_own_device(&self, device: &RdmaDevice) -> bool {
        self.rdma == Some(device.index % 10)
    }
}

/// Whether `link`, in the namespace of the pods, is the second pod's.
fn is_of_other(link: &Link) -> bool {
    link.name.starts_with(OTHER.1)
}

fn mark(network: &str, (container, ifname): (&str, &str)) -> Mark {
    let attachment = Attachment {
        container_id: container.parse().unwrap(),
        ifname: ifname.parse().unwrap(),
    };
    Mark::new(network, &attachment)
}
