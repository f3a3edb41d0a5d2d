// SPDX-License-Identifier: Apache-2.0
//! The BPF programs that a link runs by tcx, the hook of traffic control since Linux 6.6 (`bpf(2)`,
//! `kernel/bpf/tcx.c`). They stay on a link that moves to another namespace, as XDP programs do.
//!
//! Invariant: a request names a link in the namespace of the calling thread, and loads or attaches no program.

use nix::errno::Errno;
use std::io;

/// `BPF_PROG_DETACH` of `include/uapi/linux/bpf.h`.
const DETACH: u32 = 9;

/// `BPF_PROG_QUERY`.
const QUERY: u32 = 16;

/// `BPF_F_BEFORE`: without another program, the first of the hook.
const FIRST: u32 = 1 << 3;

/// `BPF_TCX_INGRESS` and `BPF_TCX_EGRESS`.
const HOOKS: [u32; 2] = [46, 47];

/// The most programs that a hook has (`BPF_MPROG_MAX` of `include/linux/bpf_mprog.h`).
const MAX_PROGRAMS: u32 = 64;

/// The part of `union bpf_attr` for a query, as words of 4 bytes. The kernel also writes its last field.
type Attributes = [u32; 16];

/// Whether the link `index` runs a program. A kernel without tcx has none.
///
/// # Errors
/// The kernel's own: `EPERM` without `CAP_NET_ADMIN`, and in a container whose seccomp profile has no `bpf(2)`.
pub fn is_used(index: u32) -> io::Result<bool> {
    for hook in HOOKS {
        if has_program(index, hook)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Detaches every program of the link `index`. Returns their number.
///
/// # Errors
/// As [`is_used`], and `EBUSY` while a process holds a program by a BPF link.
pub fn remove_all(index: u32) -> io::Result<u32> {
    let mut removed = 0;
    for hook in HOOKS {
        for _ in 0..MAX_PROGRAMS {
            if !has_program(index, hook)? {
                break;
            }
            let mut attributes: Attributes = [0; 16];
            attributes[..4].copy_from_slice(&[index, 0, hook, FIRST]);
            bpf(DETACH, &mut attributes[..8])?;
            removed += 1;
        }
    }
    Ok(removed)
}

fn has_program(index: u32, hook: u32) -> io::Result<bool> {
    let mut attributes: Attributes = [0; 16];
    attributes[..2].copy_from_slice(&[index, hook]);
    match bpf(QUERY, &mut attributes) {
        // `query.count`. Without room for identifiers the kernel only counts.
        Ok(()) => Ok(attributes[6] > 0),
        // The link never had a program, or the kernel does not know the hook, or has no BPF.
        Err(Errno::ENOENT | Errno::EINVAL | Errno::ENOSYS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[expect(unsafe_code, reason = "neither std nor nix has bpf(2)")]
fn bpf(command: u32, attributes: &mut [u32]) -> Result<(), Errno> {
    // SAFETY: the kernel reads the attributes, of the size beside them, and writes fields of a query before the call returns;
    // a query has room for all of them, and the attributes contain no pointers.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_mut_ptr(),
            size_of_val(attributes),
        )
    };
    Errno::result(answer).map(drop)
}

#[cfg(test)]
mod tests;
