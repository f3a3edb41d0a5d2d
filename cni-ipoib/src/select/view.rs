// SPDX-License-Identifier: Apache-2.0
//! The little of a node that choosing a master looks at, so that whoever only looks needs no [`Kernel`].

use crate::kernel::{Kernel, Side};
use common::netlink::{Address, Error, Link, Route, RouteEntry, Socket};

/// A node's own namespace, to look at.
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
