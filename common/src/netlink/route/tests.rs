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

use super::super::{LinkChange, NewLink, NewLinkKind, Route, Socket};
use crate::netns::{Netns, tests::fresh};
use std::os::fd::AsFd;

fn socket(netns: &Netns) -> Socket<Route> {
    Socket::open_in(netns).unwrap()
}

/// A request for a link of this kind.
pub(crate) fn new<'a>(name: &'a str, kind: NewLinkKind<'a>) -> NewLink<'a> {
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

fn bring_up(socket: &mut Socket<Route>, index: u32) {
    let up = LinkChange {
        up: Some(true),
        ..LinkChange::default()
    };
    socket.change_link(index, &up).unwrap();
}

/// The names of the links in a namespace.
fn names(netns: &Netns) -> Vec<String> {
    let links = socket(netns).links().unwrap();
    links.into_iter().map(|link| link.name).collect()
}

/// Returns a namespace with both ends of a veth pair, `v0` and `v1`, and their indices.
pub(crate) fn cable() -> (Netns, Socket<Route>, u32, u32) {
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
    assert_eq!(names(&netns), ["lo", "v1", "v0"]);
    let other = fresh();
    assert_eq!(names(&other), ["lo"]);
    assert!(other.as_fd().try_clone_to_owned().is_ok());
}
