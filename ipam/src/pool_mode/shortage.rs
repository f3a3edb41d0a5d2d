// SPDX-License-Identifier: Apache-2.0
//! The reasons for asking the agent, and the errors if the agent cannot help: each reason has its own code,
//! with the pool's numbers and the remedy.

use crate::allocator::Shortage;
use crate::pool::{Counters, PoolFile};
use crate::range::Family;
use common::cni::{Code, Error};
use std::net::IpAddr;
use std::path::PathBuf;

/// What the plugin needs from the agent.
pub(super) enum AgentNeed {
    /// The missing file of a pool.
    File(PathBuf),
    /// The admission of a namespace.
    Namespace {
        /// The pod's namespace.
        namespace: Option<String>,
        /// The namespaces that the file admits.
        admitted: Vec<String>,
    },
    /// Proof that the blocks are still this node's.
    Proof {
        /// How many blocks.
        blocks: usize,
        /// The known evidence.
        why: String,
    },
    /// One more block.
    Block(Local),
    /// Addresses that this node cannot allocate by itself.
    Address {
        /// The requested addresses.
        ips: Vec<IpAddr>,
    },
}

/// This node's part of a pool without a free address.
pub(super) struct Local {
    family: Family,
    blocks: usize,
    shortage: Shortage,
    counters: Counters,
}

impl Local {
    /// The part of `family`.
    pub(super) fn of(pool: &PoolFile, family: Family, shortage: &Shortage) -> Self {
        Self {
            family,
            blocks: pool
                .active()
                .filter(|block| Family::of(block.cidr.ip()) == family)
                .count(),
            shortage: shortage.clone(),
            counters: pool.counters,
        }
    }

    fn describe(&self) -> String {
        let family = self.family;
        let Shortage {
            size, taken, resting, ..
        } = self.shortage;
        let blocks = match self.blocks {
            0 => return format!("this node has no block with {family} addresses"),
            1 => "1 block".to_owned(),
            more => format!("{more} blocks"),
        };
        if resting == 0 {
            return format!("all {size} {family} addresses in {blocks} of this node are in use");
        }
        format!(
            "{taken} of {size} {family} addresses in {blocks} of this node are in use, and the other {resting} were released and rest, the first for another {} s",
            self.shortage.seconds()
        )
    }

    fn cluster(&self) -> String {
        let Counters { size, used, free } = self.counters;
        format!(
            "the whole pool had {used} of {size} addresses in use and {free} outside every block when last counted"
        )
    }
}

impl AgentNeed {
    /// The error if the agent's answer changed nothing.
    pub(super) fn unmet(&self) -> Error {
        match self {
            // The agent refuses a pool that is not for this node.
            Self::File(path) => Error::new(
                Code::TRY_AGAIN,
                format!(
                    "this node has no part of it yet: its agent has not written {}; try again",
                    path.display()
                ),
            ),
            Self::Namespace { namespace, admitted } => Error::new(
                Code::POOL_NOT_FOR_NAMESPACE,
                format!(
                    "{}; label the namespace so that the pool's namespaceSelector matches, or choose another pool",
                    unadmitted(namespace.as_deref(), admitted)
                ),
            ),
            Self::Proof { blocks, why } => {
                Error::new(Code::TRY_AGAIN, format!("{}; try again", unproven(*blocks, why)))
            }
            Self::Block(local) => Error::new(
                Code::TRY_AGAIN,
                format!(
                    "{}, and other pods have used up the block that the agent claimed; try again",
                    local.describe()
                ),
            )
            .with_details(local.cluster()),
            Self::Address { ips } => Error::new(
                Code::TRY_AGAIN,
                format!("the agent did not give {}; try again", named(ips)),
            ),
        }
    }

    /// The error if the agent did not answer, or refused with `error`.
    pub(super) fn refused(&self, error: Error) -> Error {
        let why = self.why();
        match (error.code, self) {
            // The cluster has no address left, but one of this node becomes free by itself.
            (Code::EXHAUSTED, Self::Block(local)) if local.shortage.resting > 0 => Error::new(
                Code::RESTING,
                format!(
                    "no address is free yet: {}; try again in {} s",
                    local.describe(),
                    local.shortage.seconds()
                ),
            )
            .with_details(error.msg),
            (Code::TRY_AGAIN | Code::API_UNREACHABLE, _) => {
                Error::new(error.code, format!("{why}; {}", error.msg))
                    .with_details(join(error.details, self.numbers()))
            }
            _ => {
                let details = join(error.details, join(why, self.numbers()));
                Error::new(error.code, error.msg).with_details(details)
            }
        }
    }

    fn why(&self) -> String {
        match self {
            Self::File(path) => format!(
                "this node has no part of it yet ({} is not there)",
                path.display()
            ),
            Self::Namespace { namespace, admitted } => unadmitted(namespace.as_deref(), admitted),
            Self::Proof { blocks, why } => unproven(*blocks, why),
            Self::Block(local) => local.describe(),
            Self::Address { ips } => format!("only the agent can allocate {}", named(ips)),
        }
    }

    fn numbers(&self) -> String {
        match self {
            Self::Block(local) => local.cluster(),
            _ => String::new(),
        }
    }
}

fn unadmitted(namespace: Option<&str>, admitted: &[String]) -> String {
    let admitted = match admitted {
        [] => "none".to_owned(),
        few if few.len() <= 8 => few.join(", "),
        many => format!("{} and {} more", many[..8].join(", "), many.len() - 8),
    };
    match namespace {
        Some(namespace) => {
            format!("pods of namespace {namespace} get no address of it; admitted: {admitted}")
        }
        None => format!(
            "the runtime did not name the pod (K8S_POD_NAMESPACE in CNI_ARGS), and only some namespaces are admitted: {admitted}"
        ),
    }
}

fn unproven(blocks: usize, why: &str) -> String {
    format!("since this node's last boot nothing proves that its {blocks} blocks are still its own: {why}")
}

fn named(ips: &[IpAddr]) -> String {
    if ips.is_empty() {
        return "its addresses".to_owned();
    }
    let ips: Vec<String> = ips.iter().map(IpAddr::to_string).collect();
    format!("address {}", ips.join(" and "))
}

fn join(first: String, second: String) -> String {
    match (first.is_empty(), second.is_empty()) {
        (true, _) => second,
        (_, true) => first,
        _ => format!("{first}; {second}"),
    }
}
