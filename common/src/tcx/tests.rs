// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::netlink::{NewLink, NewLinkKind, Route, Socket};
use crate::netns::tests::fresh;
use std::os::fd::{FromRawFd, OwnedFd};

const LOAD: u32 = 5;
const ATTACH: u32 = 8;

/// A program for traffic control that drops every packet.
#[expect(unsafe_code, reason = "neither std nor nix has bpf(2)")]
fn program() -> OwnedFd {
    let instructions: [u64; 2] = [0x0000_0002_0000_00b7, 0x95]; // r0 = TC_ACT_SHOT; exit
    let address = |pointer: *const u8| u64::try_from(pointer.addr()).unwrap();
    let of_two_instructions = 3 | 2 << 32;
    let load = [
        of_two_instructions,
        address(instructions.as_ptr().cast()),
        address(c"GPL".as_ptr().cast()),
        0,
        0,
        0,
    ];
    // SAFETY: the kernel reads the attributes, and what they point to, before the call returns a new descriptor.
    unsafe {
        let descriptor = libc::syscall(libc::SYS_bpf, LOAD, load.as_ptr(), size_of_val(&load));
        OwnedFd::from_raw_fd(i32::try_from(Errno::result(descriptor).unwrap()).unwrap())
    }
}

fn attach(index: u32, hook: u32) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let program = program();
    let descriptor = u32::try_from(program.as_raw_fd()).unwrap();
    let mut attributes: Attributes = [0; 16];
    attributes[..3].copy_from_slice(&[index, descriptor, hook]);
    bpf(ATTACH, &mut attributes[..8])
}

#[test]
fn every_program_of_a_link_is_removed() {
    let netns = fresh();
    let mut socket = Socket::<Route>::open_in(&netns).unwrap();
    let new = NewLink {
        name: "v0",
        parent: 0,
        netns: None,
        mtu: None,
        address: None,
        group: 0,
        kind: NewLinkKind::Veth { peer: "v1" },
    };
    socket.add_link(&new).unwrap();
    let index = socket.link("v0").unwrap().unwrap().index;
    netns
        .run(|| {
            assert!(!is_used(index).unwrap());
            assert_eq!(remove_all(index).unwrap(), 0);
            for hook in [HOOKS[0], HOOKS[0], HOOKS[1]] {
                match attach(index, hook) {
                    Ok(()) => assert!(is_used(index).unwrap()),
                    // Before Linux 6.6 the kernel has no such hook, so no pod can use one.
                    Err(Errno::EINVAL) => return assert!(!is_used(index).unwrap()),
                    Err(error) => panic!("{error}"),
                }
            }
            assert_eq!(remove_all(index).unwrap(), 3);
            assert!(!is_used(index).unwrap());
        })
        .unwrap();
}

#[test]
fn a_missing_link_is_an_error() {
    let netns = fresh();
    let answers = netns.run(|| (is_used(4711), attach(4711, HOOKS[0]))).unwrap();
    match answers {
        (Err(error), Err(Errno::ENODEV)) => assert_eq!(error.raw_os_error(), Some(libc::ENODEV)),
        // Before Linux 6.6 there is no hook to look for.
        (Ok(false), Err(Errno::EINVAL)) => {}
        other => panic!("{other:?}"),
    }
}
