// SPDX-License-Identifier: Apache-2.0
use super::*;
use common::cni::Code;

fn spec(subnet: &str) -> RangeSpec {
    RangeSpec {
        place: "ipam.ranges[0][0]".to_owned(),
        subnet: subnet.parse().unwrap(),
        start: None,
        end: None,
        gateway: None,
        exclude: Vec::new(),
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The first and last allocated address, and their number.
fn extent(range: &Range) -> (String, String, u128) {
    let first = range.free().first_from(0).unwrap();
    let last = range
        .family()
        .address(range.window.last.min(hosts(range.subnet).last));
    (
        range.family().address(first).to_string(),
        last.to_string(),
        range.free().count(),
    )
}

#[test]
fn network_broadcast_and_anycast_addresses_are_reserved() {
    let cases: [(&str, &str, &str, u128); 12] = [
        ("10.0.0.0/24", "10.0.0.1", "10.0.0.254", 254),
        ("10.0.0.4/30", "10.0.0.5", "10.0.0.6", 2),
        ("10.0.0.4/31", "10.0.0.4", "10.0.0.5", 2),
        ("10.0.0.4/32", "10.0.0.4", "10.0.0.4", 1),
        ("255.255.255.254/31", "255.255.255.254", "255.255.255.255", 2),
        ("0.0.0.0/0", "0.0.0.1", "255.255.255.254", (1 << 32) - 2),
        ("fd00::/64", "fd00::1", "fd00::ffff:ffff:ffff:ffff", (1 << 64) - 1),
        ("fd00::4/126", "fd00::5", "fd00::7", 3),
        ("fd00::4/127", "fd00::4", "fd00::5", 2),
        ("fd00::4/128", "fd00::4", "fd00::4", 1),
        (
            "fd00::/32",
            "fd00::1",
            "fd00:0:ffff:ffff:ffff:ffff:ffff:ffff",
            (1 << 96) - 1,
        ),
        (
            "::/0",
            "::1",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            u128::MAX,
        ),
    ];
    for (subnet, first, last, count) in cases {
        let range = Range::new(spec(subnet), &Arc::default()).unwrap();
        assert_eq!(
            extent(&range),
            (first.to_owned(), last.to_owned(), count),
            "{subnet}"
        );
    }
}

#[test]
fn half_of_an_ipv6_subnet_can_be_excluded() {
    let exclude = vec![(ip("fd00::"), ip("fd00::7fff:ffff:ffff:ffff"))];
    let range = Range::new(
        RangeSpec {
            exclude,
            ..spec("fd00::/64")
        },
        &Arc::default(),
    )
    .unwrap();
    assert_eq!(extent(&range).0, "fd00::8000:0:0:0");
    assert_eq!(range.free().count(), 1 << 63);
}

#[test]
fn addresses_that_differ_beyond_64_bits_are_distinguished() {
    let start = Some(ip("fd00:0:0:1::5"));
    let range = Range::new(
        RangeSpec {
            start,
            ..spec("fd00::/32")
        },
        &Arc::default(),
    )
    .unwrap();
    assert_eq!(extent(&range).0, "fd00:0:0:1::5");
    assert_eq!(
        range.membership(ip("fd00::5")),
        Membership::Outside,
        "whereabouts treats these two as one"
    );
}

#[test]
fn host_bits_of_a_subnet_are_ignored() {
    let range = Range::new(spec("192.168.5.152/27"), &Arc::default()).unwrap();
    assert_eq!(range.subnet.to_string(), "192.168.5.128/27");
    assert_eq!(
        extent(&range),
        ("192.168.5.129".to_owned(), "192.168.5.158".to_owned(), 30)
    );
}

#[test]
fn every_gateway_is_reserved_in_every_range() {
    let range = Range::new(
        RangeSpec {
            gateway: Some(ip("10.0.0.1")),
            ..spec("10.0.0.0/29")
        },
        &Arc::new(Shared::new([ip("10.0.0.1"), ip("10.0.0.6")], &[])),
    );
    let range = range.unwrap();
    assert_eq!(
        range.membership(ip("10.0.0.1")),
        Membership::Reserved("a gateway")
    );
    assert_eq!(
        range.membership(ip("10.0.0.6")),
        Membership::Reserved("a gateway")
    );
    assert_eq!(range.free().count(), 4);
}

#[test]
fn an_address_that_is_not_usable_has_a_reason() {
    let exclude = vec![(ip("10.0.0.20"), ip("10.0.0.29"))];
    let limits = RangeSpec {
        start: Some(ip("10.0.0.10")),
        end: Some(ip("10.0.0.99")),
        exclude,
        ..spec("10.0.0.0/24")
    };
    let range = Range::new(limits, &Arc::new(Shared::new([ip("10.0.0.1")], &[]))).unwrap();
    let cases = [
        ("10.0.0.10", Membership::Usable),
        ("10.0.0.99", Membership::Usable),
        ("10.0.0.9", Membership::Outside),
        ("10.0.0.100", Membership::Outside),
        ("10.0.1.10", Membership::Outside),
        ("fd00::1", Membership::Outside),
        ("10.0.0.0", Membership::Reserved("the network address")),
        ("10.0.0.255", Membership::Reserved("the broadcast address")),
        ("10.0.0.1", Membership::Reserved("a gateway")),
        ("10.0.0.25", Membership::Reserved("excluded")),
    ];
    for (address, membership) in cases {
        assert_eq!(range.membership(ip(address)), membership, "{address}");
    }
    let v6 = Range::new(spec("fd00::/64"), &Arc::default()).unwrap();
    assert_eq!(
        v6.membership(ip("fd00::")),
        Membership::Reserved("the subnet-router anycast address")
    );
}

#[test]
fn ranges_without_an_address_are_refused_by_name() {
    let all = vec![(ip("10.0.0.0"), ip("10.0.0.255"))];
    let cases: [(RangeSpec, &[IpAddr], &str); 6] = [
        (
            RangeSpec {
                start: Some(ip("10.0.1.5")),
                ..spec("10.0.0.0/24")
            },
            &[],
            "range start 10.0.1.5 lies outside the subnet 10.0.0.0/24",
        ),
        (
            RangeSpec {
                end: Some(ip("fd00::1")),
                ..spec("10.0.0.0/24")
            },
            &[],
            "range end fd00::1 lies outside the subnet 10.0.0.0/24",
        ),
        (
            RangeSpec {
                gateway: Some(ip("10.0.1.1")),
                ..spec("10.0.0.0/24")
            },
            &[],
            "gateway 10.0.1.1 lies outside the subnet 10.0.0.0/24",
        ),
        (
            RangeSpec {
                start: Some(ip("10.0.0.9")),
                end: Some(ip("10.0.0.5")),
                ..spec("10.0.0.0/24")
            },
            &[],
            "the range is inverted: its start 10.0.0.9 comes after its end 10.0.0.5",
        ),
        (
            RangeSpec {
                exclude: all,
                ..spec("10.0.0.0/24")
            },
            &[],
            "no address is left in 10.0.0.1-10.0.0.254",
        ),
        (spec("10.0.0.4/32"), &[ip("10.0.0.4")], "the gateway 10.0.0.4"),
    ];
    for (spec, gateways, expected) in cases {
        let error = Range::new(spec, &Arc::new(Shared::new(gateways.iter().copied(), &[]))).unwrap_err();
        assert_eq!(error.code, Code::INVALID_CONFIG, "{expected}");
        assert!(
            error.msg.starts_with("ipam.ranges[0][0]: ") && error.msg.contains(expected),
            "{:?} lacks {expected:?}",
            error.msg
        );
    }
}

#[test]
fn small_subnets_have_no_default_gateway() {
    let cases = [
        ("10.0.0.0/24", Some("10.0.0.1")),
        ("10.0.0.4/31", None),
        ("10.0.0.4/32", None),
        ("fd00::/64", Some("fd00::1")),
    ];
    for (subnet, gateway) in cases {
        assert_eq!(
            default_gateway(subnet.parse().unwrap()),
            gateway.map(ip),
            "{subnet}"
        );
    }
}
