// SPDX-License-Identifier: Apache-2.0
//! Checks whether a pod still has the RDMA device that it was granted.

use super::facts::devices;
use crate::error::Error;
use crate::intent::Grant;
use crate::kernel::{Kernel, Side};

/// Adds the differences to `findings`.
///
/// # Errors
/// The kernel refuses a request.
pub(crate) fn compare(
    kernel: &mut dyn Kernel,
    grant: &Grant,
    findings: &mut Vec<String>,
) -> Result<(), Error> {
    let name = grant.name_in_pod();
    let side = if grant.moved().is_some() {
        Side::Pod
    } else {
        Side::Host
    };
    let there = devices(kernel, side)?;
    match (grant.device.among(&there, |_| None), grant.moved()) {
        (Some(device), Some(_)) if device.name != name => {
            findings.push(format!("its RDMA device is called {}, was {name}", device.name));
        }
        (Some(_), _) => {}
        (None, Some(identity)) => findings.push(format!(
            "its RDMA device {name} ({} on the host) is not in the pod any more",
            identity.name
        )),
        (None, None) => findings.push(format!("its RDMA device {name} is gone from the node")),
    }
    Ok(())
}
