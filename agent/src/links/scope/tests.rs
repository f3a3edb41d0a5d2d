// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn words_and_names_are_told_apart_and_written_back_as_they_were() {
    for text in ["rdma", "none", "ib*", "ib0,bond[01]"] {
        assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
    }
    assert_eq!("rdma".parse::<Scope>().unwrap(), Scope::Rdma);
    assert_eq!("none".parse::<Scope>().unwrap(), Scope::Nothing);
}

#[test]
fn patterns_name_links_and_words_name_none() {
    let named: Scope = "ib*, bond0".parse().unwrap();
    assert!(named.names(["ib7"]) && named.names(["bond0"]) && named.names(["eth0", "ib7"]));
    assert!(!named.names(["eth0"]) && !named.names(["bond01"]));
    assert!(!Scope::Rdma.names(["ib0"]) && !Scope::Nothing.names(["ib0"]));
}

#[test]
fn what_no_link_can_be_called_is_refused_with_the_word() {
    for (text, word) in [
        ("", "\"\""),
        ("ib0,,ib1", "\"\""),
        ("ib0,a/b", "\"a/b\""),
        ("[ib", "\"[ib\""),
    ] {
        let said = text.parse::<Scope>().unwrap_err().to_string();
        assert!(said.contains(word), "{text}: {said}");
    }
}
