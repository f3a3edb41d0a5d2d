// SPDX-License-Identifier: Apache-2.0

use super::causes;
use std::error::Error;
use std::fmt::{Display, Formatter};

/// An error with a message, which may print its source too.
#[derive(Debug)]
struct Layer(&'static str, Option<Box<Layer>>, bool);

impl Display for Layer {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)?;
        match &self.1 {
            Some(source) if self.2 => write!(f, ": {source}"),
            _ => Ok(()),
        }
    }
}

impl Error for Layer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.1.as_deref().map(|source| source as &dyn Error)
    }
}

/// The layers of kube's client when a connection fails.
#[test]
fn each_cause_is_named_once() {
    let refused = Layer("Connection refused", None, false);
    let tcp = Layer("tcp connect error", Some(Box::new(refused)), false);
    let client = Layer("client error (Connect)", Some(Box::new(tcp)), false);
    let service = Layer("ServiceError", Some(Box::new(client)), true);
    let watch = Layer("failed to start watching object", Some(Box::new(service)), true);
    assert_eq!(
        causes(&watch),
        "failed to start watching object: ServiceError: client error (Connect): tcp connect error: Connection refused"
    );
}
