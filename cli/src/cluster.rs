// SPDX-License-Identifier: Apache-2.0
//! Connects to the API server: chooses the credentials, and has one sentence for each kind of failure.

pub mod pods;
pub mod snapshot;

use crate::answer::Failure;
use crate::args::Access;
use api::client::proxy;
use common::cni::error::causes;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::Status;
use kube::{Api, Client, Config};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;

/// The time limit for a connection, and for a response.
const LIMIT: Duration = Duration::from_secs(10);

/// Objects on one page of a list.
const PAGE: u32 = 500;

/// Makes a client for the cluster that `access` names.
///
/// # Errors
/// There is no kubeconfig, or it is unusable. The sentence names the file and the remedy.
pub async fn connect(access: &Access) -> Result<Client, Failure> {
    let options = KubeConfigOptions {
        context: access.context.clone(),
        ..KubeConfigOptions::default()
    };
    let kubeconfig = kubeconfig(access)?;
    let mut config = match kubeconfig.clone() {
        Some(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|e| Failure(format!("{}: {}; kubectl config view shows it", place(access), causes(&e))))?,
        None => Config::incluster().map_err(|_| {
            Failure::new(
                "there is no kubeconfig: --kubeconfig and KUBECONFIG are not set, and ~/.kube/config does not exist; set one of them to the file with your credentials, on a kubeadm control plane /etc/kubernetes/admin.conf",
            )
        })?,
    };
    config.proxy_url = proxy::select(
        kubeconfig.as_ref(),
        access.context.as_deref(),
        &config.cluster_url,
    )
    .map_err(|e| Failure(format!("{}: {e}", place(access))))?;
    config.connect_timeout = Some(LIMIT);
    config.read_timeout = Some(LIMIT);
    Client::try_from(config).map_err(|e| Failure(format!("{}: {}", place(access), causes(&e))))
}

/// Reads the kubeconfig; `None` if this may be a pod.
fn kubeconfig(access: &Access) -> Result<Option<Kubeconfig>, Failure> {
    if let Some(file) = &access.kubeconfig {
        return Kubeconfig::read_from(file)
            .map(Some)
            .map_err(|e| unread(&place(access), &e));
    }
    match Kubeconfig::from_env() {
        Ok(Some(kubeconfig)) => return Ok(Some(kubeconfig)),
        Ok(None) => {}
        Err(e) => return Err(unread(&place(access), &e)),
    }
    let Some(home) = std::env::var_os("HOME") else {
        return Ok(None);
    };
    let file = std::path::Path::new(&home).join(".kube/config");
    if !file.exists() {
        return Ok(None);
    }
    Kubeconfig::read_from(&file)
        .map(Some)
        .map_err(|e| unread(&file.display().to_string(), &e))
}

fn unread(file: &str, error: &KubeconfigError) -> Failure {
    let why = causes(error);
    // The lines that follow show the file with an arrow in it.
    let why = why.lines().next().unwrap_or_default();
    Failure(format!(
        "{file} cannot be used: {why}; name a file with your credentials by --kubeconfig or KUBECONFIG"
    ))
}

/// The name of the credentials in a sentence.
fn place(access: &Access) -> String {
    let named = access
        .kubeconfig
        .as_ref()
        .map(|file| format!("kubeconfig {}", file.display()));
    let variable = || std::env::var_os("KUBECONFIG").filter(|text| !text.is_empty());
    named
        .or_else(|| variable().map(|file| format!("kubeconfig {} (KUBECONFIG)", file.display())))
        .unwrap_or_else(|| "your kubeconfig".to_owned())
}

/// Explains a failed request to a person. `doing` is the failed operation, such as `list IPPools`.
pub fn explain(doing: &str, error: &kube::Error) -> Failure {
    let text = match error {
        kube::Error::Api(status) => refused(doing, status),
        kube::Error::Auth(e) => format!(
            "cannot {doing}: no credentials: {}; look at the users section of your kubeconfig",
            causes(e)
        ),
        other => format!(
            "cannot {doing}: the API server does not answer: {}; is its address in your kubeconfig right (kubectl cluster-info), and does it run?",
            causes(other)
        ),
    };
    Failure(text)
}

fn refused(doing: &str, status: &Status) -> String {
    let said = &status.message;
    match status.code {
        401 => format!(
            "cannot {doing}: the API server does not know you (401): the token or certificate in your kubeconfig has expired or was revoked; get a new kubeconfig from whoever gave you this one"
        ),
        403 => format!(
            "cannot {doing}: you may not (403): {said}; have an administrator bind ClusterRole rdmanet-reader to you, or rdmanet-operator for release and import (conf/rbac/people.yaml)"
        ),
        404 => format!(
            "cannot {doing}: the cluster does not have that (404): {said}; the definitions come with kubectl apply -f conf/crds"
        ),
        code => format!("cannot {doing}: the API server refuses ({code}): {said}"),
    }
}

/// Lists all objects of `api`, page by page.
///
/// # Errors
/// As [`explain`].
pub async fn list<K: Clone + DeserializeOwned + Debug>(
    api: &Api<K>,
    what: &str,
    wanted: &ListParams,
) -> Result<Vec<K>, Failure> {
    let mut all = Vec::new();
    let mut wanted = wanted.clone().limit(PAGE);
    loop {
        let page = api
            .list(&wanted)
            .await
            .map_err(|e| explain(&format!("list {what}"), &e))?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => wanted = wanted.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// The same as [`list`]; `None` if the cluster does not have this kind of object.
///
/// # Errors
/// As [`explain`].
pub async fn list_if_known<K: Clone + DeserializeOwned + Debug>(
    api: &Api<K>,
    what: &str,
) -> Result<Option<Vec<K>>, Failure> {
    let one = ListParams::default().limit(1);
    match api.list(&one).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        _ => list(api, what, &ListParams::default()).await.map(Some),
    }
}
