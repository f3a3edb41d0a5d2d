// SPDX-License-Identifier: Apache-2.0
use super::*;
use common::netlink::LinkLayer;

#[test]
fn a_link_scope_is_printed_as_it_was_parsed() {
    for text in ["rdma", "none", "ib*", "ib0,bond[01]"] {
        assert_eq!(text.parse::<LinkScope>().unwrap().to_string(), text);
    }
    assert_eq!("rdma".parse::<LinkScope>().unwrap(), LinkScope::Rdma);
    assert_eq!("none".parse::<LinkScope>().unwrap(), LinkScope::Nothing);
}

#[test]
fn link_patterns_match_names_and_keywords_match_none() {
    let named: LinkScope = "ib*, bond0".parse().unwrap();
    let link = |name: &str, altnames: &[&str]| {
        let mut link = Link::new(1, name, LinkLayer::Ethernet);
        link.altnames = altnames.iter().map(|&altname| altname.to_owned()).collect();
        link
    };
    let of = |name| link(name, &[]);
    assert!(named.names(&of("ib7")) && named.names(&of("bond0")) && named.names(&link("eth0", &["ib7"])));
    assert!(!named.names(&of("eth0")) && !named.names(&of("bond01")));
    assert!(!LinkScope::Rdma.names(&of("ib0")) && !LinkScope::Nothing.names(&of("ib0")));
}

#[test]
fn an_impossible_link_name_is_rejected_and_quoted() {
    for (text, word) in [
        ("", "\"\""),
        ("ib0,,ib1", "\"\""),
        ("ib0,a/b", "\"a/b\""),
        ("[ib", "\"[ib\""),
    ] {
        let said = text.parse::<LinkScope>().unwrap_err().to_string();
        assert!(said.contains(word), "{text}: {said}");
    }
}
