// SPDX-License-Identifier: Apache-2.0
//! There is one clear sentence for each kind of wrong credentials.

use crate::{kubeconfig, person, rdmanet};
use agents::Site;
use std::path::Path;

/// Asserts that the command fails and prints each of `pieces` in one line.
#[track_caller]
fn says(kubeconfig: Option<&Path>, args: &[&str], pieces: &[&str]) {
    let run = rdmanet(kubeconfig, args);
    assert_eq!(run.status, 2, "{run:?}");
    assert_eq!(run.out, "", "stdout is empty");
    assert_eq!(run.err.lines().count(), 1, "{}", run.err);
    for piece in pieces {
        assert!(run.err.contains(piece), "{piece}: {}", run.err);
    }
}

#[test]
fn a_missing_kubeconfig_is_reported_with_the_places_that_were_searched() {
    says(
        None,
        &["pools"],
        &[
            "there is no kubeconfig",
            "--kubeconfig",
            "KUBECONFIG",
            "~/.kube/config",
        ],
    );
    says(
        Some(Path::new("/nonexistent/config")),
        &["pools"],
        &["/nonexistent/config", "KUBECONFIG", "No such file"],
    );
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("damaged");
    std::fs::write(&file, "{ [").unwrap();
    says(
        None,
        &["blocks", "--kubeconfig", file.to_str().unwrap()],
        &[file.to_str().unwrap(), "cannot be used"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_user_and_a_forbidden_user_get_different_errors() {
    let site = Site::new().await;
    let unknown = kubeconfig(&site.server.config_with("expired"));
    let file = unknown.path().join("config");
    for command in [&["pools"][..], &["blocks"], &["addresses"], &["check"]] {
        says(
            Some(&file),
            command,
            &[
                "rejects your credentials (401)",
                "expired",
                "get a new kubeconfig",
            ],
        );
    }
    says(
        Some(&file),
        &["pools", "--context", "elsewhere"],
        &["elsewhere", "kubectl config view"],
    );

    let stranger = person(&site, "stranger", None).await;
    let file = stranger.path().join("config");
    says(
        Some(&file),
        &["pools"],
        &[
            "forbidden (403)",
            "ippools",
            "rdmanet-reader",
            "conf/rbac/people.yaml",
        ],
    );

    let reader = person(&site, "reader", Some("rdmanet-reader")).await;
    let file = reader.path().join("config");
    for command in [&["pools"][..], &["blocks"], &["addresses"], &["check"]] {
        let run = rdmanet(Some(&file), command);
        assert_eq!(run.status, 0, "{command:?}: {run:?}");
    }

    let mut wrong = site.server.config_with("any");
    wrong.clusters[0].cluster.as_mut().unwrap().server = Some("https://127.0.0.1:1".to_owned());
    let wrong = kubeconfig(&wrong);
    says(
        Some(&wrong.path().join("config")),
        &["check"],
        &["does not respond", "Connection refused", "kubectl cluster-info"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_the_crds_is_reported_with_the_command_to_apply_them() {
    let server = apiserver::Server::start();
    says(
        Some(&server.kubeconfig()),
        &["pools"],
        &["(404)", "kubectl apply -f conf/crds"],
    );
}
