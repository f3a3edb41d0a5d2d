// SPDX-License-Identifier: Apache-2.0
//! Requests to the kernel about `InfiniBand` virtual functions.

use super::Namespaces;
use crate::intent::Function;
use common::netlink::{Error, FunctionState};
use common::rdma::Guid;
use std::fs;
use std::io;

/// The GUIDs and link states of virtual functions, and the drivers that use them.
pub trait VirtualFunctions {
    /// Sets the GUIDs of virtual function `number` of the physical function whose link is `physical`.
    fn set_function_guids(&mut self, physical: u32, number: u32, node: Guid, port: Guid)
    -> Result<(), Error>;
    /// The link state of virtual function `number` of the physical function whose link is `physical`; `None` if the
    /// kernel does not report it.
    fn function_state(&mut self, physical: u32, number: u32) -> Result<Option<FunctionState>, Error>;
    /// Sets the link state of that function.
    fn set_function_state(&mut self, physical: u32, number: u32, state: FunctionState) -> Result<(), Error>;
    /// Unbinds a function from its driver. Its links and its RDMA device then disappear.
    fn unbind_function(&mut self, function: &Function) -> io::Result<()>;
    /// Binds a function to its driver. Returns `false` if it has a driver already.
    fn bind_function(&mut self, function: &Function) -> io::Result<bool>;
}

impl VirtualFunctions for Namespaces<'_> {
    fn set_function_guids(
        &mut self,
        physical: u32,
        number: u32,
        node: Guid,
        port: Guid,
    ) -> Result<(), Error> {
        self.host.set_function_guids(physical, number, node, port)
    }

    fn function_state(&mut self, physical: u32, number: u32) -> Result<Option<FunctionState>, Error> {
        self.host.function_state(physical, number)
    }

    fn set_function_state(&mut self, physical: u32, number: u32, state: FunctionState) -> Result<(), Error> {
        self.host.set_function_state(physical, number, state)
    }

    fn unbind_function(&mut self, function: &Function) -> io::Result<()> {
        unbind(function)
    }

    fn bind_function(&mut self, function: &Function) -> io::Result<bool> {
        bind(function)
    }
}

fn unbind(function: &Function) -> io::Result<()> {
    if has_driver(function) {
        fs::write(function.driver.join("unbind"), function.pci())?;
    }
    Ok(())
}

fn bind(function: &Function) -> io::Result<bool> {
    if has_driver(function) {
        return Ok(false);
    }
    fs::write(function.driver.join("bind"), function.pci())?;
    Ok(true)
}

fn has_driver(function: &Function) -> bool {
    function.path.join("driver").exists()
}

#[cfg(test)]
mod tests;
