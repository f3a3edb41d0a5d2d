// SPDX-License-Identifier: Apache-2.0
//! A pod: a network namespace behind a path, and the runtime's record of it.

use crate::{Answer, Call, Conf, Node};
use cni_ipoib::policy::PRIORITY;
use common::netlink::{Address, Link, Route, RouteEntry, Socket};
use common::netns::Netns;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::thread;

/// A pod of a node.
pub struct Pod<'n> {
    node: &'n Node,
    /// `CNI_CONTAINERID`.
    pub id: String,
    /// `CNI_NETNS`.
    pub netns: PathBuf,
    /// The results of ADD, by network and interface, as in the cache of libcni.
    results: Mutex<BTreeMap<(String, String), Value>>,
}

impl<'n> Pod<'n> {
    pub(crate) fn new(node: &'n Node, id: &str, netns: PathBuf) -> Self {
        let pod = Self {
            node,
            id: id.to_owned(),
            netns,
            results: Mutex::default(),
        };
        pod.make_netns();
        pod
    }

    /// The pod's number on its node, from 1.
    pub fn number(&self) -> u32 {
        self.id.trim_start_matches("pod-").parse().unwrap()
    }

    /// Creates a namespace at the pod's path.
    fn make_netns(&self) {
        File::create(&self.netns).unwrap();
        let made = || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            mount(
                Some("/proc/thread-self/ns/net"),
                &self.netns,
                None::<&str>,
                MsFlags::MS_BIND,
                None::<&str>,
            )
        };
        thread::scope(|scope| scope.spawn(made).join().unwrap())
            .expect("make a network namespace; this suite must run as root");
        self.ip("link set lo up");
    }

    /// Ends the namespace without DEL, as when a node's runtime is killed.
    pub fn die(&self) {
        umount2(&self.netns, MntFlags::MNT_DETACH).unwrap();
        fs::remove_file(&self.netns).unwrap();
    }

    /// Opens the namespace, which exists at least as long as the value.
    pub fn open(&self) -> Netns {
        Netns::open(&self.netns).unwrap()
    }

    /// A call for the interface `ifname`. CHECK and DEL contain the result of ADD.
    pub fn call(&self, command: &str, conf: &Conf, ifname: &str) -> Call {
        let key = (conf.text("name").to_owned(), ifname.to_owned());
        let prev = self.results.lock().unwrap().get(&key).cloned();
        let conf = match prev {
            Some(prev) if command != "ADD" => conf.clone().with("prevResult", prev),
            _ => conf.clone(),
        };
        self.node
            .call(command, &conf)
            .env("CNI_CONTAINERID", &self.id)
            .env("CNI_IFNAME", ifname)
            .env("CNI_NETNS", &self.netns)
    }

    /// Calls ADD, which may fail.
    pub fn add(&self, conf: &Conf, ifname: &str) -> Answer {
        let answer = self.call("ADD", conf, ifname).run();
        if answer.status.success() {
            self.keep(conf, ifname, &answer.result());
        }
        answer
    }

    /// Calls ADD, which must succeed. Returns the result.
    #[track_caller]
    pub fn attach(&self, conf: &Conf, ifname: &str) -> Value {
        self.add(conf, ifname).result()
    }

    /// Caches `result` as a runtime does.
    pub fn keep(&self, conf: &Conf, ifname: &str, result: &Value) {
        let key = (conf.text("name").to_owned(), ifname.to_owned());
        self.results.lock().unwrap().insert(key, result.clone());
    }

    /// Removes the cached results, as after a reboot or with a damaged cache.
    pub fn forget(&self) {
        self.results.lock().unwrap().clear();
    }

    /// Calls DEL, which must succeed.
    #[track_caller]
    pub fn detach(&self, conf: &Conf, ifname: &str) {
        self.call("DEL", conf, ifname).run().done();
        self.results
            .lock()
            .unwrap()
            .remove(&(conf.text("name").to_owned(), ifname.to_owned()));
    }

    /// Asserts that DEL deletes `net1`, a link without mark and record, only if the plugin is installed as `peer`. The runtime sends no
    /// prevResult.
    #[track_caller]
    pub fn deletes_a_link_of(&self, peer: &str, conf: &Conf) {
        let theirs = self.link("net1");
        self.detach(conf, "net1");
        assert_eq!(
            self.link("net1"),
            theirs,
            "under our own name the name proves nothing"
        );
        self.node.install_as(peer);
        self.detach(&conf.clone().with("type", peer), "net1");
        assert!(self.links().is_empty(), "{:?}", self.links());
    }

    /// Calls CHECK, which may fail.
    pub fn check(&self, conf: &Conf, ifname: &str) -> Answer {
        self.call("CHECK", conf, ifname).run()
    }

    /// Every link of the pod except `lo`.
    pub fn links(&self) -> Vec<Link> {
        let mut links = self.socket().links().unwrap();
        links.retain(|link| link.name != "lo");
        links
    }

    /// The names of [`Pod::links`], sorted. The order of the indexes says nothing: a link that was moved into the pod keeps its
    /// index of the node, unless the pod has that index already.
    pub fn link_names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.links().into_iter().map(|link| link.name).collect();
        names.sort();
        names
    }

    /// The link `name`.
    #[track_caller]
    pub fn link(&self, name: &str) -> Link {
        let link = self.socket().link(name).unwrap();
        link.unwrap_or_else(|| panic!("pod {} has no {name}, only {:?}", self.id, self.link_names()))
    }

    /// The addresses of the link `name`.
    #[track_caller]
    pub fn addresses(&self, name: &str) -> Vec<Address> {
        let index = self.link(name).index;
        self.socket().addresses(index).unwrap()
    }

    /// The addresses of the link `name` that are not link-local, as text.
    #[track_caller]
    pub fn global(&self, name: &str) -> Vec<String> {
        let global = self.addresses(name).into_iter().filter(|a| a.scope == 0);
        global.map(|a| a.address.to_string()).collect()
    }

    /// The routes through the link `name`, except those in its table of policy routing.
    #[track_caller]
    pub fn routes(&self, name: &str) -> Vec<RouteEntry> {
        let rules = self.socket().rules().unwrap();
        let own = |table| {
            rules
                .iter()
                .any(|rule| rule.priority == PRIORITY && Some(rule.table) == table)
        };
        let mut routes = self.all_routes(name);
        routes.retain(|route| !own(route.table));
        routes
    }

    /// The routes through the link `name` in every table.
    #[track_caller]
    pub fn all_routes(&self, name: &str) -> Vec<RouteEntry> {
        let index = self.link(name).index;
        self.socket().routes(index).unwrap()
    }

    /// The route to `dst` through the link `name`.
    #[track_caller]
    pub fn route(&self, name: &str, dst: &str) -> RouteEntry {
        let routes = self.routes(name);
        let found = routes.iter().find(|route| route.dst.to_string() == dst);
        found
            .cloned()
            .unwrap_or_else(|| panic!("no route to {dst} through {name}, only {routes:#?}"))
    }

    /// A netlink socket of the pod.
    pub fn socket(&self) -> Socket<Route> {
        Socket::open_in(&self.open()).unwrap()
    }

    /// Runs `ip` with these arguments in the pod. It must succeed.
    #[track_caller]
    pub fn ip(&self, words: &str) -> String {
        let output = self.exec("ip", words);
        crate::node::text_of(&format!("ip {words} (in pod {})", self.id), &output)
    }

    /// Runs a program in the pod's namespace. A U+FFFD in the arguments stands for the byte 0xff, which is not UTF-8.
    pub fn exec(&self, program: &str, words: &str) -> Output {
        let words = words.split_whitespace().map(|word| {
            let parts: Vec<&[u8]> = word.split('\u{fffd}').map(str::as_bytes).collect();
            OsString::from_vec(parts.join(&0xff))
        });
        let run = || Command::new(program).args(words).output();
        self.open()
            .run(run)
            .unwrap()
            .unwrap_or_else(|e| panic!("cannot start {program}: {e}; is it installed?"))
    }

    /// The value of a file of `/proc/sys/net` in the pod.
    pub fn sysctl(&self, file: &str) -> String {
        let path = Path::new("/proc/sys/net").join(file);
        let read = || fs::read_to_string(&path);
        self.open().run(read).unwrap().unwrap().trim().to_owned()
    }
}

impl Drop for Pod<'_> {
    fn drop(&mut self) {
        // The test may have ended it already.
        let _ = umount2(&self.netns, MntFlags::MNT_DETACH);
        let _ = fs::remove_file(&self.netns);
    }
}
