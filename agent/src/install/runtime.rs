// SPDX-License-Identifier: Apache-2.0
//! The directory of plugins according to the configuration of the node's container runtime. It takes precedence over the default
//! of the distribution. It can be read only if all of the node's file system is mounted.

use super::{Distribution, on_host};
use std::fs;
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item};

const CRIO_CONFIG: &str = "/etc/crio/crio.conf";
const CRIO_DROP_INS: &str = "/etc/crio/crio.conf.d";

/// Directories of plugins, and the file that names them.
type Named = (Vec<String>, String);

/// The directory that the configuration of `distribution`'s runtime names, if it exists, and the file that names it. A file that
/// cannot be read is ignored.
pub(super) fn plugin_dir(host: &Path, distribution: Distribution) -> Option<(PathBuf, String)> {
    // An absolute path, and not a template that is filled in later.
    let usable =
        |dir: &String| dir.starts_with('/') && !dir.contains('$') && on_host(host, Path::new(dir)).is_dir();
    let containerd = distribution
        .containerd_config()
        .and_then(|file| containerd(host, file));
    let crio = distribution.may_run_crio().then(|| crio(host)).flatten();
    containerd.into_iter().chain(crio).find_map(|(dirs, file)| {
        let dir = dirs.into_iter().find(usable)?;
        Some((dir.into(), file))
    })
}

/// `plugins.*.cni.bin_dir`, and `bin_dirs` since containerd 2.1. The plugin is called `io.containerd.grpc.v1.cri` in version
/// 2 of the file and `io.containerd.cri.v1.runtime` in version 3 (containerd `docs/cri/config.md`).
fn containerd(host: &Path, file: &str) -> Option<Named> {
    let config = read(host, file)?;
    let plugins = config.get("plugins").and_then(Item::as_table_like);
    let plugins = plugins.into_iter().flat_map(|plugins| plugins.iter());
    let cnis = plugins.filter_map(|(_, plugin)| plugin.get("cni"));
    let dirs = cnis.flat_map(|cni| {
        let one = cni.get("bin_dir").and_then(Item::as_str).map(str::to_owned);
        one.into_iter()
            .chain(cni.get("bin_dirs").into_iter().flat_map(strings))
    });
    Some((dirs.collect(), file.to_owned()))
}

/// `crio.network.plugin_dirs` (cri-o `docs/crio.conf.5.md`) of the last file that has the key. CRI-O reads the files of the
/// directory in lexical order, and each overrides those before it (cri-o `docs/crio.conf.d.5.md`).
fn crio(host: &Path) -> Option<Named> {
    let drop_ins = fs::read_dir(on_host(host, Path::new(CRIO_DROP_INS)));
    let mut files: Vec<String> = drop_ins
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .map(|name| format!("{CRIO_DROP_INS}/{name}"))
        .collect();
    files.sort();
    files.insert(0, CRIO_CONFIG.to_owned());
    files.into_iter().rev().find_map(|file| {
        let config = read(host, &file)?;
        let dirs = config.get("crio")?.get("network")?.get("plugin_dirs")?;
        Some((strings(dirs).collect(), file))
    })
}

fn read(host: &Path, file: &str) -> Option<DocumentMut> {
    let text = fs::read_to_string(on_host(host, Path::new(file))).ok()?;
    text.parse().ok()
}

fn strings(list: &Item) -> impl Iterator<Item = String> {
    let list = list.as_array().into_iter().flat_map(|list| list.iter());
    list.filter_map(|value| value.as_str().map(str::to_owned))
}
