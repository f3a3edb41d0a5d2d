// SPDX-License-Identifier: Apache-2.0
//! STATUS: reports whether an ADD would get its addresses now.

use crate::allocator::{Prober, allocate};
use crate::config::{Config, Requests};
use crate::store::{Node, Store};
use common::cni::dispatch::Call;
use common::cni::{Code, Error};

pub(crate) fn status(node: &Node, call: &Call) -> Result<(), Error> {
    let config = Config::read(call)?;
    config.log_notes();
    ready(node, &config).map_err(|error| Error {
        code: Code::NOT_AVAILABLE,
        ..error
    })
}

fn ready(node: &Node, config: &Config) -> Result<(), Error> {
    let store = Store::new(&config.place, node)?;
    let locked = store.enter()?.among(config.space, &config.sets)?;
    locked.require_writable()?;
    let prober = config.probes.then_some(Prober { pod: None });
    allocate(&config.sets, &Requests::default(), &locked, prober)
        .map(|_| ())
        .map_err(|e| config.explain(e))
}
