// SPDX-License-Identifier: Apache-2.0
use super::cable;
use crate::netlink::{Added, LinkChange, Saved};
use crate::netns::Netns;
use std::process::Command;

/// Runs `ip` inside `netns`.
fn ip(netns: &Netns, words: &str) {
    let output = netns
        .run(|| Command::new("ip").args(words.split_whitespace()).output())
        .unwrap()
        .unwrap();
    assert!(output.status.success(), "ip {words}: {output:?}");
}

/// Every kind of object that a link of a storage network may have.
const CARRIED: [&str; 12] = [
    "link set v1 up",
    "link set v0 up",
    "addr add 10.7.0.1/24 brd + dev v0 label v0:nfs",
    "addr add 10.7.0.9/24 dev v0 metric 300",
    "addr add 10.8.0.1 peer 10.8.0.2/32 dev v0",
    "addr add 10.9.0.1/24 dev v0 valid_lft 3000 preferred_lft 2000",
    "addr add fd00:7::1/64 dev v0 nodad",
    "route add 10.20.0.0/16 via 10.7.0.254 dev v0 src 10.7.0.9 metric 77 mtu 1400",
    "route add 10.21.0.0/16 dev v0 table 100",
    "route add fd00:20::/48 via fd00:7::fe dev v0",
    "route add 10.22.0.0/16 via 192.0.2.1 dev v0 onlink proto bird",
    "neigh add 10.7.0.99 lladdr 02:00:00:00:00:63 dev v0 nud permanent",
];

fn words(saved: &[Saved]) -> Vec<&str> {
    saved.iter().map(|saved| saved.what.as_str()).collect()
}

#[test]
fn addresses_routes_and_neighbours_of_a_link_are_restored() {
    let (netns, mut socket, v0, _) = cable();
    for words in CARRIED {
        ip(&netns, words);
    }
    let before = socket.save(v0).unwrap();
    assert!(before.shared.is_empty());
    for expected in [
        "address 10.7.0.1/24",
        "route to 10.20.0.0/16 via 10.7.0.254",
        "neighbour 10.7.0.99",
    ] {
        assert!(
            words(&before.saved).contains(&expected),
            "{:?}",
            words(&before.saved)
        );
    }
    let text = serde_json::to_string(&before.saved).unwrap();
    let read: Vec<Saved> = serde_json::from_str(&text).unwrap();
    assert_eq!(read, before.saved);

    for words in [
        "addr flush dev v0",
        "neigh flush dev v0 nud permanent",
        "link set v0 down",
        "link set v0 up",
    ] {
        ip(&netns, words);
    }
    let fewer = socket.save(v0).unwrap();
    assert!(!words(&fewer.saved).iter().any(|what| what.contains("10.")));
    for saved in &read {
        socket.restore(v0, saved).unwrap();
    }
    let after = socket.save(v0).unwrap();
    let mut names = [words(&before.saved), words(&after.saved)];
    for names in &mut names {
        names.sort_unstable();
    }
    assert_eq!(names[0], names[1]);
    for saved in before.saved.iter().filter(|saved| !is_of_a_moment(saved)) {
        assert!(after.saved.contains(saved), "{} is not as it was", saved.what);
    }
    for saved in &read {
        assert_eq!(
            socket.restore(v0, saved).unwrap(),
            Added::Present,
            "{}",
            saved.what
        );
    }
}

/// Whether the object contains creation times or lifetimes, which differ between two reads.
fn is_of_a_moment(saved: &Saved) -> bool {
    saved.what.starts_with("address")
}

#[test]
fn an_address_comes_back_with_its_label_and_its_peer() {
    let (netns, mut socket, v0, _) = cable();
    for words in CARRIED {
        ip(&netns, words);
    }
    let saved = socket.save(v0).unwrap().saved;
    ip(&netns, "addr flush dev v0");
    for saved in &saved {
        socket.restore(v0, saved).unwrap();
    }
    let output = netns.run(|| Command::new("ip").args(["addr", "show", "v0"]).output());
    let text = String::from_utf8(output.unwrap().unwrap().stdout).unwrap();
    for expected in [
        "10.7.0.1/24 brd 10.7.0.255 scope global v0:nfs",
        "10.7.0.9/24 metric 300",
        "10.8.0.1 peer 10.8.0.2/32",
    ] {
        assert!(text.contains(expected), "no {expected:?} in {text}");
    }
}

/// While the kernel looks for duplicates of an IPv6 address, it refuses routes from the address.
#[test]
fn a_route_from_an_ipv6_address_is_restored_with_the_address() {
    let (netns, mut socket, v0, _) = cable();
    for words in [
        "link set v1 up",
        "link set v0 up",
        "addr add fd00:8::1/64 dev v0 nodad",
        "addr change fd00:8::1/64 dev v0",
        "route add fd00:21::/48 via fd00:8::fe dev v0 src fd00:8::1",
    ] {
        ip(&netns, words);
    }
    let shown = || {
        let words = ["-6", "addr", "show", "dev", "v0", "to", "fd00:8::1"];
        let output = netns.run(|| Command::new("ip").args(words).output());
        String::from_utf8(output.unwrap().unwrap().stdout).unwrap()
    };
    let before = (shown(), socket.save(v0).unwrap().saved);
    assert!(!before.0.contains("nodad"), "{}", before.0);
    for words in ["addr flush dev v0", "link set v0 down", "link set v0 up"] {
        ip(&netns, words);
    }
    for saved in &before.1 {
        socket.restore(v0, saved).unwrap();
    }
    assert_eq!(shown(), before.0);
    assert_eq!(words(&socket.save(v0).unwrap().saved), words(&before.1));
}

/// An address with a lifetime may expire while a pod has the link, and the program that leased it may lease another one.
#[test]
fn a_leased_address_and_its_routes_are_not_saved() {
    let (netns, mut socket, v0, _) = cable();
    for words in CARRIED {
        ip(&netns, words);
    }
    for words in [
        "addr add fd00:9::1/64 dev v0 valid_lft 3000 preferred_lft 2000 nodad",
        "route add 10.23.0.0/16 via 10.9.0.254 dev v0 src 10.9.0.1 proto dhcp",
    ] {
        ip(&netns, words);
    }
    let saved = socket.save(v0).unwrap().saved;
    let words = words(&saved);
    for leased in [
        "address 10.9.0.1/24",
        "route to 10.9.0.0/24",
        "address fd00:9::1/64",
        "route to 10.23.0.0/16 via 10.9.0.254",
    ] {
        assert!(!words.contains(&leased), "{leased} in {words:?}");
    }
    for own in [
        "address 10.7.0.1/24",
        "route to 10.7.0.0/24",
        "address fd00:7::1/64",
    ] {
        assert!(words.contains(&own), "no {own} in {words:?}");
    }
}

#[test]
fn saved_objects_are_restored_on_a_link_with_another_index() {
    let (netns, mut socket, v0, v1) = cable();
    for words in CARRIED {
        ip(&netns, words);
    }
    let saved = socket.save(v0).unwrap().saved;
    ip(&netns, "link set v0 down");
    for saved in &saved {
        socket.restore(v1, saved).unwrap();
    }
    let after = socket.save(v1).unwrap().saved;
    for what in words(&saved).iter().filter(|what| !what.contains("fe80")) {
        assert!(
            words(&after).contains(what),
            "{what} is not among {:?}",
            words(&after)
        );
    }
}

#[test]
fn a_route_over_two_links_is_reported_and_not_saved() {
    let (netns, mut socket, v0, _) = cable();
    for words in &CARRIED[..3] {
        ip(&netns, words);
    }
    ip(&netns, "addr add 10.6.0.1/24 dev v1");
    ip(
        &netns,
        "route add 10.30.0.0/16 nexthop via 10.7.0.2 dev v0 nexthop via 10.6.0.2 dev v1",
    );
    ip(&netns, "nexthop add id 5 via 10.7.0.3 dev v0");
    ip(&netns, "route add 10.31.0.0/16 nhid 5");
    let mut carried = socket.save(v0).unwrap();
    carried.shared.sort();
    assert_eq!(carried.shared.len(), 2, "{carried:?}");
    assert!(carried.shared[0].starts_with("route to 10.30.0.0/16"));
    assert!(carried.shared[1].starts_with("route to 10.31.0.0/16"));
    assert!(!words(&carried.saved).iter().any(|what| what.contains("10.3")));
}

#[test]
fn a_damaged_record_is_refused_with_an_explanation() {
    let text = r#"{"what": "address 10.0.0.1/24", "message": "0011"}"#;
    let saved: Saved = serde_json::from_str(text).unwrap();
    let (_netns, mut socket, v0, _) = cable();
    let error = socket.restore(v0, &saved).unwrap_err().to_string();
    assert!(error.contains("address 10.0.0.1/24"), "{error}");
    for message in ["001", "zz", "0é"] {
        let text = format!(r#"{{"what": "", "message": "{message}"}}"#);
        assert!(serde_json::from_str::<Saved>(&text).is_err(), "{message}");
    }
}

#[test]
fn an_altname_is_added_and_deleted() {
    let (_netns, mut socket, v0, v1) = cable();
    assert!(socket.add_altname(v0, "enp59s0f0np0-rail-number-zero").unwrap());
    assert!(!socket.add_altname(v0, "enp59s0f0np0-rail-number-zero").unwrap());
    let link = socket.link("enp59s0f0np0-rail-number-zero").unwrap().unwrap();
    assert_eq!((link.index, link.altnames.len()), (v0, 1));
    let taken = socket
        .add_altname(v1, "enp59s0f0np0-rail-number-zero")
        .unwrap_err();
    assert!(taken.is(nix::errno::Errno::EEXIST), "{taken:?}");
    assert!(
        !socket
            .delete_altname(v1, "enp59s0f0np0-rail-number-zero")
            .unwrap()
    );
    assert!(
        socket
            .delete_altname(v0, "enp59s0f0np0-rail-number-zero")
            .unwrap()
    );
    assert!(
        !socket
            .delete_altname(v0, "enp59s0f0np0-rail-number-zero")
            .unwrap()
    );
    let gone = LinkChange {
        alias: Some("x"),
        ..LinkChange::default()
    };
    socket.change_link(v0, &gone).unwrap();
}
