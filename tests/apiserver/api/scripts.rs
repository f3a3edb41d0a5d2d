// SPDX-License-Identifier: Apache-2.0
//! `tests/apiserver/up` and `tests/apiserver/down`.

use apiserver::Server;
use apiserver::install::until;
use std::path::Path;
use std::process::Command;

fn script(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(name))
}

fn alive(pid: nix::unistd::Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

#[tokio::test]
async fn the_requested_kubernetes_release_runs() {
    let admin = Server::shared().admin().await;
    let stated = admin.apiserver_version().await.unwrap().git_version;
    let oldest = std::env::var_os("RDMANET_KUBERNETES").is_some_and(|asked| asked == "oldest");
    assert_eq!(stated, if oldest { "v1.31.0" } else { "v1.37.1" });
}

#[test]
fn two_test_api_servers_run_side_by_side_and_stop_independently() {
    let (one, other) = (Server::start(), Server::start());
    let (etcd, apiserver) = (one.pid("etcd"), one.pid("kube-apiserver"));
    let dir = one.dir().to_owned();
    drop(one);
    assert!(!alive(etcd) && !alive(apiserver) && !dir.exists());
    assert!(alive(other.pid("etcd")) && alive(other.pid("kube-apiserver")));
    // `up` leaves a running server as it is.
    let output = script("up").arg(other.dir()).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(
        String::from_utf8(output.stdout).unwrap().trim(),
        other.kubeconfig().to_str().unwrap()
    );
}

#[test]
fn down_does_not_kill_a_process_that_reuses_a_stale_pid() {
    let server = Server::start();
    let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
    let file = server.dir().join("etcd.pid");
    let etcd = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{}\n", stranger.id())).unwrap();
    let output = script("down").arg(server.dir()).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(stranger.try_wait().unwrap().is_none(), "the stranger was ended");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(etcd.trim().parse().unwrap()),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    std::mem::forget(server);
}

#[tokio::test]
async fn a_test_api_server_stops_with_the_process_it_was_started_for() {
    let mut process = Command::new("sleep").arg("600").spawn().unwrap();
    let output = script("up")
        .args(["--until-exit", &process.id().to_string()])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let kubeconfig = String::from_utf8(output.stdout).unwrap();
    let dir = Path::new(kubeconfig.trim()).parent().unwrap().to_owned();
    assert!(dir.is_dir());
    process.kill().unwrap();
    process.wait().unwrap();
    until("the server is gone", async || !dir.exists()).await;
}

#[test]
fn down_refuses_a_directory_that_up_did_not_create() {
    let output = script("down").arg("/tmp").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not from tests/apiserver/up"));
}
