// SPDX-License-Identifier: Apache-2.0
//! The image as `conf/image/build` builds it from the Containerfile, and its init container with the root file system
//! of that image.
//!
//! buildah keeps all its files below the test's own directory and starts containers by chroot(2), without a container
//! runtime. The programs of a release are static; the test's are not, so their libraries are in the tree too.

use crate::host::{Answer, BIN, Host};
use deploy::{program, workspace};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const NAME: &str = "localhost/rdmanet-agent:test";
const CONTAINER: &str = "init";

/// Runs `program` with buildah's storage below the test's directory.
fn run(host: &Host, program: impl AsRef<OsStr>, args: &[&str]) -> Answer {
    let conf = host.beside("storage.conf");
    let place = |name: &str| host.beside(name).display().to_string();
    let text = format!(
        "[storage]\ndriver = \"vfs\"\ngraphroot = \"{}\"\nrunroot = \"{}\"\n",
        place("images"),
        place("running")
    );
    fs::write(&conf, text).unwrap();
    let output = Command::new(program)
        .args(args)
        .env("CONTAINERS_STORAGE_CONF", conf)
        .env("BUILDAH_ISOLATION", "chroot")
        .env("BUILDER", "buildah")
        .output();
    output.unwrap().into()
}

/// The libraries of a program, and its loader.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    let paths = list.split_whitespace().filter(|word| word.starts_with('/'));
    paths.map(PathBuf::from).collect()
}

/// Runs `conf/image/build --tree` with the programs of this build. Returns the tree.
fn tree(host: &Host, arch: &str) -> PathBuf {
    let dir = host.beside("tree");
    let at = |path: &str| dir.join(arch).join(path.trim_start_matches('/'));
    fs::create_dir_all(at("plugins")).unwrap();
    let agent = program("rdmanet-agent");
    let controller = program("rdmanet-controller");
    let mut programs = vec![
        (agent, at("rdmanet-agent")),
        (controller, at("rdmanet-controller")),
    ];
    for plugin in agent::install::PLUGINS {
        programs.push((program(plugin), at("plugins").join(plugin)));
    }
    let wanted: BTreeSet<PathBuf> = programs.iter().flat_map(|(from, _)| libraries(from)).collect();
    programs.extend(
        wanted
            .into_iter()
            .map(|path| (path.clone(), at(path.to_str().unwrap()))),
    );
    for (from, to) in programs {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    }
    dir
}

/// The commit of this tree, as `conf/image/build` reads it.
fn revision() -> String {
    let output = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(workspace())
        .output()
        .unwrap();
    if output.status.success() {
        String::from_utf8(output.stdout).unwrap()
    } else {
        "unknown".to_owned()
    }
}

#[test]
fn the_image_of_the_containerfile_installs_both_plugins() {
    let host = Host::new();
    let arch = if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    };
    let tree = tree(&host, arch);
    let build = workspace().join("conf/image/build");
    run(&host, build, &["--from", tree.to_str().unwrap(), NAME]).worked();

    let format = "{{.OCIv1.OS}} {{.OCIv1.Architecture}} {{.OCIv1.Config.User}} {{.OCIv1.Config.Entrypoint}}";
    let output = run(
        &host,
        "buildah",
        &["inspect", "--type", "image", "--format", format, NAME],
    )
    .worked();
    assert_eq!(output.trim(), format!("linux {arch} 0:0 [/rdmanet-agent]"));
    for (label, wanted) in [
        ("title", "rdmanet-agent"),
        ("licenses", "Apache-2.0"),
        ("version", "test"),
        ("revision", revision().trim()),
    ] {
        let format = format!("{{{{index .OCIv1.Config.Labels \"org.opencontainers.image.{label}\"}}}}");
        let args = ["inspect", "--type", "image", "--format", &format, NAME];
        assert_eq!(run(&host, "buildah", &args).worked().trim(), wanted, "{label}");
    }

    run(
        &host,
        "buildah",
        &["from", "--pull=never", "--name", CONTAINER, NAME],
    )
    .worked();
    let mount = format!("{}:/host/opt/cni/bin", host.at(BIN).display());
    run(
        &host,
        "buildah",
        &[
            "run",
            "--cap-drop=all",
            "--cap-add=CAP_DAC_OVERRIDE",
            "--env=RDMANET_DISTRIBUTION=kubeadm",
            "--volume",
            &mount,
            CONTAINER,
            "--",
            "/rdmanet-agent",
            "install",
        ],
    )
    .worked();
    // buildah may lose the end of the container's output on a busy machine, so the files count.
    for plugin in agent::install::PLUGINS {
        let installed = fs::read(host.at(BIN).join(plugin)).unwrap();
        assert!(
            installed == fs::read(program(plugin)).unwrap(),
            "{plugin} differs from that of the image"
        );
    }
    assert_eq!(host.names(BIN), ["cni-ipoib", "loopback", "rdma-ipam"]);
}

/// A tree with programs that nothing runs.
fn empty_tree(host: &Host) -> PathBuf {
    let dir = host.beside("empty");
    for program in ["rdmanet-agent", "rdmanet-controller"] {
        let file = dir.join("amd64").join(program);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    dir
}

/// podman and buildah put `localhost/` before a name without a registry, and container runtimes put `docker.io/library/`.
#[test]
fn the_image_build_gives_a_short_name_its_registry() {
    let host = Host::bare();
    let tree = empty_tree(&host);
    // Prints the words of its call.
    let builder = host.beside("builder");
    fs::write(&builder, "#!/bin/sh\necho \"$@\"\n").unwrap();
    fs::set_permissions(&builder, fs::Permissions::from_mode(0o755)).unwrap();
    for (name, full) in [
        ("rdmanet-agent:0.1.0", "docker.io/library/rdmanet-agent:0.1.0"),
        ("net/rdmanet-agent:0.1.0", "docker.io/net/rdmanet-agent:0.1.0"),
        ("registry.example/net/a:1", "registry.example/net/a:1"),
        ("registry:5000/a:1", "registry:5000/a:1"),
        (NAME, NAME),
    ] {
        let output = Command::new(workspace().join("conf/image/build"))
            .args(["--from", tree.to_str().unwrap(), name, "amd64"])
            .env("BUILDER", &builder)
            .output();
        let words = Answer::from(output.unwrap()).worked();
        assert!(words.contains(&format!(" --tag {full} ")), "{name}: {words}");
    }
}

/// docs/install.md, "The image". The name in the archive is the one that the container runtimes look for.
#[test]
fn an_archive_of_buildah_has_the_name_of_the_page() {
    let host = Host::bare();
    let tree = empty_tree(&host);
    let build = workspace().join("conf/image/build");
    let name = "rdmanet-agent:0.1.0";
    run(&host, build, &["--from", tree.to_str().unwrap(), name, "amd64"]).worked();
    let full = format!("docker.io/library/{name}");
    let archive = host.beside("rdmanet-agent.tar");
    let target = format!("docker-archive:{}:{full}", archive.display());
    run(&host, "buildah", &["push", &full, &target]).worked();
    let manifest = Command::new("tar")
        .args(["-xOf", archive.to_str().unwrap(), "manifest.json"])
        .output();
    let manifest = Answer::from(manifest.unwrap()).worked();
    assert!(
        manifest.contains(&format!("\"RepoTags\":[\"{full}\"]")),
        "{manifest}"
    );
}

#[test]
fn the_image_build_refuses_a_missing_tree_and_a_name_without_a_tag() {
    let host = Host::bare();
    let build = workspace().join("conf/image/build");
    let dir = host.root();
    let dir = dir.to_str().unwrap();
    run(&host, &build, &["--from", dir, NAME, "arm64"]).refused_with(&[dir, "--tree"]);
    run(&host, &build, &["--from", dir, "rdmanet-agent"]).refused_with(&["has no tag", "NAME:TAG"]);
}
