// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::model::{attachment, ipoib};

fn marked(mark: &Mark) -> Link {
    Link {
        group: mark.group,
        alias: Some(mark.alias.clone()),
        ..ipoib(9, "net1", 0x8001)
    }
}

/// These values never change: a newer release must find the links of an older one.
#[test]
fn marks_are_the_same_in_every_release() {
    let mark = Mark::new("fabric", &attachment("c1"));
    assert_eq!(mark.alias, "rdmanet:fabric/c1@net1");
    assert_eq!(mark.group, 0x38c0_f31a);
    assert_eq!(fnv1a(b""), 0x811c_9dc5);
    assert_eq!(fnv1a(b"a"), 0xe40c_292c);
    assert_eq!(fnv1a(b"foobar"), 0xbf9c_f968);
}

#[test]
fn every_part_of_an_attachment_changes_the_mark() {
    let base = Mark::new("fabric", &attachment("c1"));
    let other_interface = Attachment {
        ifname: "net2".parse().unwrap(),
        ..attachment("c1")
    };
    for other in [
        Mark::new("fabrik", &attachment("c1")),
        Mark::new("fabric", &attachment("c2")),
        Mark::new("fabric", &other_interface),
    ] {
        assert_ne!(base.group, other.group);
        assert_ne!(base.alias, other.alias);
        assert!(!base.is_on(&marked(&other)));
    }
}

#[test]
fn a_link_is_recognized_by_group_and_alias_or_group_alone() {
    let mark = Mark::new("fabric", &attachment("c1"));
    let link = marked(&mark);
    assert!(mark.is_on(&link));
    assert!(
        mark.is_on(&Link {
            alias: None,
            ..link.clone()
        }),
        "killed at its start"
    );
    assert!(
        !mark.is_on(&Link {
            group: 0,
            ..link.clone()
        }),
        "any process can copy the alias"
    );
    assert!(
        !mark.is_on(&Link {
            alias: Some("uplink".to_owned()),
            ..link.clone()
        }),
        "a group that collides"
    );
    assert!(!mark.is_on(&Link {
        alias: None,
        group: 0,
        ..link
    }));
}

#[test]
fn a_truncated_alias_keeps_the_group_of_the_full_one() {
    let network = "n".repeat(60);
    let long = |last: char| Mark::new(&network, &attachment(&format!("{}{last}", "c".repeat(199))));
    let (a, b) = (long('a'), long('b'));
    assert_eq!((a.alias.len(), &a.alias), (255, &b.alias));
    assert_ne!(a.group, b.group);
    assert!(!a.is_on(&marked(&b)));
    assert_eq!(
        attachment_of(&network, &a.alias),
        None,
        "an incomplete attachment does not count"
    );
}

#[test]
fn an_alias_is_truncated_at_a_character_boundary() {
    for length in 1..=60 {
        let attachment = Attachment {
            ifname: "üüüüüüü".parse().unwrap(),
            ..attachment(&"c".repeat(200))
        };
        let mark = Mark::new(&"n".repeat(length), &attachment);
        assert!(mark.alias.len() <= 255 && "rdmanet:".len() < mark.alias.len());
        assert!(mark.is_on(&marked(&mark)));
    }
}

#[test]
fn an_alias_names_its_attachment() {
    let odd = Attachment {
        ifname: "a@b".parse().unwrap(),
        ..attachment("c-1.x_")
    };
    for attachment in [attachment("c1"), odd] {
        let mark = Mark::new("fabric", &attachment);
        assert_eq!(attachment_of("fabric", &mark.alias), Some(attachment.clone()));
        assert_eq!(
            attachment_of("fabri", &mark.alias),
            None,
            "a name that is a prefix of another"
        );
        assert_eq!(attachment_of("other", &mark.alias), None);
    }
}

#[test]
fn aliases_of_others_are_no_attachments() {
    for alias in [
        "",
        "uplink",
        "rdmanet:",
        "rdmanet:fabric/",
        "rdmanet:fabric/c1",
        "rdmanet:fabric/@net1",
        "rdmanet:fabric/c1@",
        "rdmanet:fabric/c 1@net1",
    ] {
        assert_eq!(attachment_of("fabric", alias), None, "{alias:?}");
    }
}

#[test]
fn no_mark_is_group_0() {
    for number in 0..2000 {
        assert_ne!(Mark::new("fabric", &attachment(&format!("c{number}"))).group, 0);
    }
}

/// These values never change: a newer release must recognize the temporary names of an older one.
#[test]
fn temporary_names_are_the_same_in_every_release() {
    let mark = Mark::new("fabric", &attachment("c1"));
    assert_eq!(fnv1a_64(b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(fnv1a_64(b"foobar"), 0x8594_4171_f739_67e8);
    assert_eq!(mark.temporary(0).len(), 14);
    let names: std::collections::BTreeSet<String> = (0..Mark::TEMPORARY_NAMES)
        .map(|attempt| mark.temporary(attempt))
        .collect();
    assert_eq!(names.len(), Mark::TEMPORARY_NAMES);
    assert!(names.iter().all(|name| is_temporary(name)), "{names:?}");
}

#[test]
fn a_temporary_name_distinguishes_attachments_with_equal_groups() {
    let mark = Mark::new("fabric", &attachment("c1"));
    let named = |name: &str| Link {
        group: mark.group,
        ..ipoib(9, name, 0x8001)
    };
    for attempt in 0..Mark::TEMPORARY_NAMES {
        assert!(mark.is_on(&named(&mark.temporary(attempt))));
        let other = Mark::new("fabric", &attachment("c2")).temporary(attempt);
        assert!(!mark.is_on(&named(&other)));
    }
    for renamed in ["ibs3f0", "rn", "rn0123", "rnxyzxyzxyzxyz", "rn01234567890123"] {
        assert!(mark.is_on(&named(renamed)), "{renamed}");
    }
}
