// SPDX-License-Identifier: Apache-2.0
//! Records which pod has which address, with complete knowledge.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;

/// The addresses of running pods.
#[derive(Default)]
pub struct Ledger {
    holders: Mutex<HashMap<IpAddr, String>>,
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

    /// Records that the pod with `address` has ended. Call it before DEL.
    pub fn ended(&self, address: IpAddr) {
        self.holders.lock().unwrap().remove(&address);
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
