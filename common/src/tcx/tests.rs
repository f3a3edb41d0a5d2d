// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::netlink::cable;
use crate::netns::tests::fresh;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread::sleep;
use std::time::Duration;

const LOAD: u32 = 5;
const ATTACH: u32 = 8;
const LINK_CREATE: u32 = 28;

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
    let program = program();
    let mut attributes: Attributes = [0; 16];
    attributes[..3].copy_from_slice(&[index, number(&program), hook]);
    bpf(ATTACH, &mut attributes[..8])
}

/// Attaches the program by a BPF link, which the returned descriptor holds.
#[expect(unsafe_code, reason = "neither std nor nix has bpf(2)")]
fn hold(index: u32, hook: u32) -> Result<OwnedFd, Errno> {
    let program = program();
    let attributes = [number(&program), index, hook, 0];
    // SAFETY: the kernel reads the attributes before the call returns a new descriptor.
    unsafe {
        let size = size_of_val(&attributes);
        let descriptor = libc::syscall(libc::SYS_bpf, LINK_CREATE, attributes.as_ptr(), size);
        let descriptor = i32::try_from(Errno::result(descriptor)?).unwrap();
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

fn number(descriptor: &OwnedFd) -> u32 {
    u32::try_from(descriptor.as_raw_fd()).unwrap()
}

#[test]
fn every_program_of_a_link_is_removed() {
    let (netns, _socket, index, _) = cable();
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
fn a_program_that_a_bpf_link_holds_ends_with_that_link() {
    let (netns, _socket, index, _) = cable();
    netns
        .run(|| {
            let held = match hold(index, HOOKS[0]) {
                Ok(held) => held,
                // Before Linux 6.6 the kernel has no such hook.
                Err(Errno::EINVAL) => return,
                Err(error) => panic!("{error}"),
            };
            let error = remove_all(index).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
            drop(held);
            // The kernel releases a link after the descriptor is closed.
            for _ in 0..1000 {
                if !is_used(index).unwrap() {
                    return;
                }
                sleep(Duration::from_millis(10));
            }
            panic!("the program is still attached");
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
