// SPDX-License-Identifier: Apache-2.0
//! Runs against this machine's kernel, each test in its own namespaces. InfiniBand is tested in `bytes` and
//! in the fabric.

mod bytes;
mod fabric;
mod fuzz;
mod links;
mod routes;
mod rules;
mod saved;

use super::super::{NewLink, NewLinkKind, Route, Socket};
use crate::netns::{Netns, tests::fresh};
use std::os::fd::AsFd;

fn socket(netns: &Netns) -> Socket<Route> {
    Socket::open_in(netns).unwrap()
}

/// A request for a link of this kind.
fn new<'a>(name: &'a str, kind: NewLinkKind<'a>) -> NewLink<'a> {
    NewLink {
        name,
        parent: 0,
        netns: None,
        mtu: None,
        address: None,
        group: 0,
        kind,
    }
}

/// Returns a namespace with both ends of a veth pair, `v0` and `v1`, and their indices.
fn cable() -> (Netns, Socket<Route>, u32, u32) {
    let netns = fresh();
    let mut socket = socket(&netns);
    socket
        .add_link(&new("v0", NewLinkKind::Veth { peer: "v1" }))
        .unwrap();
    let index = |s: &mut Socket<Route>, name| s.link(name).unwrap().unwrap().index;
    let (v0, v1) = (index(&mut socket, "v0"), index(&mut socket, "v1"));
    (netns, socket, v0, v1)
}

#[test]
fn a_socket_stays_in_its_namespace() {
    let (netns, ..) = cable();
    let names: Vec<String> = socket(&netns)
        .links()
        .unwrap()
        .into_iter()
        .map(|link| link.name)
        .collect();
    assert_eq!(names, ["lo", "v1", "v0"]);
    let other = fresh();
    let names: Vec<String> = socket(&other)
        .links()
        .unwrap()
        .into_iter()
        .map(|link| link.name)
        .collect();
    assert_eq!(names, ["lo"]);
    assert!(other.as_fd().try_clone_to_owned().is_ok());
}
