// SPDX-License-Identifier: Apache-2.0
use super::take;
use crate::device::fixture::{WAYS, fixture};
use crate::intent::Snapshot;
use crate::kernel::{Kernel, Side};
use crate::model::Fault;
use common::cni;
use common::netlink::{AddrGenMode, IpoibMode};

#[test]
fn a_snapshot_survives_writing_and_is_valid_for_one_boot() {
    let fixture = fixture(WAYS[0]);
    let mut kernel = fixture.kernel.clone();
    let link = kernel.link(Side::Host, "ib0").unwrap().unwrap();
    let was = take(&mut kernel, &link, Some("/sys/devices/a".into()), Vec::new()).unwrap();
    let text = serde_json::to_string(&was).unwrap();
    let read: Snapshot = serde_json::from_str(&text).unwrap();
    assert_eq!(read, was);
    assert_eq!(read.ipoib(), Some((IpoibMode::Connected, true)));
    assert_eq!(read.addr_gen_mode(), Some(AddrGenMode::None));
    assert!(read.is_of_this_boot());
    let earlier = Snapshot {
        boot: "another".to_owned(),
        ..read
    };
    assert!(!earlier.is_of_this_boot());
}

#[test]
fn without_the_right_to_use_bpf_it_is_not_known_whether_tcx_is_used() {
    let fixture = fixture(WAYS[0]);
    let mut kernel = fixture.kernel.clone();
    let link = kernel.link(Side::Host, "ens1").unwrap().unwrap();
    let mut tcx = |refused| {
        kernel.set().state.left.without_bpf = refused;
        let was = take(&mut kernel, &link, None, Vec::new()).unwrap();
        was.packets.unwrap().tcx
    };
    assert_eq!((tcx(false), tcx(true)), (Some(false), None));
}

#[test]
fn a_kernel_that_cannot_say_whether_tcx_is_used_refuses_the_link() {
    let fixture = fixture(WAYS[0]);
    let mut kernel = fixture.kernel.clone();
    let link = kernel.link(Side::Host, "ens1").unwrap().unwrap();
    kernel.fail(Fault::Refused(1));
    let error = take(&mut kernel, &link, None, Vec::new()).unwrap_err();
    let text = cni::Error::from(error).msg;
    assert!(
        text.contains("cannot look for tcx programs of /sys/class/net/ens1"),
        "{text}"
    );
}
