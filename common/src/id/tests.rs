// SPDX-License-Identifier: Apache-2.0
use super::{Guid, PciAddress, Pkey};

#[test]
fn a_guid_is_read_in_both_notations() {
    let guid = Guid(0x248a_0703_00b4_0c5e);
    assert_eq!(guid.to_string(), "248a:0703:00b4:0c5e");
    for text in [
        "248a:0703:00b4:0c5e",
        "24:8a:07:03:00:b4:0c:5e",
        "24:8A:07:03:00:B4:0C:5E",
    ] {
        assert_eq!(text.parse(), Ok(guid), "{text}");
    }
    for text in [
        "",
        "248a070300b40c5e",
        "248a:0703:00b4",
        "24:8a:07:03:00:b4:0c:5",
        "248a:0703:00b4:+c5e",
    ] {
        assert!(text.parse::<Guid>().is_err(), "{text}");
    }
}

#[test]
fn a_pkey_matches_by_partition_and_not_by_membership() {
    let (full, limited) = (Pkey(0x8001), Pkey(0x0001));
    assert!(full.full_member() && !limited.full_member());
    assert!(full.matches(limited) && !full.matches(Pkey(0x8002)));
    assert!(full.is_valid() && Pkey::DEFAULT.is_valid());
    assert!(!Pkey(0).is_valid() && !Pkey(0x8000).is_valid());
}

#[test]
fn a_pkey_is_written_in_hexadecimal_and_read_in_both_bases() {
    assert_eq!(Pkey(1).to_string(), "0x0001");
    for text in ["0x8001", "0X8001", "32769"] {
        assert_eq!(text.parse(), Ok(Pkey(0x8001)), "{text}");
    }
    for text in ["", "0x", "8001h", "0x18001", "65536", "-1", "+1", "0x+1"] {
        let error = text.parse::<Pkey>().unwrap_err();
        assert!(error.to_string().contains("want 0x"), "{error}");
    }
}

#[test]
fn a_pci_address_is_parsed_and_formatted_alike() {
    for text in ["0000:3b:00.1", "0000:ff:1f.7", "10000:01:00.0"] {
        assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "3b:00.1",
        "0000:3b:20.0",
        "0000:3b:00.8",
        "0000:3b:00",
        "softib.0",
        "0000:3b:00.1x",
    ] {
        assert!(text.parse::<PciAddress>().is_err(), "{text}");
    }
}

#[test]
fn identifiers_are_serialized_in_the_kernels_format() {
    let guid = Guid(0x248a_0703_00b4_0c5e);
    let text = serde_json::to_string(&guid).unwrap();
    assert_eq!(text, "\"248a:0703:00b4:0c5e\"");
    assert_eq!(serde_json::from_str::<Guid>(&text).unwrap(), guid);
    let pci: PciAddress = serde_json::from_str("\"0000:3b:00.1\"").unwrap();
    assert_eq!(serde_json::to_string(&pci).unwrap(), "\"0000:3b:00.1\"");
    let error = serde_json::from_str::<PciAddress>("\"3b:00.1\"").unwrap_err();
    assert!(error.to_string().contains("0000:3b:00.1"), "{error}");
}
