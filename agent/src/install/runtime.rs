// SPDX-License-Identifier: Apache-2.0
//! The directory of plugins according to the configuration of the node's container runtime. It takes precedence over the default
//! of the distribution. It can be read only if all of the node's file system is mounted.

use super::{Distribution, on_host};
use std::fs;
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item};

/// The directory that the configuration of `distribution`'s runtime names, if it exists, and the file that names it. A file that
/// cannot be read is ignored.
pub(super) fn plugin_dir(host: &Path, distribution: Distribution) -> Option<(PathBuf, &'static str)> {
    distribution.runtime_files().iter().find_map(|file| {
        let text = fs::read_to_string(on_host(host, Path::new(file))).ok()?;
        let config: DocumentMut = text.parse().ok()?;
        // An absolute path, and not a template that is filled in later.
        let usable =
            |dir: &&str| dir.starts_with('/') && !dir.contains('$') && on_host(host, Path::new(dir)).is_dir();
        let dir = containerd(&config)
            .into_iter()
            .chain(crio(&config))
            .find(usable)?;
        Some((dir.into(), *file))
    })
}

/// `plugins.*.cni.bin_dir`, and `bin_dirs` since containerd 2.1. The plugin is called `io.containerd.grpc.v1.cri` in version
/// 2 of the file and `io.containerd.cri.v1.runtime` in version 3 (containerd `docs/cri/config.md`).
fn containerd(config: &DocumentMut) -> Vec<&str> {
    let plugins = config.get("plugins").and_then(Item::as_table_like);
    let plugins = plugins.into_iter().flat_map(|plugins| plugins.iter());
    let cnis = plugins.filter_map(|(_, plugin)| plugin.get("cni"));
    cnis.flat_map(|cni| {
        let one = cni.get("bin_dir").and_then(Item::as_str);
        one.into_iter().chain(strings(cni.get("bin_dirs")))
    })
    .collect()
}

/// `crio.network.plugin_dirs` (cri-o `docs/crio.conf.5.md`).
fn crio(config: &DocumentMut) -> Vec<&str> {
    let network = config.get("crio").and_then(|crio| crio.get("network"));
    strings(network.and_then(|network| network.get("plugin_dirs"))).collect()
}

fn strings(list: Option<&Item>) -> impl Iterator<Item = &str> {
    let list = list.and_then(Item::as_array);
    list.into_iter()
        .flat_map(|list| list.iter())
        .filter_map(toml_edit::Value::as_str)
}
