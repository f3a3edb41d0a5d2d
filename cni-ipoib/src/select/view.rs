// SPDX-License-Identifier: Apache-2.0
//! The part of a node that the choice of a master reads, so that a caller that only reads needs no
//! [`Kernel`].

use crate::kernel::{Kernel, Side};
use common::netlink::{Address, Error, Link, Route, RouteEntry, Socket};

/// Read access to a node's own namespace.
pub trait View {
    /// Every link.
    fn links(&mut self) -> Result<Vec<Link>, Error>;
    /// The routes through a link.
    fn routes(&mut self, index: u32) -> Result<Vec<RouteEntry>, Error>;
    /// The addresses of a link.
    fn addresses(&mut self, index: u32) -> Result<Vec<Address>, Error>;
}

impl View for Socket<Route> {
    fn links(&mut self) -> Result<Vec<Link>, Error> {
        self.links()
    }

    fn routes(&mut self, index: u32) -> Result<Vec<RouteEntry>, Error> {
        self.routes(index)
    }

    fn addresses(&mut self, index: u32) -> Result<Vec<Address>, Error> {
        self.addresses(index)
    }
}

/// The host's side of a kernel.
pub(super) struct OfHost<'k>(pub(super) &'k mut dyn Kernel);

impl View for OfHost<'_> {
    fn links(&mut self) -> Result<Vec<Link>, Error> {
        self.0.links(Side::Host)
    }

    fn routes(&mut self, index: u32) -> Result<Vec<RouteEntry>, Error> {
        self.0.routes(Side::Host, index)
    }

    fn addresses(&mut self, index: u32) -> Result<Vec<Address>, Error> {
        self.0.addresses(Side::Host, index)
    }
}
