// SPDX-License-Identifier: Apache-2.0
use super::HwAddress;
use crate::rdma::Guid;

const IPOIB: &str = "00:00:10:49:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e";

#[test]
fn text_and_bytes_are_the_same_address() {
    for text in ["02:00:00:00:00:01", IPOIB] {
        let address: HwAddress = text.parse().unwrap();
        assert_eq!(address.to_string(), text);
        assert_eq!(HwAddress::new(address.as_bytes()), address);
    }
    assert_eq!(
        "0A:bC:00:00:00:01".parse::<HwAddress>().unwrap().to_string(),
        "0a:bc:00:00:00:01"
    );
}

#[test]
fn other_texts_are_refused() {
    let long = vec!["00"; 33].join(":");
    for text in [
        "",
        "2:0:0:0:0:1",
        "02-00-00-00-00-01",
        "02:00:00:00:00:0g",
        "+2:00:00:00:00:01",
        &long,
    ] {
        let error = text.parse::<HwAddress>().unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with(&format!("{text:?} is not a hardware address")),
            "{error}"
        );
    }
}

#[test]
fn only_infiniband_addresses_contain_a_port_guid() {
    let address: HwAddress = IPOIB.parse().unwrap();
    assert_eq!(address.port_guid(), Some(Guid(0x248a_0703_00b4_0c5e)));
    let changed = address.with_port_guid(Guid(7)).unwrap();
    assert_eq!(
        (changed.port_guid(), changed.queue_pair()),
        (Some(Guid(7)), address.queue_pair())
    );
    assert_eq!(
        "02:00:00:00:00:01".parse::<HwAddress>().unwrap().port_guid(),
        None
    );
}

#[test]
fn an_infiniband_address_with_its_first_bit_set_takes_connections() {
    let of = |text: &str| text.parse::<HwAddress>().unwrap().takes_connections();
    assert!(of("80:00:02:08:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e"));
    assert!(!of("00:00:10:49:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e"));
    assert!(!of("80:00:02:08:fe:80"), "an Ethernet address has no flags");
}
