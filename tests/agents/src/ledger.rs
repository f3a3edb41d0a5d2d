// SPDX-License-Identifier: Apache-2.0
//! Records which pod has which address, with complete knowledge.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The addresses of running pods, and of pods that have ended.
#[derive(Default)]
pub struct Ledger {
    holders: Mutex<HashMap<IpAddr, String>>,
    ended: Mutex<HashMap<IpAddr, Instant>>,
}

impl Ledger {
    /// Records that `holder` got `address`. Fails if another pod has it.
    pub fn given(&self, address: IpAddr, holder: &str) {
        let other = self.holders.lock().unwrap().insert(address, holder.to_owned());
        if let Some(other) = other {
            assert!(
                other == holder,
                "DUPLICATE: {address} was allocated to {holder} while {other} has it"
            );
        }
    }

    /// Records that the pod with `addresses` has ended. Call it before DEL.
    pub fn ended(&self, addresses: &[IpAddr]) {
        for address in addresses {
            self.holders.lock().unwrap().remove(address);
            self.ended.lock().unwrap().insert(*address, Instant::now());
        }
    }

    /// Records that the pod with `addresses` has ended because its node lost power: the addresses need not rest.
    pub fn ended_with_node(&self, addresses: &[IpAddr]) {
        for address in addresses {
            self.holders.lock().unwrap().remove(address);
            self.ended.lock().unwrap().remove(address);
        }
    }

    /// The time since the last pod with `address` ended, unless it ended with its node.
    pub fn rested(&self, address: IpAddr) -> Option<Duration> {
        self.ended.lock().unwrap().get(&address).map(Instant::elapsed)
    }

    /// Whether no pod has an address.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of addresses that pods have.
    pub fn len(&self) -> usize {
        self.holders.lock().unwrap().len()
    }
}
