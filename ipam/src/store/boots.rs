// SPDX-License-Identifier: Apache-2.0
//! The first call of a boot clears away what earlier boots left.

use super::Store;
use super::failure::failed;
use common::cni::{Code, Error};
use std::ffi::OsStr;
use std::io::ErrorKind;

impl Store<'_> {
    /// Makes the directory of this boot, whole or not at all, and removes those of earlier boots.
    ///
    /// # Errors
    /// [`Code::INVALID_CONFIG`] on a network file system: another node's leases would be taken for those of an
    /// earlier boot.
    pub(super) fn begin_boot(&self) -> Result<(), Error> {
        let Self {
            node, network, boot, ..
        } = self;
        match node.disk.shared(network) {
            Ok(None) => {}
            Ok(Some(kind)) => {
                return Err(Error::new(
                    Code::INVALID_CONFIG,
                    format!(
                        "{} lies on {kind}, which other nodes may share; set ipam.dataDir to a directory on this node's own disk or memory",
                        network.display()
                    ),
                ));
            }
            Err(e) => return Err(failed("tell the file system of", network, &e)),
        }
        self.clear_earlier_boots();
        let unfinished = network.join("boot-unfinished");
        for directory in ["leases", "addresses", "resting"] {
            let path = unfinished.join(directory);
            node.disk
                .make_directory(&path)
                .map_err(|e| failed("make the directory", &path, &e))?;
        }
        node.disk
            .rename(&unfinished, boot)
            .map_err(|e| failed("make the directory", boot, &e))
    }

    /// What cannot be removed is in nobody's way, so it does not keep pods from starting.
    fn clear_earlier_boots(&self) {
        let Self {
            node, network, boot, ..
        } = self;
        let is_boot =
            |name: &&std::ffi::OsString| name.to_str().is_some_and(|name| name.starts_with("boot-"));
        for name in node
            .disk
            .list(network, usize::MAX)
            .unwrap_or_default()
            .iter()
            .filter(is_boot)
        {
            if Some(name.as_os_str()) == boot.file_name().map(OsStr::new) {
                continue;
            }
            let path = network.join(name);
            match node.disk.remove_tree(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    tracing::warn!(
                        "cannot remove {}, leases of an earlier boot: {e}; remove it by hand",
                        path.display()
                    );
                }
                _ => tracing::debug!("removed {}, leases of an earlier boot", path.display()),
            }
        }
    }
}
