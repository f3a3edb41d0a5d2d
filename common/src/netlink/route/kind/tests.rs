// SPDX-License-Identifier: Apache-2.0
use super::{AddrGenMode, BondMode, FailOverMac, IpoibMode, IpvlanMode, MacvlanMode};
use netlink_packet_route::link as wire;

#[test]
fn modes_survive_conversion_to_names_and_wire_values() {
    for mode in MacvlanMode::ALL {
        assert_eq!(mode.to_string().parse::<MacvlanMode>().as_ref(), Ok(mode));
        assert_eq!(MacvlanMode::decode(mode.encode()), Some(*mode));
    }
    for mode in AddrGenMode::ALL {
        assert_eq!(mode.to_string().parse::<AddrGenMode>().as_ref(), Ok(mode));
        assert_eq!(AddrGenMode::decode(mode.encode()), Some(*mode));
    }
    for mode in BondMode::ALL {
        assert_eq!(mode.to_string().parse::<BondMode>().as_ref(), Ok(mode));
        assert_eq!(BondMode::decode(mode.encode()), Some(*mode));
    }
    for whose in FailOverMac::ALL {
        assert_eq!(whose.to_string().parse::<FailOverMac>().as_ref(), Ok(whose));
        assert_eq!(FailOverMac::decode(whose.encode()), Some(*whose));
    }
}

#[test]
fn the_error_for_an_unknown_mode_lists_the_known_ones() {
    let error = "ud".parse::<IpoibMode>().unwrap_err();
    assert_eq!(error.to_string(), r#""ud" is not one of datagram, connected"#);
    let error = "L2".parse::<IpvlanMode>().unwrap_err();
    assert_eq!(error.to_string(), r#""L2" is not one of l2, l3, l3s"#);
}

#[test]
fn a_mode_of_a_newer_kernel_is_not_read_as_another() {
    assert_eq!(IpoibMode::decode(wire::IpoibMode::Other(9)), None);
}
