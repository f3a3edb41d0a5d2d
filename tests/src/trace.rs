// SPDX-License-Identifier: Apache-2.0
//! A call under ptrace(2). The tracer stops the plugin and every program that it starts before each request to the
//! kernel that changes something. It can kill each of them there.
//!
//! Invariant: a process that is killed at a request has not made it. Every process of a call has ended when the call
//! returns. A filter (seccomp(2)) selects the requests, because a stop at every system call takes seconds under
//! emulation. The filter knows the system calls of `x86_64`, the architecture of the VM and the build machines.

mod request;

use crate::call::LIMIT;
use crate::{Answer, Call};
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

/// A process of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Process {
    /// The process that the runtime started.
    Plugin,
    /// The n-th child process, from 1.
    Delegate(u32),
}

/// A step: the state before a process makes its n-th request that changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The process that makes the request.
    pub by: Process,
    /// The number of the request in this process, from 1.
    pub number: u32,
    /// The description of the request, e.g. `RTM_NEWLINK` or `unlink /run/…`.
    pub what: String,
}

/// The processes that are killed at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The plugin. Its child processes continue, as after a timeout of the runtime.
    Plugin,
    /// The process that makes the request, if the plugin started it. The plugin then sees it fail.
    Delegate,
    /// All processes, as when a node runs out of memory.
    All,
}

/// The result of a traced call.
#[derive(Debug)]
pub struct Traced {
    /// The exit status and the output of the plugin.
    pub answer: Answer,
    /// Every request that changed something, in order.
    pub steps: Vec<Step>,
}

/// The requests that are steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Requests that change something outside the process. Nothing changes between two of them, so kills before each of
    /// them cover every state that a kill can leave.
    Changes,
    /// Every system call.
    Everything,
}

impl Call {
    /// Runs the call and passes each step to `watch`, which may select a victim and a signal.
    #[expect(
        clippy::zombie_processes,
        reason = "the tracer waits for every process of the call"
    )]
    pub fn traced(&self, scope: Scope, mut watch: impl FnMut(&Step) -> Option<(Victim, Signal)>) -> Traced {
        let [mut stdin, stdout, stderr] = std::array::from_fn(|_| tempfile::tempfile().unwrap());
        stdin.write_all(&self.stdin).unwrap();
        stdin.rewind().unwrap();
        let mut command = Command::new(&self.program);
        command
            .env_clear()
            .envs(&self.env)
            .stdin(stdin)
            .stdout(stdout.try_clone().unwrap())
            .stderr(stderr.try_clone().unwrap());
        trace_from_start(&mut command, scope);
        let start = Instant::now();
        let child = command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        let plugin = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let (steps, status) = within_limit(plugin, || Tracer::new(plugin, scope).follow(&mut watch));
        Traced {
            answer: self.answer(status, &content(stdout), &content(stderr), start.elapsed()),
            steps,
        }
    }
}

/// Makes the child stop at its first instruction, so that no request is missed, and at each step from there on.
#[expect(unsafe_code, reason = "std has no other way to ask for being traced")]
fn trace_from_start(command: &mut Command, scope: Scope) {
    let filter = request::filter(scope);
    let ready = move || {
        ptrace::traceme()?;
        seccompiler::apply_filter(&filter).map_err(|_| Errno::last().into())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. ptrace(2), prctl(2) and seccomp(2) are
    // system calls, and their arguments exist before the fork.
    unsafe { command.pre_exec(ready) };
}

/// Kills a call that exceeds the time limit, so that its tracer wakes up.
fn within_limit<T>(plugin: Pid, follow: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        let (ended, watch) = mpsc::channel::<()>();
        scope.spawn(move || {
            if watch.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = kill(plugin, Signal::SIGKILL);
            }
        });
        let outcome = follow();
        drop(ended);
        outcome
    })
}

fn content(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).unwrap();
    bytes
}

/// The processes of one call.
struct Tracer {
    plugin: Pid,
    scope: Scope,
    /// The process of each thread.
    threads: BTreeMap<Pid, Pid>,
    /// Processes in the order of their start, with the number of their steps.
    processes: Vec<(Pid, u32)>,
    steps: Vec<Step>,
    /// Whether a signal was sent. `watch` is not called afterwards.
    struck: bool,
}

impl Tracer {
    fn new(plugin: Pid, scope: Scope) -> Self {
        Self {
            plugin,
            scope,
            threads: BTreeMap::new(),
            processes: vec![(plugin, 0)],
            steps: Vec::new(),
            struck: false,
        }
    }

    /// Traces every process until its end.
    fn follow(
        mut self,
        watch: &mut impl FnMut(&Step) -> Option<(Victim, Signal)>,
    ) -> (Vec<Step>, ExitStatus) {
        let mut status = None;
        loop {
            // This thread's children only, because other tests of this program have their own.
            let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
            match waitpid(None, Some(flags)) {
                Ok(WaitStatus::Exited(thread, code)) => {
                    self.ended(thread, ExitStatus::from_raw(code << 8), &mut status);
                }
                Ok(WaitStatus::Signaled(thread, signal, _)) => {
                    self.ended(thread, ExitStatus::from_raw(signal as i32), &mut status);
                }
                Ok(WaitStatus::PtraceEvent(thread, _, libc::PTRACE_EVENT_SECCOMP)) => {
                    let what = request::about_to_make(thread, self.scope);
                    self.at_step(thread, what, watch);
                }
                Ok(WaitStatus::PtraceEvent(thread, _, libc::PTRACE_EVENT_EXEC)) => {
                    self.at_step(thread, Some("begin".to_owned()), watch);
                }
                Ok(WaitStatus::PtraceEvent(thread, ..)) => go_on(thread, None),
                Ok(WaitStatus::Stopped(thread, signal)) => self.stopped(thread, signal),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::ECHILD) => break,
                Err(e) => panic!("waitpid: {e}"),
            }
        }
        (self.steps, status.expect("the plugin's end was not seen"))
    }

    fn ended(&mut self, thread: Pid, how: ExitStatus, status: &mut Option<ExitStatus>) {
        self.threads.remove(&thread);
        if thread == self.plugin {
            *status = Some(how);
        }
    }

    /// Handles a stop. A new thread starts with a stop of its own; all other signals are passed on.
    fn stopped(&mut self, thread: Pid, signal: Signal) {
        if self.threads.contains_key(&thread) {
            return go_on(thread, Some(signal));
        }
        let process = process_of(thread);
        self.threads.insert(thread, process);
        if thread == self.plugin {
            let options = Options::PTRACE_O_TRACESECCOMP
                | Options::PTRACE_O_TRACECLONE
                | Options::PTRACE_O_TRACEFORK
                | Options::PTRACE_O_TRACEVFORK
                | Options::PTRACE_O_TRACEEXEC
                | Options::PTRACE_O_EXITKILL;
            ptrace::setoptions(thread, options).unwrap();
        } else if !self.processes.iter().any(|(pid, _)| *pid == process) {
            self.processes.push((process, 0));
        }
        go_on(thread, None);
    }

    fn at_step(
        &mut self,
        thread: Pid,
        what: Option<String>,
        watch: &mut impl FnMut(&Step) -> Option<(Victim, Signal)>,
    ) {
        if let (Some(what), Some(process), false) = (what, self.threads.get(&thread).copied(), self.struck) {
            let step = self.step(process, what);
            let blow = watch(&step);
            self.steps.push(step);
            if let Some((victim, signal)) = blow {
                self.struck = true;
                self.strike(process, victim, signal);
            }
        }
        go_on(thread, None);
    }

    fn step(&mut self, process: Pid, what: String) -> Step {
        let position = self.processes.iter().position(|(pid, _)| *pid == process);
        let position = position.expect("a process that was not seen to begin");
        let steps = &mut self.processes[position].1;
        *steps += 1;
        Step {
            by: match u32::try_from(position).unwrap() {
                0 => Process::Plugin,
                number => Process::Delegate(number),
            },
            number: *steps,
            what,
        }
    }

    fn strike(&self, caller: Pid, victim: Victim, signal: Signal) {
        let struck = |process: &Pid| match victim {
            Victim::Plugin => *process == self.plugin,
            Victim::Delegate => *process == caller,
            Victim::All => true,
        };
        for (process, _) in self.processes.iter().filter(|(process, _)| struck(process)) {
            // A process that has already ended is no error.
            let _ = kill(*process, signal);
        }
    }
}

/// Continues a thread until its next stop. A thread that a signal has ended is no error.
fn go_on(thread: Pid, signal: Option<Signal>) {
    let _ = ptrace::cont(thread, signal);
}

/// The process that a thread belongs to.
fn process_of(thread: Pid) -> Pid {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    process
        .and_then(|id| id.trim().parse().ok())
        .map_or(thread, Pid::from_raw)
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.by {
            Process::Plugin => write!(f, "the plugin's")?,
            Process::Delegate(number) => write!(f, "delegate {number}'s")?,
        }
        write!(f, " request {} ({})", self.number, self.what)
    }
}
