// SPDX-License-Identifier: Apache-2.0
//! Ranges and routes of a pool.

use super::rules;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// The part of one subnet from which addresses are allocated.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    validation = rules::subnet_is_a_network(),
    validation = rules::subnet_has_no_host_bits(),
    validation = rules::subnet_is_for_hosts(),
    validation = rules::limit_lies_in_subnet("start"),
    validation = rules::limit_lies_in_subnet("end"),
    validation = rules::limits_are_in_order(),
    validation = rules::gateway_lies_in_subnet(),
    validation = rules::exclusions_are_readable(),
    validation = rules::exclusions_lie_in_subnet()
)]
pub struct Range {
    /// The subnet, such as `10.20.0.0/16`. Each address gets its prefix length. Its network and broadcast address, or in IPv6
    /// its subnet-router anycast address, are not allocated.
    #[schemars(length(min = 4, max = 43))]
    pub subnet: String,
    /// The first address to allocate; absent: the first address of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 39))]
    pub start: Option<String>,
    /// The last address to allocate; absent: the last address of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 39))]
    pub end: Option<String>,
    /// The gateway. It is returned with each address and never allocated; absent: the first address of the subnet; `none`: no gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 39))]
    pub gateway: Option<String>,
    /// Addresses that are never allocated: addresses, networks and `first-last`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 2, max = 80)))]
    pub exclude: Vec<String>,
}

/// A route for every attachment.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(validation = rules::route_has_a_destination(), validation = rules::route_has_one_family())]
pub struct Route {
    /// The destination, such as `10.0.0.0/8`.
    #[schemars(length(min = 4, max = 43))]
    pub dst: String,
    /// The next hop; absent: the gateway of the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 39))]
    pub gw: Option<String>,
}
