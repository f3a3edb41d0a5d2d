// SPDX-License-Identifier: Apache-2.0
//! Requests to the kernel in words, and which of them change anything outside the process that makes them.

use super::Scope;
use nix::sys::ptrace;
use nix::unistd::Pid;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// `NLM_F_DUMP` of `include/uapi/linux/netlink.h`; a request with it only reads.
const DUMP: u16 = 0x300;
/// `RDMA_NL_NLDEV << 10`: where the numbers of RDMA requests begin.
const RDMA: u16 = 5 << 10;
/// The few RDMA requests that change something (`enum rdma_nldev_command` of `rdma_netlink.h`).
const RDMA_CHANGES: [(u16, &str); 4] = [
    (2, "RDMA set"),
    (3, "RDMA newlink"),
    (4, "RDMA dellink"),
    (7, "RDMA system set"),
];
const PAGE: u64 = 4096;
const PATH_MAX: usize = 512;

/// The request that `thread` is about to make, if it belongs to `scope`.
pub(super) fn about_to_make(thread: Pid, scope: Scope) -> Option<String> {
    // It may be dying.
    let registers = ptrace::getregs(thread).ok()?;
    let call = libc::c_long::try_from(registers.orig_rax).ok()?;
    let memory = Memory(File::open(format!("/proc/{thread}/mem")).ok()?);
    let arguments = [registers.rdi, registers.rsi, registers.rdx, registers.r10];
    let words = change(call, arguments, &memory);
    match scope {
        Scope::Changes => words,
        Scope::Everything => Some(words.unwrap_or_else(|| format!("system call {call}"))),
    }
}

/// The words for a system call that changes something.
fn change(call: libc::c_long, arguments: [u64; 4], memory: &Memory) -> Option<String> {
    let [first, second, third, _] = arguments;
    let on = |verb: &str, path: u64| Some(format!("{verb} {}", memory.text(path)));
    match call {
        libc::SYS_open if writes(second) => on("create", first),
        libc::SYS_openat if writes(third) => on("create", second),
        libc::SYS_mkdir => on("mkdir", first),
        libc::SYS_mkdirat => on("mkdir", second),
        libc::SYS_unlink => on("unlink", first),
        libc::SYS_unlinkat => on("unlink", second),
        libc::SYS_rmdir => on("rmdir", first),
        libc::SYS_rename => on("rename", first),
        libc::SYS_renameat | libc::SYS_renameat2 => on("rename", second),
        libc::SYS_link => on("link", first),
        libc::SYS_linkat => on("link", second),
        libc::SYS_symlink => on("symlink", first),
        libc::SYS_execve => on("start", first),
        libc::SYS_ftruncate => Some("truncate".to_owned()),
        libc::SYS_fsync | libc::SYS_fdatasync => Some("sync".to_owned()),
        // What goes to stderr is for people.
        libc::SYS_write | libc::SYS_writev | libc::SYS_pwrite64 if first != 2 => {
            Some(format!("write to {first}"))
        }
        libc::SYS_sendto | libc::SYS_sendmsg => send(second, third, memory),
        libc::SYS_exit_group => Some("end".to_owned()),
        _ => None,
    }
}

fn writes(flags: u64) -> bool {
    let changing = libc::O_CREAT | libc::O_TRUNC;
    flags & u64::from(changing.cast_unsigned()) != 0
}

/// A netlink request that changes something, or a packet.
fn send(buffer: u64, size: u64, memory: &Memory) -> Option<String> {
    let header = memory.bytes(buffer, 8);
    let (Some(length), Some(kind), Some(flags)) = (
        header.first_chunk::<4>().map(|bytes| u32::from_ne_bytes(*bytes)),
        header.get(4..6).map(|b| u16::from_ne_bytes([b[0], b[1]])),
        header.get(6..8).map(|b| u16::from_ne_bytes([b[0], b[1]])),
    ) else {
        return Some("send".to_owned());
    };
    if u64::from(length) != size {
        return Some("send a packet".to_owned());
    }
    if kind >= RDMA {
        let change = RDMA_CHANGES.iter().find(|(number, _)| *number == kind & 0x3ff);
        return change.map(|(_, name)| (*name).to_owned());
    }
    // Requests come in fours: new, delete, get, set (`rtnetlink.h`).
    let reads = flags & DUMP == DUMP && kind % 4 == 2 || kind % 4 == 2;
    (!reads).then(|| route(kind))
}

fn route(kind: u16) -> String {
    match kind {
        16 => "RTM_NEWLINK".to_owned(),
        17 => "RTM_DELLINK".to_owned(),
        19 => "RTM_SETLINK".to_owned(),
        20 => "RTM_NEWADDR".to_owned(),
        21 => "RTM_DELADDR".to_owned(),
        24 => "RTM_NEWROUTE".to_owned(),
        25 => "RTM_DELROUTE".to_owned(),
        28 => "RTM_NEWNEIGH".to_owned(),
        32 => "RTM_NEWRULE".to_owned(),
        33 => "RTM_DELRULE".to_owned(),
        108 => "RTM_NEWLINKPROP".to_owned(),
        109 => "RTM_DELLINKPROP".to_owned(),
        other => format!("netlink request {other}"),
    }
}

/// The memory of a traced process.
struct Memory(File);

impl Memory {
    /// At most `size` bytes: fewer where the process has no more there.
    fn bytes(&self, address: u64, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        let read = self.0.read_at(&mut bytes, address).unwrap_or(0);
        bytes.truncate(read);
        bytes
    }

    /// The text up to its closing zero, or to the end of the page.
    fn text(&self, address: u64) -> String {
        let to_end_of_page = usize::try_from(PAGE - address % PAGE).unwrap_or(PATH_MAX);
        let bytes = self.bytes(address, to_end_of_page.min(PATH_MAX));
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}
