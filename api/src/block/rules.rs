// SPDX-License-Identifier: Apache-2.0
//! Validation rules that the API server enforces for every `IPBlock`, whichever client writes it.

use crate::cel::{about, masked, plain, spelled};
use kube::core::Rule;

pub(super) fn name_encodes_addresses() -> Rule {
    let (name, cidr) = ("self.metadata.name", "self.spec.cidr");
    let first = format!("{cidr}.substring(0, {cidr}.indexOf('/'))");
    // "-" and the length.
    let tail = format!("(size({cidr}) - {cidr}.indexOf('/'))");
    let digits = spelled(name, &first, &tail);
    plain(
        format!(
            "!isCIDR({cidr}) || ({name}.endsWith('-' + {cidr}.substring({cidr}.indexOf('/') + 1)) && {name}.contains({cidr}.contains(':') ? '-6-' : '-4-') && {digits})"
        ),
        "the name of a block is <address space>-<4|6>-<first address in hexadecimal>-<prefix length>",
    )
}

pub(super) fn cidr_is_a_network() -> Rule {
    about(
        "cidr",
        format!("isCIDR(self.cidr) && {}", masked("self.cidr")),
        "'cidr ' + self.cidr + ' is not a network without host bits'",
    )
}

pub(super) fn addresses_stay() -> Rule {
    plain(
        "self.cidr == oldSelf.cidr && self.pool == oldSelf.pool",
        "pool and cidr of a block cannot be changed",
    )
}

pub(super) fn owner_changes_when_orphaned() -> Rule {
    plain(
        "self.owner == oldSelf.owner || oldSelf.state == 'Orphaned'",
        "a block passes to another owner only while it is Orphaned",
    )
}

pub(super) fn epoch_counts() -> Rule {
    plain(
        "self.epoch == oldSelf.epoch + 1 || (self.epoch == oldSelf.epoch && (oldSelf.state != 'Orphaned' || self.state == 'Orphaned'))",
        "epoch stays or grows by one; it must grow by one when an Orphaned block gets an owner",
    )
}

pub(super) fn shared_stays_shared() -> Rule {
    plain(
        "oldSelf.state != 'Shared' || self.state == 'Shared'",
        "a Shared block stays Shared until it is deleted",
    )
}
