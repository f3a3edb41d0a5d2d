// SPDX-License-Identifier: Apache-2.0
use crate::journal::Intent;
use common::netns::Netns;
use nix::sched::{CloneFlags, unshare};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::thread;

/// A network namespace other than the test's own; the model has its content.
pub(crate) struct Pod {
    netns: Netns,
}

impl Pod {
    pub(crate) fn new() -> Self {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .expect("this test makes a network namespace and must run as root");
            Netns::current().unwrap()
        });
        Self {
            netns: made.join().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.netns.as_fd().as_raw_fd()))
    }

    /// The intent of an ADD on `master` for this pod.
    pub(crate) fn intent(&self, master: &str) -> Intent {
        Intent {
            netns: self.path(),
            netns_id: self.id(),
            pod: None,
            master: master.to_owned(),
            parent: None,
            why: None,
            ipam: None,
            device_info: None,
            rdma: None,
            device: None,
            restored: false,
            ipvlan: None,
            macvlan: None,
            made: Vec::new(),
        }
    }

    pub(crate) fn id(&self) -> (u64, u64) {
        self.netns.id()
    }
}
