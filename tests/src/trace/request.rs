// SPDX-License-Identifier: Apache-2.0
//! Descriptions of requests to the kernel, and the selection of those that change something outside the calling
//! process.

use super::Scope;
use nix::sys::ptrace;
use nix::unistd::Pid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// `RDMA_NL_NLDEV << 10`: the first number of RDMA requests.
const RDMA: u16 = 5 << 10;
/// The RDMA requests that change something (`enum rdma_nldev_command` of `rdma_netlink.h`).
const RDMA_CHANGES: [(u16, &str); 4] = [
    (2, "RDMA set"),
    (3, "RDMA newlink"),
    (4, "RDMA dellink"),
    (7, "RDMA system set"),
];
/// Standard error, whose text is only for people.
const STDERR: u64 = 2;
const PAGE: u64 = 4096;
const PATH_MAX: usize = 512;

/// System calls that always change something, or whose arguments are in memory.
const ALWAYS: [libc::c_long; 17] = [
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_rmdir,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_symlink,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_exit_group,
];

/// A filter that stops a process at system calls for which [`about_to_make`] may find a step.
pub(super) fn filter(scope: Scope) -> BpfProgram {
    let (others, chosen) = match scope {
        Scope::Changes => (SeccompAction::Allow, SeccompAction::Trace(0)),
        Scope::Everything => (SeccompAction::Trace(0), SeccompAction::Allow),
    };
    // The first execve happens before its tracer is ready; each later one has its own stop.
    let mut rules = BTreeMap::new();
    if scope == Scope::Everything {
        rules.insert(libc::SYS_execve, Vec::new());
    }
    if scope == Scope::Changes {
        rules.extend(ALWAYS.map(|call| (call, Vec::new())));
        rules.insert(libc::SYS_open, opened_for_change(1));
        rules.insert(libc::SYS_openat, opened_for_change(2));
        for call in [libc::SYS_write, libc::SYS_writev, libc::SYS_pwrite64] {
            rules.insert(call, vec![rule(0, SeccompCmpOp::Ne, STDERR)]);
        }
    }
    let filter = SeccompFilter::new(rules, others, chosen, TargetArch::x86_64).unwrap();
    filter.try_into().unwrap()
}

fn opened_for_change(argument: u8) -> Vec<SeccompRule> {
    let with = |flag: libc::c_int| {
        let flag = u64::from(flag.cast_unsigned());
        rule(argument, SeccompCmpOp::MaskedEq(flag), flag)
    };
    vec![with(libc::O_CREAT), with(libc::O_TRUNC)]
}

fn rule(argument: u8, operator: SeccompCmpOp, value: u64) -> SeccompRule {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value).unwrap();
    SeccompRule::new(vec![condition]).unwrap()
}

/// The request that `thread` is about to make, if it belongs to `scope`.
pub(super) fn about_to_make(thread: Pid, scope: Scope) -> Option<String> {
    // The thread may be dying.
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

/// The description of a system call that changes something.
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
        libc::SYS_ftruncate => Some("truncate".to_owned()),
        libc::SYS_fsync | libc::SYS_fdatasync => Some("sync".to_owned()),
        libc::SYS_write | libc::SYS_writev | libc::SYS_pwrite64 if first != STDERR => {
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
    let header = memory.bytes(buffer, 6);
    let [l0, l1, l2, l3, k0, k1] = header[..] else {
        return Some("send".to_owned());
    };
    let (length, kind) = (u32::from_ne_bytes([l0, l1, l2, l3]), u16::from_ne_bytes([k0, k1]));
    if u64::from(length) != size {
        return Some("send a packet".to_owned());
    }
    if kind >= RDMA {
        let change = RDMA_CHANGES.iter().find(|(number, _)| *number == kind & 0x3ff);
        return change.map(|(_, name)| (*name).to_owned());
    }
    // Requests are in groups of four: new, delete, get, set (`rtnetlink.h`).
    (kind % 4 != 2).then(|| route(kind))
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
    /// At most `size` bytes; fewer if the process has less memory there.
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
