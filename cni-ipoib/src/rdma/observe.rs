// SPDX-License-Identifier: Apache-2.0
//! Reads what is needed to find the RDMA device of a link, the cheapest sources first.

use super::facts::Facts;
use super::find::{NotFound, find};
use crate::error::Error;
use crate::kernel::{Kernel, Side};
use common::netlink::{Link, LinkLayer};
use common::rdma::Sysfs;

/// Reads the facts about `link`, which is on `side`. The GID tables are read only if no other rule of [`find`] matches a device,
/// because each is a request to a driver.
///
/// # Errors
/// The kernel refuses a request, or sysfs cannot be listed.
pub fn observe(kernel: &mut dyn Kernel, sysfs: &Sysfs, side: Side, link: &Link) -> Result<Facts, Error> {
    let mut facts = Facts::read(kernel, sysfs, side, link)?;
    let may_be_in_a_table = sysfs.has_rdma() && link.layer == LinkLayer::Ethernet;
    if may_be_in_a_table && matches!(find(&facts, None), Err(NotFound::None)) {
        facts.add_gid_tables(sysfs)?;
        // The tables may have added devices.
        facts.ask_netlink(kernel, side)?;
    }
    Ok(facts)
}
