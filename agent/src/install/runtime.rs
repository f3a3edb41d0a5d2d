// SPDX-License-Identifier: Apache-2.0
//! The directories of plugins according to the configuration of the node's container runtime. They take precedence over the
//! default of the distribution. They can be read only if all of the node's file system is mounted.

use super::Distribution;
use super::directory::resolved;
use glob::{Pattern, glob};
use std::fs;
use std::path::{Component, Path, PathBuf};
use toml_edit::{DocumentMut, Item};

const CRIO_CONFIG: &str = "/etc/crio/crio.conf";
const CRIO_DROP_INS: &str = "/etc/crio/crio.conf.d";

/// Directories of plugins, and the file that names them.
type Named = (Vec<String>, String);

/// The directories that the configuration of `distribution`'s runtime names, each with the file that names it. A file that cannot
/// be read is ignored. A directory may be missing on the node.
pub(super) fn plugin_dirs(host: &Path, distribution: Distribution) -> Vec<(PathBuf, String)> {
    // An absolute path, and not a template that is filled in later.
    let usable = |dir: &String| dir.starts_with('/') && !dir.contains('$');
    let containerd = distribution
        .containerd_config()
        .and_then(|file| containerd(host, file));
    let crio = distribution.may_run_crio().then(|| crio(host)).flatten();
    let all = containerd.into_iter().chain(crio);
    all.flat_map(|(dirs, file)| {
        let usable = dirs.into_iter().filter(usable);
        usable.map(move |dir| (dir.into(), file.clone()))
    })
    .collect()
}

/// The directories in the last file that names any. containerd reads `file`, then what it imports, and each file overrides those
/// before it (`LoadConfigWithPlugins` in containerd `cmd/containerd/server/config/config.go`).
fn containerd(host: &Path, file: &str) -> Option<Named> {
    let mut files = vec![file.to_owned()];
    let mut last = None;
    let mut next = 0;
    while let Some(file) = files.get(next).cloned() {
        next += 1;
        let Some(config) = read(host, &file) else { continue };
        let dirs = bin_dirs(&config);
        let imports = config.get("imports").into_iter().flat_map(strings);
        let imports = imports.flat_map(|import| imported(host, &file, &import));
        let new: Vec<String> = imports.filter(|import| !files.contains(import)).collect();
        files.extend(new);
        if !dirs.is_empty() {
            last = Some((dirs, file));
        }
    }
    last
}

/// `plugins.*.cni.bin_dir`, and `bin_dirs` since containerd 2.1. The plugin is called `io.containerd.grpc.v1.cri` in version
/// 2 of the file and `io.containerd.cri.v1.runtime` in version 3 (containerd `docs/cri/config.md`).
fn bin_dirs(config: &DocumentMut) -> Vec<String> {
    let plugins = config.get("plugins").and_then(Item::as_table_like);
    let plugins = plugins.into_iter().flat_map(|plugins| plugins.iter());
    let cnis = plugins.filter_map(|(_, plugin)| plugin.get("cni"));
    cnis.flat_map(|cni| {
        let one = cni.get("bin_dir").and_then(Item::as_str).map(str::to_owned);
        one.into_iter()
            .chain(cni.get("bin_dirs").into_iter().flat_map(strings))
    })
    .collect()
}

/// The files that `import` names in `parent`: a path or a pattern, relative to the directory of `parent`.
fn imported(host: &Path, parent: &str, import: &str) -> Vec<String> {
    let path = cleaned(&Path::new(parent).with_file_name(import));
    if !import.contains('*') {
        return path.to_str().map(str::to_owned).into_iter().collect();
    }
    // The part of the path without a pattern may have symbolic links of the node.
    let is_plain = |component: &Component| !component.as_os_str().to_string_lossy().contains('*');
    let plain: PathBuf = path.components().take_while(is_plain).collect();
    let Ok(directory) = resolved(host, &plain) else {
        return Vec::new();
    };
    let rest = path.strip_prefix(&plain).unwrap_or(&path);
    let pattern = Path::new(&Pattern::escape(&directory.to_string_lossy())).join(rest);
    let on_node = |found: PathBuf| Some(plain.join(found.strip_prefix(&directory).ok()?));
    let found = glob(&pattern.to_string_lossy()).into_iter().flatten();
    found
        .filter_map(|path| on_node(path.ok()?)?.to_str().map(str::to_owned))
        .collect()
}

/// `path` without `..`, so that each file has one name.
fn cleaned(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(clean.pop()),
            component => clean.push(component),
        }
    }
    clean
}

/// `crio.network.plugin_dirs` (cri-o `docs/crio.conf.5.md`) of the last file that has the key. CRI-O reads the files of the
/// directory in lexical order, and each overrides those before it (cri-o `docs/crio.conf.d.5.md`).
fn crio(host: &Path) -> Option<Named> {
    let drop_ins = resolved(host, Path::new(CRIO_DROP_INS)).and_then(fs::read_dir);
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
    let text = fs::read_to_string(resolved(host, Path::new(file)).ok()?).ok()?;
    text.parse().ok()
}

fn strings(list: &Item) -> impl Iterator<Item = String> {
    let list = list.as_array().into_iter().flat_map(|list| list.iter());
    list.filter_map(|value| value.as_str().map(str::to_owned))
}
