// SPDX-License-Identifier: Apache-2.0
//! Who has which address, as somebody sees it who sees everything.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;

/// The addresses that living pods have.
#[derive(Default)]
pub(crate) struct Ledger {
    held: Mutex<HashMap<IpAddr, String>>,
}

impl Ledger {
    /// Notes that `holder` was given `address`, and fails if somebody has it.
    pub(crate) fn given(&self, address: IpAddr, holder: &str) {
        let other = self.held.lock().unwrap().insert(address, holder.to_owned());
        if let Some(other) = other {
            assert!(
                other == holder,
                "DUPLICATE: {address} was given to {holder} while {other} has it"
            );
        }
    }

    /// Notes that the pod has ended that had `address`. To be called before anybody can be told.
    pub(crate) fn ended(&self, address: IpAddr) {
        self.held.lock().unwrap().remove(&address);
    }

    pub(crate) fn len(&self) -> usize {
        self.held.lock().unwrap().len()
    }
}
