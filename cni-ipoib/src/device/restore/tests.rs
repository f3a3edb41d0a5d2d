// SPDX-License-Identifier: Apache-2.0
use super::{broadcast, restore_state};
use crate::device::fixture::{WAYS, fixture, host};
use crate::device::snapshot;
use crate::intent::Hardware;
use crate::kernel::{Kernel, Side};
use common::netlink::LinkInfo;
use common::rdma::Pkey;

#[test]
fn a_link_in_its_former_state_is_not_touched() {
    let fixture = fixture(WAYS[0]);
    let before = host(&fixture);
    let mut kernel = fixture.kernel.clone();
    let link = kernel.link(Side::Host, "ens1").unwrap().unwrap();
    let was = snapshot::take(&mut kernel, &link, None, Vec::new()).unwrap();
    kernel.fail(crate::model::Fault::None);
    restore_state(&mut kernel, &link, &was, &[]).unwrap();
    assert_eq!(host(&fixture), before);
    assert_eq!(
        fixture.kernel.get().log,
        ["look for tcx programs of #6", "set ipv4/conf/rp_filter of ens1"]
    );
}

/// The kernel has written the P_Key of the subnet manager into the address since the snapshot.
#[test]
fn the_broadcast_address_keeps_the_present_pkey() {
    let fixture = fixture(WAYS[0]);
    let mut kernel = fixture.kernel.clone();
    let mut link = kernel.link(Side::Host, "ib0").unwrap().unwrap();
    let was = "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff";
    let with = |pkey: &str| {
        was.replacen("1b:ff:ff", &format!("1b:{pkey}"), 1)
            .parse()
            .unwrap()
    };
    for (pkey, expected) in [(0xffff, "ff:ff"), (0x8010, "80:10")] {
        if let LinkInfo::Ipoib { pkey: its, .. } = &mut link.info {
            *its = Pkey(pkey);
        }
        assert_eq!(broadcast(&with("ff:ff"), &link), with(expected));
    }
    let card = kernel.link(Side::Host, "ens1").unwrap().unwrap();
    assert_eq!(broadcast(&with("ff:ff"), &card), with("ff:ff"));
}

#[test]
fn two_returned_links_with_swapped_names_are_renamed() {
    let fixture = fixture(WAYS[0]);
    let before = host(&fixture);
    let mut kernel = fixture.kernel.clone();
    let mut was = Vec::new();
    for name in ["ib0", "ib1"] {
        let link = kernel.link(Side::Host, name).unwrap().unwrap();
        let carried = fixture.kernel.get().state.left.carried.clone();
        let carried = carried.into_iter().filter(|(of, _)| *of == link.index);
        was.push(
            snapshot::take(
                &mut kernel,
                &link,
                None,
                carried.map(|(_, saved)| saved).collect(),
            )
            .unwrap(),
        );
    }
    for link in &mut fixture.kernel.set().state.host {
        link.name = match link.name.as_str() {
            "ib0" => "ib1".to_owned(),
            "ib1" => "ib0".to_owned(),
            other => other.to_owned(),
        };
    }
    let others: Vec<Hardware> = was.iter().map(|was| was.hardware.clone()).collect();
    for was in &was {
        let link = super::find(&mut kernel, Side::Host, &was.hardware)
            .unwrap()
            .unwrap();
        restore_state(&mut kernel, &link, was, &others).unwrap();
    }
    assert_eq!(host(&fixture), before);
}
