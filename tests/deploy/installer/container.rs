// SPDX-License-Identifier: Apache-2.0
//! The installer in a container as in `conf/agent`: a read-only root file system, only the directory of plugins mounted
//! below /host, and one capability. The image contains static programs. The test's programs are not static, so the
//! machine's libraries are mounted too.

use crate::host::{Answer, BIN, Host};
use std::fs;
use std::os::unix::fs::chown;

/// Creates the container's root and starts the installer in it with the capabilities $CAPS.
const CONTAINER: &str = r#"
root=$BESIDE/container
mkdir -p "$root"
mount -t tmpfs none "$root"
mkdir -p "$root/plugins" "$root/host/opt/cni/bin" "$root/proc"
cp "$1" "$root/rdmanet-agent"
cp "$BESIDE"/image/* "$root/plugins"
for dir in dev usr bin lib lib64; do
  mkdir "$root/$dir"
  mount --rbind "/$dir" "$root/$dir"
done
mount --bind "$BIN" "$root/host/opt/cni/bin"
mount -t proc none "$root/proc"
mount -o remount,ro none "$root"
exec chroot "$root" /usr/bin/setpriv --bounding-set="$CAPS" --inh-caps=-all --no-new-privs \
  /rdmanet-agent install --distribution kubeadm 2>&1
"#;

fn contained(host: &Host, capabilities: &str) -> Answer {
    host.mounted("install", &format!("CAPS={capabilities}\n{CONTAINER}"))
}

#[test]
fn the_installer_container_installs_the_plugins_with_one_capability() {
    let host = Host::new();
    // The owner that kubespray sets.
    chown(host.at(BIN), Some(1000), Some(1000)).unwrap();
    let output = contained(&host, "-all,+dac_override").worked();
    assert!(
        output.contains("cni-ipoib 0.1.0 installed (there was none)"),
        "{output}"
    );
    assert_eq!(host.names(BIN), ["cni-ipoib", "loopback", "rdma-ipam"]);
}

#[test]
fn dac_override_is_needed_when_another_user_owns_the_plugin_directory() {
    let host = Host::new();
    contained(&host, "-all").worked();
    let host = Host::new();
    chown(host.at(BIN), Some(1000), Some(1000)).unwrap();
    fs::set_permissions(host.at(BIN), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    contained(&host, "-all").refused_with(&["cannot write", "Permission denied"]);
    assert_eq!(host.names(BIN), ["loopback"]);
}
