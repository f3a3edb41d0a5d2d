// SPDX-License-Identifier: Apache-2.0
//! kill -9 at a chosen system call, by strace(1).

use crate::{Answer, Call};

/// The system calls by which a plugin changes anything, or waits for somebody who does. Between two of them nothing
/// outside the process changes, so that dying before each one covers every state that a kill can leave.
const SYSTEM_CALLS: [&str; 18] = [
    "open",
    "openat",
    "mkdir",
    "mkdirat",
    "flock",
    "ftruncate",
    "write",
    "sendto",
    "recvfrom",
    "clone",
    "vfork",
    "poll",
    "read",
    "wait4",
    "unlink",
    "unlinkat",
    "rename",
    "exit_group",
];

/// A moment in the life of a process: before it enters a system call for the n-th time.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    system_call: &'static str,
    number: u32,
}

/// What came of a call that was to be killed.
pub enum Fate {
    /// It died at the chosen step; everything it had started has ended.
    Killed,
    /// It has no such step.
    Survived(Answer),
}

/// Hands every step to `life` until `life` says that the process has no further one; tells how many kills there were.
pub fn at_each_step(life: impl FnMut(Step) -> Fate) -> u32 {
    at_each_step_of(&SYSTEM_CALLS, life)
}

/// The same for some system calls only, where a life takes long: `sendto` is every request to the kernel.
pub fn at_each_step_of(system_calls: &[&'static str], mut life: impl FnMut(Step) -> Fate) -> u32 {
    let mut kills = 0;
    for &system_call in system_calls {
        for number in 1.. {
            match life(Step { system_call, number }) {
                Fate::Killed => kills += 1,
                Fate::Survived(_) => break,
            }
        }
    }
    kills
}

impl Call {
    /// Makes the call and kills the process at `step`. The programs that it starts are not killed, as by a runtime.
    pub fn killed_at(&self, step: Step) -> Fate {
        let Step { system_call, number } = step;
        let mut call = self.clone();
        // `?`: a name that this machine's architecture lacks is passed over.
        let words = [
            "strace".to_owned(),
            "-o/dev/null".to_owned(),
            "--quiet=all".to_owned(),
            format!("--trace=?{system_call}"),
            format!("--inject=?{system_call}:signal=SIGKILL:when={number}"),
            "--".to_owned(),
        ];
        call.under = words.into_iter().map(Into::into).collect();
        let answer = call.run();
        if answer.was_killed() {
            return Fate::Killed;
        }
        assert!(
            !answer.stderr.contains("strace"),
            "strace could not do its work: {answer}"
        );
        Fate::Survived(answer)
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}() number {}", self.system_call, self.number)
    }
}
